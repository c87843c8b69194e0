"""The stages of one run, which its attempts share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eos.faults import CrashPlan
from eos.plan.plan import Plan
from eos.run.dedup import Deduplicating
from eos.run.lake import Lake
from eos.run.source import LiveSource
from eos.run.target_guard import TargetGuard
from eos.transaction.wire import Wire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Stages:
    """`spark` is the session that started the query: the rows of a micro-batch have their own."""

    plan: Plan
    wire: Wire
    spark: SparkSession
    source: LiveSource
    targets: TargetGuard
    crash: CrashPlan
    dedup: Deduplicating | None = None
    lake: Lake | None = None
