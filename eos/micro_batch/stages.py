"""The objects that all attempts of one run share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eos.delta.sinks import DeltaSinks
from eos.faults import CrashPlan
from eos.kafka.client import KafkaClient
from eos.micro_batch.bounds import Bounds
from eos.micro_batch.source_reader import SourceReader
from eos.micro_batch.target_guard import TargetGuard
from eos.plan.plan import Plan
from eos.read.byte_limit import ByteLimit
from eos.spark.dedup_run import DedupRun
from eos.startup.source_state import LiveSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Stages:
    """The plan, the clients and the processing stages of one run.

    `spark` is the session that started the query. Each `foreachBatch` frame has another session.
    """

    plan: Plan
    client: KafkaClient
    spark: SparkSession
    source: LiveSource
    reader: SourceReader
    targets: TargetGuard
    crash: CrashPlan
    dedup: DedupRun | None = None
    tables: DeltaSinks | None = None
    bounds: Bounds | None = None  # of a run with `--until`
    byte_limit: ByteLimit | None = None
