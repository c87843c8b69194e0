"""Run a step as a user's function of pandas DataFrames or Arrow tables, on the executors.

Each call of the function gets some thousand rows and returns the new rows. Guarantee: rows are
passed in the order of the previous step. Not guaranteed: how many rows a call gets, and which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from eos.errors import TransformError
from eos.seal import Seal, of_this_process

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField, StructType

Kind = Literal["pandas", "arrow"]
# The type of headers in Spark's Kafka source. The list is null if a record has no headers.
KAFKAS_HEADERS = "array<struct<key:string,value:binary>>"
EVERY = "*"  # in `returns`, as in SQL: all columns of the previous step


@dataclass(frozen=True, slots=True)
class InBatches:
    """A pandas or Arrow step that is not applied yet, and its input rows."""

    frame: DataFrame
    kind: Kind
    part: TaskFunction
    schema: StructType  # of the rows that it returns

    def applied(self) -> DataFrame:
        """Return the step's rows as a DataFrame, without running a Spark job."""
        if self.kind == "pandas":
            return self.frame.mapInPandas(self.part.pandas, self.schema)
        return self.frame.mapInArrow(self.part.arrow, self.schema)


def in_batches(frame: DataFrame, kind: Kind, part: TaskFunction, schema: StructType) -> InBatches:
    """Return a step that is not applied yet. `schema` has the columns that it returns."""
    return InBatches(_without_null_headers(frame), kind, part, schema)


def returned(before: Sequence[StructField], returns: str) -> StructType:
    """Return the columns that a step declares in `returns`.

    If `returns` begins with `*`, the other columns of `before`, its input, come first."""
    from pyspark.sql.types import StructType

    first, _, rest = returns.strip().partition(",")
    has_every = first.strip() == EVERY
    text = rest if has_every else returns
    read: Any = StructType.fromDDL(text) if text.strip() else StructType()
    added = read.fields
    names = {field.name.lower() for field in added}
    kept = [f for f in before if f.name.lower() not in names] if has_every else []
    return StructType([*kept, *added])


def _without_null_headers(frame: DataFrame) -> DataFrame:
    """Return the rows with an empty list of headers in place of null. Both mean no headers.

    Spark computes the size of an Arrow batch after each row. For that, Arrow scans all null lists
    since the last list that is not null. With null lists, 2 million records take four times as
    long.
    """
    from pyspark.sql import functions as f

    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    if kinds.get("headers") != KAFKAS_HEADERS:
        return frame
    return frame.withColumn("headers", f.expr("coalesce(`headers`, array())"))


@dataclass(frozen=True, slots=True)
class TaskFunction:
    """The function that a task calls for a pandas or Arrow step.

    It calls the user's function, and checks the type and the columns of each result."""

    reference: str
    call: Callable[..., Any]
    arguments: dict[str, Any]
    columns: Sequence[str]
    seal: Seal = field(default_factory=of_this_process, repr=False, compare=False)

    def pandas(self, parts: Iterator[Any]) -> Iterator[Any]:
        import pandas as pd

        for part in parts:
            result = self.call(part, **self.arguments)
            if not isinstance(result, pd.DataFrame):
                raise self._wrong(result, "pandas.DataFrame")
            self._require(list(result.columns))
            yield result[list(self.columns)]

    def arrow(self, parts: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for part in parts:
            result = self.call(pa.Table.from_batches([part]), **self.arguments)
            if not isinstance(result, pa.Table):
                raise self._wrong(result, "pyarrow.Table")
            self._require(result.column_names)
            yield from result.select(list(self.columns)).to_batches()

    def _wrong(self, result: object, expected: str) -> Exception:
        description = "nothing" if result is None else f"a {type(result).__name__}"
        return self.seal.crossing(
            TransformError(
                "transform_return_type",
                f"transform `{self.reference}` returned {description}; expected a {expected}",
                hint="add the missing `return`" if result is None else "",
            )
        )

    def _require(self, found: Sequence[str]) -> None:
        missing = [name for name in self.columns if name not in found]
        if missing:
            columns = ", ".join(map(str, found))
            raise self.seal.crossing(
                TransformError(
                    "transform_column_missing",
                    f"transform `{self.reference}` returned no column `{missing[0]}`, which "
                    f"`returns` declares (it returned {columns})",
                    hint="return the column, or remove it from `returns`",
                )
            )
