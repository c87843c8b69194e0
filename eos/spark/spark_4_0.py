"""Substitutes for Spark 4.0, which has neither Arrow functions nor `repartitionById`.

Every Python worker imports `AppendedCodes`, so nothing here loads pyspark.sql or the configuration.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from eos.dedup.stage import DedupStage
from eos.spark.header_validation import HELD_BYTES_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ARGUMENT = "__eos_argument_"
_SEED = 42  # of the hash by which Spark distributes rows to partitions
_MASK = 0xFFFF_FFFF


@functools.cache
def has_arrow_functions() -> bool:
    """Return whether PySpark has Arrow functions (`arrow_udf`): since Spark 4.1."""
    from pyspark.sql.pandas import functions

    return hasattr(functions, "arrow_udf")


@functools.cache
def shows_collations() -> bool:
    """Return whether a type in a plan's JSON has its collation: since Spark 4.1 (SPARK-53130)."""
    import pyspark

    return not pyspark.__version__.startswith("4.0.")


def detects_changed_rows(spark: SparkSession) -> bool:
    """Return whether Spark compares a repeated stage's rows with the first ones: since 4.1."""
    return not spark.version.startswith("4.0.")


def with_codes(
    frame: DataFrame, name: str, columns: Sequence[str], stage: Callable[..., Any]
) -> DataFrame:
    """Return the rows with a column `name`: the verdict codes that `stage` computes from `columns`.

    All columns go to Python and back. An Arrow function would get only `columns`."""
    from pyspark.sql.types import ByteType, StructField, StructType

    names = [f"{_ARGUMENT}{at}" for at in range(len(columns))]
    arguments = (f"{column} AS {own}" for column, own in zip(columns, names, strict=True))
    schema = StructType([*frame.schema.fields, StructField(name, ByteType())])
    rows = frame.selectExpr("*", *arguments)
    return rows.mapInArrow(AppendedCodes(stage, name, len(columns)), schema)


@dataclass(frozen=True, slots=True)
class AppendedCodes:
    """The function that a Spark task calls to replace the last `count` columns by verdict codes."""

    stage: Callable[..., Iterator[Any]]
    name: str
    count: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held: deque[pa.RecordBatch] = deque()

        def arguments() -> Iterator[Any]:
            for batch in batches:
                held.append(batch)
                values = tuple(batch.columns[-self.count :])
                yield values if self.count > 1 else values[0]  # as Spark calls an Arrow function

        def is_full() -> bool:
            held_bytes: int = sum(each.nbytes for each in held)
            return held_bytes >= HELD_BYTES_MAX

        limits = (is_full,) if isinstance(self.stage, DedupStage) else ()
        for codes in self.stage(arguments(), *limits):
            batch = held.popleft()
            kept = batch.columns[: -self.count]
            names = [*batch.schema.names[: -self.count], self.name]
            yield pa.RecordBatch.from_arrays([*kept, codes], names)


def repartition_by_id(rows: DataFrame, partitions: int, column: str) -> DataFrame:
    """Return the rows shuffled into `partitions` partitions, each into the one that `column` names.

    A plain shuffle by hash would put the rows of several numbers into one partition, and leave
    others empty. Spark 4.0 has only that one, so each number is replaced by one with its hash."""
    from pyspark.sql import functions as f

    if has_arrow_functions():
        return rows.repartitionById(partitions, column)
    keys = f.array(*map(f.lit, _keys(partitions)))
    key = f.element_at(keys, f.col(column).cast("int") + 1)
    return rows.withColumn(_ARGUMENT, key).repartition(partitions, _ARGUMENT).drop(_ARGUMENT)


@functools.cache
def _keys(partitions: int) -> tuple[int, ...]:
    """Return, for each of so many partitions, a number whose row Spark puts into that partition."""
    found: dict[int, int] = {}
    number = 0
    while len(found) < partitions:
        found.setdefault(_hash(number) % partitions, number)
        number += 1
    return tuple(found[each] for each in range(partitions))


def _hash(number: int) -> int:
    """Return the hash of a Spark INT: Murmur3 of 32 bits, signed."""
    mixed = _rotated(number * 0xCC9E2D51, 15) * 0x1B873593 & _MASK
    mixed = (_rotated(_SEED ^ mixed, 13) * 5 + 0xE6546B64) ^ 4
    for factor, bits in ((0x85EBCA6B, 16), (0xC2B2AE35, 13), (1, 16)):
        mixed &= _MASK
        mixed = (mixed ^ mixed >> bits) * factor
    return (mixed & _MASK) - ((mixed & 1 << 31) << 1)


def _rotated(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> 32 - bits) & _MASK
