"""Steps that are a function of a part of the rows: a pandas DataFrame or an Arrow table, and back.

The function runs on the executors, for some thousand rows at a time; how many, and which, nothing
fixes. It is called in the place of a DataFrame function, so the plan is Spark's and the rows
keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from eos.errors import TransformError
from eos.seal import Seal, of_this_process

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Kind = Literal["pandas", "arrow"]
# As Spark's source has them: null, where a record has none.
KAFKAS_HEADERS = "array<struct<key:string,value:binary>>"
EVERY = "*"  # in `returns`, as in SQL: all columns of the stage before


@dataclass(frozen=True, slots=True)
class InBatches:
    """Such a step, and the rows that it is for."""

    frame: DataFrame
    kind: Kind
    part: TaskFunction
    schema: StructType  # of what it returns

    def applied(self) -> DataFrame:
        """Builds a plan and runs nothing."""
        if self.kind == "pandas":
            return self.frame.mapInPandas(self.part.pandas, self.schema)
        return self.frame.mapInArrow(self.part.arrow, self.schema)


def in_batches(
    frame: DataFrame,
    kind: Kind,
    reference: str,
    call: Callable[..., Any],
    arguments: Mapping[str, Any],
    returns: str,
) -> InBatches:
    from pyspark.sql.types import StructType

    before, _, rest = returns.strip().partition(",")
    has_every = before.strip() == EVERY
    text = rest if has_every else returns
    read: Any = StructType.fromDDL(text) if text.strip() else StructType()
    added = read.fields
    names = {field.name.lower() for field in added}
    kept = [f for f in frame.schema.fields if f.name.lower() not in names] if has_every else []
    schema = StructType([*kept, *added])
    part = TaskFunction(reference, call, dict(arguments), tuple(schema.names))
    return InBatches(_without_null_headers(frame), kind, part, schema)


def _without_null_headers(frame: DataFrame) -> DataFrame:
    """An empty list instead of a null one: both mean no headers. At each row Spark asks Arrow for
    the size of what it has, and Arrow goes again over all lists since the last one that was not
    null: 2 million records cost four times as much as with this."""
    from pyspark.sql import functions as f

    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    if kinds.get("headers") != KAFKAS_HEADERS:
        return frame
    return frame.withColumn("headers", f.expr("coalesce(`headers`, array())"))


@dataclass(frozen=True, slots=True)
class TaskFunction:
    """The function as a task calls it."""

    reference: str
    call: Callable[..., Any]
    arguments: dict[str, Any]
    columns: Sequence[str]
    seal: Seal = field(default_factory=of_this_process, repr=False, compare=False)

    def pandas(self, parts: Iterator[Any]) -> Iterator[Any]:
        import pandas as pd

        for part in parts:
            made = self.call(part, **self.arguments)
            if not isinstance(made, pd.DataFrame):
                raise self._wrong(made, "pandas.DataFrame")
            self._require(list(made.columns))
            yield made[list(self.columns)]

    def arrow(self, parts: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for part in parts:
            made = self.call(pa.Table.from_batches([part]), **self.arguments)
            if not isinstance(made, pa.Table):
                raise self._wrong(made, "pyarrow.Table")
            self._require(made.column_names)
            yield from made.select(list(self.columns)).to_batches()

    def _wrong(self, made: object, expected: str) -> Exception:
        what = "nothing" if made is None else f"a {type(made).__name__}"
        return self.seal.crossing(
            TransformError(
                f"transform `{self.reference}` returned {what}; it has to return a {expected}",
                hint="is a `return` missing?" if made is None else "",
            )
        )

    def _require(self, found: Sequence[str]) -> None:
        missing = [name for name in self.columns if name not in found]
        if missing:
            raise self.seal.crossing(
                TransformError(
                    f"transform `{self.reference}` returned no column `{missing[0]}`, which its "
                    f"`returns` names (it has {', '.join(map(str, found))})",
                    hint="return it, or take it out of `returns`",
                )
            )
