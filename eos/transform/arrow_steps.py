"""A pipeline's steps as Python tasks run them on Arrow columns, without Spark's JVM.

Every Python worker imports this module, so it loads neither pyspark nor the configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from eos.formats.json_columns import JsonParser
from eos.formats.json_schema import left_of, parsed_of
from eos.formats.json_text import json_objects
from eos.native import library
from eos.transform.arrow_expression import Expression, NeedsSparkError, as_array, is_true

# Arrow's errors for values: an overflow, and bytes that are not UTF-8. Running out of memory is not
# among them: whether a record needs Spark depends on the record alone.
_UNLIKE_SPARK = (pa.ArrowInvalid, pa.ArrowNotImplementedError)


@dataclass(frozen=True, slots=True)
class ReadColumn:
    """A column of the decoded records: Kafka's as it is, Kafka's bytes as text, or the parser's
    field `number` of the JSON in the column `name`."""

    kind: Literal["kafka", "text", "json"]
    name: str
    number: int = 0

    def of(self, batch: pa.RecordBatch) -> Any:
        if self.kind == "json":
            return batch.column(parsed_of(self.name, self.number))
        found = batch.column(self.name)
        return found.cast(pa.string()) if self.kind == "text" else found


@dataclass(frozen=True, slots=True)
class Projection:
    """Columns that are computed, by their numbers. `kept` are the columns that later steps read."""

    computed: tuple[tuple[int, Expression], ...]
    kept: frozenset[int]


@dataclass(frozen=True, slots=True)
class Selection:
    """The condition that rows must meet. `kept` are the columns that later steps read."""

    condition: Expression
    kept: frozenset[int]


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column that the encode stage reads. If `json` is given, it is a struct, to be written as a
    JSON object with these bytes before it."""

    name: str
    column: int
    json: bytes | None = None


@dataclass(frozen=True, slots=True)
class ArrowSteps:
    """The steps from the source's records to the columns that sinks write. It can be pickled."""

    read: Mapping[int, ReadColumn]
    parsers: tuple[JsonParser, ...]
    rules: tuple[Expression, ...]  # conditions that every record must meet
    steps: tuple[Projection | Selection, ...]
    outputs: tuple[OutputColumn, ...]

    def apply(self, records: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows to encode. Raise NeedsSparkError if only Spark can compute them."""
        for batch in records:
            try:
                found = self._applied(batch)
            except _UNLIKE_SPARK as error:
                raise NeedsSparkError(str(error)) from error
            yield found

    def _applied(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch.num_rows
        for parser in self.parsers:
            batch = parser.with_columns(batch)
            left = batch.column(left_of(parser.source))
            if left.null_count < rows:
                raise NeedsSparkError(f"a JSON {parser.source} is malformed or unusual")
        columns = {number: each.of(batch) for number, each in self.read.items()}
        for rule in self.rules:
            if not _all(is_true(rule.evaluate(columns))):
                raise NeedsSparkError("a record does not meet the rules of `expect`")
        for step in self.steps:
            if isinstance(step, Projection):
                columns |= {number: each.evaluate(columns) for number, each in step.computed}
                columns = {number: columns[number] for number in step.kept}
                continue
            mask = as_array(is_true(step.condition.evaluate(columns)), rows)
            columns = {number: columns[number] for number in step.kept}
            if not _all(mask):
                rows = pc.sum(mask).as_py() or 0
                columns = {number: _filtered(each, mask) for number, each in columns.items()}
        found = [self._output(each, columns, rows) for each in self.outputs]
        return pa.RecordBatch.from_arrays(found, [each.name for each in self.outputs])

    @staticmethod
    def _output(output: OutputColumn, columns: Mapping[int, Any], rows: int) -> Any:
        found = as_array(columns[output.column], rows)
        if output.json is None:
            return found
        if library.load() is None:
            raise NeedsSparkError("the native library is missing on this machine")
        return json_objects(found, output.json)


def _all(mask: Any) -> bool:
    found = mask if isinstance(mask, pa.Scalar) else pc.all(mask, min_count=0)
    return bool(found.as_py())


def _filtered(values: Any, mask: Any) -> Any:
    return values if isinstance(values, pa.Scalar) else values.filter(mask)
