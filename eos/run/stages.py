"""The stages of one run, which its attempts share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eos.delta.sinks import DeltaSinks
from eos.faults import CrashPlan
from eos.kafka.client import KafkaClient
from eos.plan.plan import Plan
from eos.run.target_guard import TargetGuard
from eos.spark.dedup_attempt import DedupAttempts
from eos.startup.source_state import LiveSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Stages:
    """`spark` is the session that started the query: the rows of a micro-batch have their own."""

    plan: Plan
    wire: KafkaClient
    spark: SparkSession
    source: LiveSource
    targets: TargetGuard
    crash: CrashPlan
    dedup: DedupAttempts | None = None
    lake: DeltaSinks | None = None
