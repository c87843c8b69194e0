"""Dedup as Spark sees it: verdicts as a column of the source's rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from eos.dedup.fields import Dedup
from eos.dedup.homes import SHARDS
from eos.dedup.policy import DROPPED, NAMES
from eos.read.decode import ERROR, RULE

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from eos.dedup.spread_stage import SpreadStage

_CODE = "__eos_verdict"
_PLACE = ("topic", "partition", "offset")
# What a dead letter's header says beside `eos.rule`.
_REASONS = {
    "gap": "records of this producer before it never came",
    "late": "it begins below what is next of this producer, and that it was here is not proven",
    "unstamped": "it has no stamp that can be meant",
}


def rule_of(verdict: str) -> str:
    """What a dead letter's header calls the rule that refused it. Its number was not accepted, so
    that it may be put back."""
    return f"dedup_{verdict}"


RULES = tuple(map(rule_of, _REASONS))


def taken(frame: DataFrame, dedup: Dedup, stage: Callable[[Iterator[Any]], Any]) -> DataFrame:
    """Without the rows that are proven to have been there before, or that go to the dead letters.
    `stage` tells a row's code, of the judge's own or looked up."""
    left_out = (*DROPPED, *dedup.policy.codes(dedup.policy.dead))
    kept = _judged(frame, dedup, stage).where(f"{_CODE} NOT IN ({_listed(left_out)})")
    if dedup.verdict:
        kept = kept.withColumn(dedup.verdict, _named(NAMES))
    return kept.drop(_CODE)


def refused(frame: DataFrame, dedup: Dedup, stage: Callable[[Iterator[Any]], Any]) -> DataFrame:
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


def as_stream(frame: DataFrame, dedup: Dedup | None) -> DataFrame:
    """The columns that the steps will see, for a look at the plan before anything runs."""
    if dedup is None or not dedup.verdict:
        return frame
    from pyspark.sql import functions as f

    return frame.withColumn(dedup.verdict, f.lit(NAMES[0]))


def judging(frame: DataFrame, dedup: Dedup, stage: SpreadStage, tasks: int) -> DataFrame:
    """The job that judges producers whose numbers are spread over partitions: their stamps come
    together by producer, and nothing comes out."""
    from pyspark.sql import functions as f

    producer, epoch, sequence = dedup.columns
    rows = frame.selectExpr(
        # An id that is not there belongs nowhere, and is told by whoever is there.
        f"CAST(coalesce(crc32({producer}), 0) % {SHARDS} AS INT) AS shard",
        "topic",
        "partition",
        "offset",
        f"{producer} AS producer",
        f"{epoch} AS epoch",
        f"{sequence} AS sequence",
    )
    tasks = min(SHARDS, tasks)
    # By id, since a hash would give one task several shards and another none.
    task = f.expr(f"shard % {tasks}")
    moved = rows.coalesce(1) if tasks == 1 else rows.repartitionById(tasks, task)
    return moved.sortWithinPartitions("shard").mapInArrow(stage, "shard INT")


def _judged(frame: DataFrame, dedup: Dedup, stage: Callable[[Iterator[Any]], Any]) -> DataFrame:
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
    columns = _PLACE if dedup.policy.window else (*_PLACE, *dedup.columns)
    return frame.withColumn(_CODE, judge.asNondeterministic()(*map(f.expr, columns)))


def _named(texts: Sequence[str | None]) -> Any:
    """A row's code as one of these texts."""
    from pyspark.sql import functions as f

    listed = ", ".join("NULL" if text is None else f"'{text}'" for text in texts)
    return f.expr(f"CAST(element_at(array({listed}), {_CODE} + 1) AS STRING)")


def _listed(codes: Sequence[int]) -> str:
    return ", ".join(map(str, codes))
