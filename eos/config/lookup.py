"""The keys of a table in `tables`, which steps may join. Tables are only read, not streamed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from eos.config import ddl
from eos.config.base import Identifier, Strict, require_unique
from eos.sql_text import INPUT


class StaticTable(Strict):
    """A table to join: its location by format, and the columns to read with their types.

    `header`: whether the first line of a CSV file has the names of columns.
    """

    delta: str | None = Field(default=None, min_length=1)
    parquet: str | None = Field(default=None, min_length=1)
    csv: str | None = Field(default=None, min_length=1)
    columns: Annotated[str, Field(min_length=1), AfterValidator(ddl.checked)]
    header: bool = True

    @model_validator(mode="after")
    def _is_one_of_three(self) -> StaticTable:
        if [self.delta, self.parquet, self.csv].count(None) != 2:
            raise ValueError("expected a table with one of `delta`, `parquet` and `csv`")
        if not self.header and self.csv is None:
            raise ValueError("expected `header` only with `csv`")
        return self

    @property
    def kind(self) -> Literal["delta", "parquet", "csv"]:
        if self.delta is not None:
            return "delta"
        return "csv" if self.parquet is None else "parquet"

    @property
    def path(self) -> str:
        found = self.delta or self.parquet or self.csv
        assert found is not None, "a table has one of the three"
        return found


def _require_names(tables: dict[str, StaticTable]) -> dict[str, StaticTable]:
    lower = [name.lower() for name in tables]
    require_unique("table names", lower)
    if INPUT in lower:
        raise ValueError(f"expected a name other than `{INPUT}`, which is the input of each step")
    return tables


StaticTables = Annotated[dict[Identifier, StaticTable], AfterValidator(_require_names)]
