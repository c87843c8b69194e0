"""Dedup as Spark sees it: verdicts as a column of the source's rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from eos.dedup.buckets import SHARDS
from eos.dedup.optimistic_pass import OptimisticPass
from eos.dedup.policy import DROPPED, NAMES, rule_of
from eos.dedup.stage import DedupStage
from eos.dedup.stamp_columns import StampRules
from eos.dedup.stamp_shards import PACKED, Gather
from eos.dedup.verdict_lookup import VerdictLookup
from eos.encode.record_errors import AT
from eos.kafka.api import TopicPartition
from eos.read.decode import ERROR, RULE
from eos.spark.fused_dedup import STAMPS, FusedDedup, HeaderValidation
from eos.spark.sink_columns import sink_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eos.dedup.producer_scope_stage import ProducerScopeStage
    from eos.plan.plan import Plan

_CODE = "__eos_verdict"
_PASSED = "eos.judged"  # how many rows, as Spark counts them
# What a dead letter's header says beside `eos.rule`.
_REASONS = {
    "gap": "records of this producer before it never came",
    "late": "it begins below what is next of this producer, and that it was here is not proven",
    "unstamped": "it has no stamp that can be meant",
}


class VerdictSource(Protocol):
    """What tells rows' codes. `topic`: of which all of them are; empty: they say it."""

    @property
    def topic(self) -> str: ...

    def __call__(self, batches: Iterator[Any], /) -> Any: ...


RULES = tuple(map(rule_of, _REASONS))


def taken(frame: DataFrame, dedup: StampRules, stage: VerdictSource) -> DataFrame:
    """Without the rows that are proven to have been there before, or that go to the dead letters.
    `stage` tells a row's code, of the judge's own or looked up."""
    kept = _judged(frame, dedup, stage).where(f"{_CODE} NOT IN ({_listed(left_out(dedup))})")
    if dedup.verdict:
        kept = kept.withColumn(dedup.verdict, _named(NAMES))
    return kept.drop(_CODE)


def left_out(dedup: StampRules) -> tuple[int, ...]:
    """Codes of the rows that don't stay."""
    return (*DROPPED, *dedup.policy.codes(dedup.policy.dead))


def in_one_pass(
    plan: Plan,
    dedup: StampRules,
    stage: DedupStage | VerdictLookup | OptimisticPass,
    frame: DataFrame,
) -> FusedDedup | None:
    """As `taken`, with what the sinks read of it. None: something stands between dedup and them: a
    step, a format to read, SQL of a sink, which all may only see the rows that stay."""
    decode = plan.decode
    if plan.transforms or plan.outputs.columns or dedup.verdict:
        return None
    if not decode.is_plain or decode.distinct is not None:
        return None
    names, beside = dedup.header_names, {}
    if not isinstance(stage, VerdictLookup) and not names:
        beside = dict(zip(STAMPS, dedup.columns, strict=True))
    columns = sink_columns(frame, plan, is_packed=True, beside=beside)
    return FusedDedup(columns, HeaderValidation(stage, left_out(dedup), names))


def counted(frame: DataFrame, dedup: StampRules) -> DataFrame:
    """As `taken` where all rows were judged before and stay: none has to go to Python to be told.
    Spark counts them as they pass, for `require_counted`."""
    from pyspark.sql import functions as f

    kept = frame.observe(_PASSED, f.expr("count(1) AS records"))
    return kept.withColumn(dedup.verdict, f.lit(NAMES[0])) if dedup.verdict else kept


def require_counted(job: DataFrame, frame: DataFrame, lookup: VerdictLookup) -> None:
    """Raises if the source lost some of the rows of `frame` that were judged, before `job` read
    them: then their numbers count as accepted, and they are not there.

    Equal numbers prove that none was lost if the job read them once and to the end. Otherwise (a
    step joins the rows with themselves, Spark saw that nothing comes of some) they are counted
    anew: what the job did not see is not there now either.
    """
    execution: Any = job._jdf.queryExecution()  # noqa: SLF001 - PySpark has no public way
    metrics = execution.observedMetrics()
    seen = metrics.apply(_PASSED).get(0) if metrics.contains(_PASSED) else None
    if seen == sum(lookup.counts.values()) and _reads(execution.analyzed()) == 1:
        return
    found = frame.groupBy("topic", "partition").count().collect()
    lookup.require_all({TopicPartition(row[0], row[1]): row[2] for row in found})


def _reads(plan: Any) -> int:
    """How often it counts: Spark tells one of the numbers. By its text: one question to the JVM."""
    return str(plan.toString()).count(f"CollectMetrics {_PASSED},")


def refused(frame: DataFrame, dedup: StampRules, stage: VerdictSource) -> DataFrame:
    """As `taken`, and with the rows that go to the dead letters, whose columns `RULE` and `ERROR`
    say why; of the others they are null."""
    dead = dedup.policy.codes(dedup.policy.dead)
    kept = _judged(frame, dedup, stage).where(f"{_CODE} NOT IN ({_listed(DROPPED)})")
    rules = [rule_of(name) if at in dead else None for at, name in enumerate(NAMES)]
    errors = [_REASONS[name] if at in dead else None for at, name in enumerate(NAMES)]
    kept = kept.withColumn(RULE, _named(rules)).withColumn(ERROR, _named(errors))
    if dedup.verdict:  # a rule of `expect` may ask for it
        kept = kept.withColumn(dedup.verdict, _named(NAMES))
    return kept.drop(_CODE)


def as_stream(frame: DataFrame, dedup: StampRules | None) -> DataFrame:
    """The columns that the steps will see, for a look at the plan before anything runs."""
    if dedup is None or not dedup.verdict:
        return frame
    from pyspark.sql import functions as f

    return frame.withColumn(dedup.verdict, f.lit(NAMES[0]))


def judging(
    frame: DataFrame, dedup: StampRules, stage: ProducerScopeStage, tasks: int
) -> DataFrame:
    """The job that judges producers whose numbers are spread over partitions: their stamps come
    together by producer, and nothing comes out. `tasks`: as many judge, behind a shuffle; 0: one
    does, which holds them all."""
    from pyspark.sql import functions as f

    producer, epoch, sequence = dedup.columns
    rows = frame.selectExpr(
        f"{AT} AS at",
        f"{producer} AS producer",
        f"{epoch} AS epoch",
        f"{sequence} AS sequence",
        *_topic(stage),
    )
    if not tasks:
        return rows.coalesce(1).mapInArrow(stage.at_once, "shard INT")
    packed = rows.mapInArrow(Gather(stage.schema), PACKED)
    # A task reads some of the shuffle's partitions, one after the other: nothing to sort. By id,
    # since a hash would give one several shards and another none.
    ordered = packed.repartitionById(SHARDS, f.col("shard")).coalesce(tasks)
    return ordered.mapInArrow(stage, "shard INT")


def _judged(frame: DataFrame, dedup: StampRules, stage: VerdictSource) -> DataFrame:
    """With each row's code. Each partition of the source is one of the frame's, in its order.

    The function is told to be non-deterministic, which it is not: so Spark neither calls it twice
    for a row nor moves a transform's filter below it, where every row that is left out would be a
    gap. Only its columns go to Python.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.types import ByteType
    from pyspark.util import PythonEvalType

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it would read hints of a plain function
        judge = arrow_udf(stage, ByteType(), PythonEvalType.SQL_SCALAR_ARROW_ITER_UDF)
    stamps = () if isinstance(stage, VerdictLookup) else dedup.columns
    columns = (AT, *stamps, *_topic(stage))
    return frame.withColumn(_CODE, judge.asNondeterministic()(*map(f.expr, columns)))


def _topic(stage: VerdictSource) -> tuple[str, ...]:
    return () if stage.topic else ("topic",)


def _named(texts: Sequence[str | None]) -> Any:
    """A row's code as one of these texts."""
    from pyspark.sql import functions as f

    listed = ", ".join("NULL" if text is None else f"'{text}'" for text in texts)
    return f.expr(f"CAST(element_at(array({listed}), {_CODE} + 1) AS STRING)")


def _listed(codes: Sequence[int]) -> str:
    return ", ".join(map(str, codes))
