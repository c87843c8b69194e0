"""Add dedup's verdicts to the source's rows in Spark, and filter the rows by verdict.

A verdict is dedup's result for a record, such as `appended`, `duplicate` or `gap`. In Spark's
column it is a number, its code.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from eos.dedup.buckets import SHARDS
from eos.dedup.policy import DROPPED, NAMES, rule_of
from eos.dedup.stamp_columns import StampRules
from eos.dedup.stamp_shards import PACKED, Gather
from eos.dedup.verdict_lookup import VerdictLookup
from eos.encode.record_errors import AT
from eos.kafka.api import TopicPartition
from eos.read.decode import ERROR, RULE
from eos.spark.spark_4_0 import has_arrow_functions, repartition_by_id, with_codes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eos.dedup.producer_scope_stage import ProducerScopeStage

_CODE = "__eos_verdict"
_PASSED = "eos.validated"  # name of Spark's counter of the rows that a job read
# The `eos.error` header of a dead letter, by verdict.
_REASONS = {
    "gap": "earlier records of this producer never arrived",
    "late": "its number is below the expected one, and it is not proven to be a duplicate",
    "unstamped": "it has no valid stamp",
}


class VerdictSource(Protocol):
    """A function that returns each row's verdict code: it validates rows, or looks verdicts up.

    `topic` is the topic of all rows. If it is empty, the rows have a topic column.
    """

    @property
    def topic(self) -> str: ...

    def __call__(self, batches: Iterator[Any], /) -> Any: ...


RULES = tuple(map(rule_of, _REASONS))


def accepted(frame: DataFrame, dedup: StampRules, stage: VerdictSource) -> DataFrame:
    """Return the rows without proven duplicates, fenced records and dead letters.

    `stage` returns the verdict codes of the rows.
    """
    codes = _listed(not_accepted(dedup))
    accepted = _with_codes(frame, dedup, stage).where(f"{_CODE} NOT IN ({codes})")
    if dedup.verdict:
        accepted = accepted.withColumn(dedup.verdict, _text_column(NAMES))
    return accepted.drop(_CODE)


def not_accepted(dedup: StampRules) -> tuple[int, ...]:
    """Return the verdict codes with which a row is dropped or becomes a dead letter."""
    return (*DROPPED, *dedup.policy.codes(dedup.policy.dead))


def counted(frame: DataFrame, dedup: StampRules) -> DataFrame:
    """Return all rows without looking up their verdicts, and let Spark count them.

    Call this only if an earlier job validated all rows and accepted each of them. Then no row has
    to go to a Python worker. `require_counted` compares Spark's count with the validated rows.
    """
    from pyspark.sql import functions as f

    accepted = frame.observe(_PASSED, f.expr("count(1) AS records"))
    return accepted.withColumn(dedup.verdict, f.lit(NAMES[0])) if dedup.verdict else accepted


def require_counted(job: DataFrame, frame: DataFrame, lookup: VerdictLookup) -> None:
    """Raise AttemptFailedError if the source lost validated rows before `job` read them.

    Such rows would count as accepted, but were never written. If `job` read the rows once and to
    the end, its row count must equal the number of validated rows. Its count is not usable if a
    step joins the rows with themselves, or if Spark pruned rows that no sink reads. Then the rows
    of `frame` are counted again: a row that was lost before the job is also missing now.
    """
    execution: Any = job._jdf.queryExecution()  # noqa: SLF001 - PySpark has no public way
    metrics = execution.observedMetrics()
    passed = metrics.apply(_PASSED).get(0) if metrics.contains(_PASSED) else None
    if passed == sum(lookup.counts.values()) and _reads(execution.analyzed()) == 1:
        return
    found = frame.groupBy("topic", "partition").count().collect()
    lookup.require_all({TopicPartition(row[0], row[1]): row[2] for row in found})


def _reads(plan: Any) -> int:
    """Return how often the plan reads the counted rows. Spark reports the count of one read only.

    The plan's text is searched, which takes a single call to the JVM.
    """
    return str(plan.toString()).count(f"CollectMetrics {_PASSED},")


def accepted_and_dead(frame: DataFrame, dedup: StampRules, stage: VerdictSource) -> DataFrame:
    """Return the rows that dedup accepts, together with its dead letters.

    Dead letters have their reason in the columns `RULE` and `ERROR`, which are null in other rows.
    """
    dead = dedup.policy.codes(dedup.policy.dead)
    accepted = _with_codes(frame, dedup, stage).where(f"{_CODE} NOT IN ({_listed(DROPPED)})")
    rules = [rule_of(name) if at in dead else None for at, name in enumerate(NAMES)]
    errors = [_REASONS[name] if at in dead else None for at, name in enumerate(NAMES)]
    accepted = accepted.withColumn(RULE, _text_column(rules)).withColumn(
        ERROR, _text_column(errors)
    )
    if dedup.verdict:  # a rule of `expect` may use this column
        accepted = accepted.withColumn(dedup.verdict, _text_column(NAMES))
    return accepted.drop(_CODE)


def as_stream(frame: DataFrame, dedup: StampRules | None) -> DataFrame:
    """Return the frame with a constant verdict column, if the pipeline declares such a column.

    It is for the check of the steps' plan before a run, in which dedup does not run."""
    if dedup is None or not dedup.verdict:
        return frame
    from pyspark.sql import functions as f

    return frame.withColumn(dedup.verdict, f.lit(NAMES[0]))


def validating(
    frame: DataFrame, dedup: StampRules, stage: ProducerScopeStage, tasks: int
) -> DataFrame:
    """Return the job that validates records with `scope: producer`, before they are written.

    Each producer's numbers span several partitions, so a shuffle brings a producer's records to one
    of `tasks` tasks. With 0, one task gets all, without a shuffle. The job has no result rows,
    since its tasks write verdicts to files.
    """
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
    # Each of the shuffle's partitions is one shard of the producers. A task reads several shards in
    # turn, so nothing has to be sorted. A shuffle by hash would put several shards into one
    # partition and none into another.
    ordered = repartition_by_id(packed, SHARDS, "shard").coalesce(tasks)
    return ordered.mapInArrow(stage, "shard INT")


def _with_codes(frame: DataFrame, dedup: StampRules, stage: VerdictSource) -> DataFrame:
    """Return the rows with a column of verdict codes, which the function `stage` computes.

    Rows of one source partition must be in one partition of the frame, in order. Only the columns
    that the function needs go to Python.

    The function is declared non-deterministic, although it is deterministic. So Spark does not call
    it twice for a row, and does not evaluate a transform's filter first. Otherwise each row that
    the filter removes would look like a gap.
    """
    stamps = () if isinstance(stage, VerdictLookup) else dedup.columns
    columns = (AT, *stamps, *_topic(stage))
    if not has_arrow_functions():
        return with_codes(frame, _CODE, columns, stage)
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.types import ByteType
    from pyspark.util import PythonEvalType

    with warnings.catch_warnings():
        # PySpark would warn about missing type hints, which it reads from plain functions only.
        warnings.simplefilter("ignore", UserWarning)
        codes = arrow_udf(stage, ByteType(), PythonEvalType.SQL_SCALAR_ARROW_ITER_UDF)
    return frame.withColumn(_CODE, codes.asNondeterministic()(*map(f.expr, columns)))


def _topic(stage: VerdictSource) -> tuple[str, ...]:
    return () if stage.topic else ("topic",)


def _text_column(texts: Sequence[str | None]) -> Any:
    """Return a column that has the text of each row's verdict code; `texts` is in code order."""
    from pyspark.sql import functions as f

    listed = ", ".join("NULL" if text is None else f"'{text}'" for text in texts)
    return f.expr(f"CAST(element_at(array({listed}), {_CODE} + 1) AS STRING)")


def _listed(codes: Sequence[int]) -> str:
    return ", ".join(map(str, codes))
