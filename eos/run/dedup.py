"""Dedup beside a run: the stage as a column of the rows, and its states behind each attempt."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from eos.dedup.fields import Dedup
from eos.dedup.policy import DROPPED, OPTIONS
from eos.dedup.stage import DedupStage
from eos.errors import UnavailableError, UsageError
from eos.faults import CrashPlan
from eos.observe import events
from eos.observe.bus import Bus
from eos.plan.plan import Plan
from eos.read.offset_log import Ranges
from eos.transaction.ledger_record import Ends, Position
from eos.transaction.port import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eos.dedup.generations import Done, Generations, Opened

_CODE = "__eos_verdict"


def deduplicating(planned: Plan, crash: CrashPlan) -> Deduplicating | None:
    """None: the pipeline declares no dedup."""
    if planned.dedup is None:
        return None
    return Deduplicating(planned.dedup, generations_of(planned, planned.dedup), crash)


def generations_of(planned: Plan, dedup: Dedup) -> Generations:
    names = planned.names
    if not names.producers:
        raise UsageError(
            f"{names.pipeline}: `dedup` needs a state root that is a folder of this machine, and "
            f"checkpoints go to {names.checkpoints}",
            hint="its states are committed by a library that has no way yet to refuse a second "
            "writer in an object store; name a folder as `state.root`, shared with the executors",
        )
    # Late: a tenth of a second that a run without dedup does not need.
    from eos.dedup.generations import Generations
    from eos.dedup.table import ProducersTable

    table = ProducersTable(Path(names.producers), names.pipeline)
    return Generations(names.pipeline, table, dedup.policy, dedup.reading)


class Deduplicating:
    """Beside one run: one attempt after the other."""

    def __init__(self, dedup: Dedup, generations: Generations, crash: CrashPlan) -> None:
        self._dedup = dedup
        self._generations = generations
        self._crash = crash
        self._opened: Opened | None = None  # by the attempt that was executed last
        self._done: Done | None = None

    def require(self, position: Position) -> None:
        """Raises if the states that go with it can't be had."""
        self._generations.require(position.producers)

    def begun(self, frame: DataFrame, position: Position) -> DataFrame:
        """An attempt: the rows that stay. Each row that is left out before would be a gap."""
        self._done = None
        self._opened = self._generations.begun(position.producers, accepts_gap=position.accepts_gap)
        return deduplicated(frame, self._dedup, self._opened.stage)

    def judge_all(self, frame: DataFrame, ranges: Ranges, floors: Ends) -> None:
        """Looks at what the job did not: Spark leaves out what it sees that nothing comes of, such
        as the rows before a filter that none passes. What they are must be known all the same."""
        starts = {**ranges.starts, **floors}
        read = [tp for tp, end in ranges.ends.items() if end > starts.get(tp, 0)]
        assert self._opened is not None, "begun() comes first"
        judge_missing(frame, self._dedup, self._opened, read)

    def producers(self) -> Done:
        """Behind the job: the generation for the ledger's record."""
        assert self._opened is not None, "begun() comes first"
        self._done = self._opened.commit(self._crash.reached)
        return self._done

    def committed(self, batch_id: int, bus: Bus) -> None:
        """After EndTxn. A micro-batch that was skipped has nothing to tell."""
        done, self._done = self._done, None
        if done is None:
            return
        odd = {name: count for name, count in done.told["verdicts"].items() if name != "appended"}
        if odd:
            dropped = {name: count for name, count in odd.items() if name not in OPTIONS}
            accepted = {name: count for name, count in odd.items() if name in OPTIONS}
            bus.emit(events.RecordsJudged(batch_id, dropped, accepted))
        try:
            self._generations.maintain()
        except UnavailableError as error:  # nothing is lost by it, and it is tried again
            bus.emit(events.Warned(error.message))


def deduplicated(frame: DataFrame, dedup: Dedup, stage: DedupStage) -> DataFrame:
    """Without the rows that are proven to have been there before. Each partition of the source is
    one of the frame's, in its order.

    The function is told to be non-deterministic, which it is not: so Spark neither calls it twice
    for a row nor moves a transform's filter below it, where every row that is left out would be a
    gap. Only its six columns go to Python.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.types import ByteType
    from pyspark.util import PythonEvalType

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it would read hints of a plain function
        judge = arrow_udf(stage, ByteType(), PythonEvalType.SQL_SCALAR_ARROW_ITER_UDF)
    columns = ("topic", "partition", "offset", *dedup.columns)
    code = judge.asNondeterministic()(*map(f.expr, columns))
    judged = frame.withColumn(_CODE, code)
    return judged.where(f"{_CODE} NOT IN ({', '.join(map(str, DROPPED))})").drop(_CODE)


def judged_anew(frame: DataFrame, planned: Plan, folder: Path) -> DataFrame:
    """For a test of a pipeline file: as if no producer were known. Its states go nowhere."""
    if planned.dedup is None:
        return frame
    there = replace(planned, names=replace(planned.names, producers=str(folder)))
    stage = generations_of(there, planned.dedup).begun("").stage
    return deduplicated(frame, planned.dedup, stage)


def judge_missing(
    frame: DataFrame, dedup: Dedup, opened: Opened, partitions: Iterable[TopicPartition]
) -> None:
    missing = opened.missing(partitions)
    if missing:
        named = [f"(topic = '{tp.topic}' AND partition = {tp.partition})" for tp in missing]
        rows = deduplicated(frame.where(" OR ".join(named)), dedup, opened.stage)
        rows.selectExpr("count(offset)").collect()
