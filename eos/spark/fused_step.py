"""Run a pandas or Arrow step and the encoding of its rows in one pass of Python ("fused").

In Spark's plan they are two passes. Between them each row goes to the JVM and back, since sinks may
compute their columns in SQL. If the last step is a pandas or Arrow function, and the sinks use its
columns unchanged, the JVM has nothing to do. Then the encode task calls the step's function itself.
In all other cases `fused` returns None, and Spark runs two passes. So it does for a column that the
sinks can't write, which is then reported as an error.

Every Python worker imports `StepMapper` and `SinkRows`, so nothing here loads pyspark.sql or the
configuration.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from eos.encode.record_errors import SOURCE_COLUMNS, at_of
from eos.encode.sink_spec import HEADERS_COLUMN
from eos.errors import TransformError
from eos.transform.batch_functions import KAFKAS_HEADERS, InBatches, Kind, TaskFunction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from eos.encode.sink_spec import SinkSpec
    from eos.plan.outputs import Output
    from eos.plan.plan import Plan

_BYTES = ("binary", "string")
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_TAKEN_AS: Mapping[str, tuple[Any, ...]] = {  # the Arrow types that Spark accepts for each type
    "binary": (pa.binary(), pa.large_binary()),
    "string": (pa.string(), pa.large_string()),
    "tinyint": (pa.int8(),),
    "smallint": (pa.int16(),),
    "int": (pa.int32(),),
    "bigint": (pa.int64(),),
}
SAFE = "spark.sql.execution.pandas.convertToArrowArraySafely"
# Matches SQL that is only a column's name.
_NAME = re.compile(r"`([^`]+)`|(?!(?:null|true|false)$)([a-z_][a-z0-9_]*)", re.IGNORECASE)
_BY_NAME = ("key", "value", "headers")
_COORDINATES = {"topic": "string", "partition": "int", "offset": "bigint"}

Encode = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class SinkColumn:
    """A column that the encode stage reads, and where it is from.

    `column` is the step's column and `kind` its Spark type. If `column` is empty, the values are
    null. `is_text` means that numbers are written as decimal text.
    """

    name: str
    column: str
    kind: str
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class FusedStep:
    """The last step, to run inside the encode tasks: its input rows and the columns to encode."""

    last: InBatches
    rows: SinkRows

    def coalesce(self, tasks: int) -> FusedStep:
        return replace(self, last=replace(self.last, frame=self.last.frame.coalesce(tasks)))

    def mapped(self, encode: Encode, schema: str) -> DataFrame:
        if self.last.kind == "pandas":
            is_safe = self.last.frame.sparkSession.conf.get(SAFE, "true") == "true"
            rows = replace(self.rows, is_safe=is_safe)
            return self.last.frame.mapInPandas(StepMapper(rows, encode).pandas, parsed(schema))
        return self.last.frame.mapInArrow(StepMapper(self.rows, encode).arrow, parsed(schema))


@functools.cache
def has_pandas_conversions() -> bool:
    """Return whether PySpark has the conversions between pandas and Arrow that tasks call.

    They are there since Spark 4.2. Without them, Spark runs a pandas step in a pass of its own."""
    from pyspark.sql import conversion

    return hasattr(conversion, "PandasToArrowConversion")


@functools.cache
def parsed(schema: str) -> StructType:
    """Return the schema of a DDL text. It is cached, since PySpark calls the JVM to parse it."""
    from pyspark.sql.types import StructType

    return cast("StructType", StructType.fromDDL(schema))


def fused(plan: Plan, last: InBatches) -> FusedStep | None:
    """Return the last step, to run inside the encode tasks; None if the sinks need SQL after it."""
    rows = sink_rows(plan, last.frame.schema, last.schema, last.part, last.kind)
    return None if rows is None else FusedStep(last, rows)


def sink_rows(
    plan: Plan, before: StructType, after: StructType, part: TaskFunction | None, kind: Kind
) -> SinkRows | None:
    """Return how a task makes the rows that sinks write, or None if that needs SQL.

    `before` has the columns of the rows that the task reads. `part` is a step that turns them into
    rows with the columns `after`. Without a step both are the same.
    """
    if plan.tables:  # a Delta table gets all columns of the step
        return None
    if kind == "pandas" and not has_pandas_conversions():
        return None
    fields = after.fields
    present = {each.name: each.dataType.simpleString() for each in fields}
    # Columns that the step's `returns` declares NOT NULL. Spark checks them for nulls, unless the
    # step's input has the same column as NOT NULL. A fused step would skip that check.
    strict = {each.name for each in fields if not each.nullable}
    if strict:
        strict -= {each.name for each in before.fields if not each.nullable}
    if len({name.lower() for name in present}) < len(present):
        return None
    if any(name not in _BY_NAME and name.lower() in _BY_NAME for name in present):
        return None  # Spark ignores case in column names
    found: dict[str, SinkColumn] = {}
    for sink in plan.sinks:
        for name, kinds in _required_columns(sink, present).items():
            column = _sink_column(name, plan.outputs.columns.get(name), present)
            if column is None or column.kind not in kinds or column.column in strict:
                return None
            # A pandas step that returns headers, a list of structs, is left to Spark's two passes.
            if column.column == HEADERS_COLUMN and kind == "pandas":
                return None
            found[name] = column
    at: tuple[str, ...] = ()
    if all(present.get(name) == kind for name, kind in _COORDINATES.items()):
        at = ("__at",) if len(plan.source_topics) == 1 else SOURCE_COLUMNS
    read = {each.column for each in found.values()} | set(_COORDINATES if at else ())
    kept: Any = type(after)
    of_read = kept([each for each in fields if each.name in read])
    return SinkRows(tuple(found.values()), at, of_read, part)


def _required_columns(sink: SinkSpec, present: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the columns that the sink reads, each with the Spark types that it can write as is."""
    text = (*_BYTES, *_WHOLE)
    required: dict[str, tuple[str, ...]] = {sink.key_column: text, sink.value_column: text}
    if sink.headers_column and (sink.headers_column != HEADERS_COLUMN or HEADERS_COLUMN in present):
        required[sink.headers_column] = (KAFKAS_HEADERS,)
    if sink.topic_column:
        required[sink.topic_column] = ("string",)
    if sink.partition_column:
        required[sink.partition_column] = ("int", "bigint")
    for name in (sink.where_column, sink.timestamp_column):
        if name:
            required[name] = ()
    return required


def _sink_column(name: str, output: Output | None, present: Mapping[str, str]) -> SinkColumn | None:
    if output is None:
        if name == "key" and name not in present:
            return SinkColumn(name, "", "binary")
        kind = present.get(name, "")
        # A number becomes text only if the sink declares that. Otherwise `sink_columns` rejects it.
        is_number = name in ("key", "value") and kind in _WHOLE
        return SinkColumn(name, name, kind) if kind and not is_number else None
    if output.kind == "headers" and not output.texts:
        return SinkColumn(name, "", KAFKAS_HEADERS)
    named = _NAME.fullmatch(output.texts[0].strip()) if output.kind == "bytes" else None
    for column, kind in present.items():
        # Spark ignores case in column names.
        if named and column.lower() == (named[1] or named[2]).lower():
            return SinkColumn(name, column, kind, kind in _WHOLE)
    return None


@dataclass(frozen=True, slots=True)
class StepMapper:
    """The function that a Spark task calls to run the last step and to encode its rows."""

    rows: SinkRows
    encode: Encode

    def arrow(self, parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from self.encode(self.rows.of_arrow(parts))

    def pandas(self, parts: Iterator[Any]) -> Iterator[Any]:
        for batch in self.encode(self.rows.of_pandas(parts)):
            yield batch.to_pandas()


@dataclass(frozen=True, slots=True)
class SinkRows:
    """Conversion of a task's rows into the rows to encode, by the last step if there is one."""

    columns: tuple[SinkColumn, ...]
    at: tuple[str, ...]  # columns of the source position to add, if the rows still have it
    schema: StructType  # of the columns that are read
    part: TaskFunction | None = None
    is_safe: bool = True  # raise for a pandas number that does not fit its column's type

    def of_arrow(self, parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return map(self._read, parts if self.part is None else self.part.arrow(parts))

    def of_pandas(self, parts: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        assert self.part is not None, "pandas DataFrames are for a step"
        return map(self._read, map(self._converted, self.part.pandas(parts)))

    def _converted(self, frame: Any) -> pa.RecordBatch:
        """Return a pandas frame as Arrow, converted as Spark does for `mapInPandas`.

        Columns that no sink reads are left out."""
        from pyspark.sql.conversion import PandasToArrowConversion

        return PandasToArrowConversion.convert(
            frame[self.schema.names],
            self.schema,
            timezone="UTC",
            safecheck=self.is_safe,
            arrow_cast=True,
        )

    def _read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = {each.name: self._column(batch, each) for each in self.columns}
        if self.at:
            topic, partition, offset = (
                self._column(batch, SinkColumn(name, name, kind))
                for name, kind in _COORDINATES.items()
            )
            known = {"__at": at_of(partition, offset), "__topic": topic}
            columns |= {name: known[name] for name in self.at}
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    def _column(self, batch: pa.RecordBatch, column: SinkColumn) -> Any:
        if not column.column:
            return pa.nulls(batch.num_rows)
        found = batch.column(column.column)
        if self.part is not None and not _is_of(found.type, column.kind):
            raise self.part.seal.crossing(
                TransformError(
                    "transform_column_type",
                    f"transform `{self.part.reference}` returned column `{column.column}` as "
                    f"{found.type}, but its `returns` declares {column.kind}",
                    hint="cast the column in the function, or correct `returns`",
                )
            )
        return found.cast(pa.string()) if column.is_text else found


def _is_of(found: pa.DataType, kind: str) -> bool:
    if kind != KAFKAS_HEADERS:
        return found in _TAKEN_AS[kind]
    if not (pa.types.is_list(found) and pa.types.is_struct(found.value_type)):
        return False
    # The encode stage reads key and value by position, so their order is checked, too.
    fields = list(found.value_type)
    return [each.name for each in fields] == ["key", "value"] and (
        fields[0].type in _TAKEN_AS["string"] and fields[1].type in _TAKEN_AS["binary"]
    )
