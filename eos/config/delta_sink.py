"""The keys of a Delta sink: a table that a pipeline writes in addition to its topics."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from eos.config.base import Condition, OneOrMany, Strict, one_as_list, require_unique

# This name identifies the table in its Delta log and in the ledger, which a startup compares.
NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$"
Column = Annotated[str, Field(min_length=1)]


class DeltaSink(Strict):
    """A Delta table that a pipeline writes.

    `path` is a URI, or a path relative to the folder that contains pipelines/. The ledger knows the
    table by `name`: keep it when the path changes. `columns` defaults to all columns except Kafka's
    own. With `mode: merge`, a row for which `delete_when` is true deletes the row of its keys:
    `value IS NULL` is true for a tombstone.
    """

    path: str = Field(min_length=1)
    name: Annotated[str, Field(pattern=NAME_PATTERN)] | None = None
    mode: Literal["append", "merge"] = "append"
    keys: tuple[Column, ...] = ()
    delete_when: Condition | None = None
    columns: tuple[Column, ...] = ()
    where: Condition | None = None
    partition_by: tuple[Column, ...] = ()
    evolve: bool = False

    @model_validator(mode="after")
    def _is_whole(self) -> DeltaSink:
        if (self.mode == "merge") != bool(self.keys):
            raise ValueError("expected `keys` with `mode: merge`, and only with it")
        if self.delete_when is not None and self.mode != "merge":
            raise ValueError("expected `delete_when` only with `mode: merge`")
        listed = {name.lower() for name in self.columns}
        lacking = [name for name in (*self.keys, *self.partition_by) if name.lower() not in listed]
        if self.columns and lacking:
            raise ValueError(
                f"expected `{lacking[0]}` in `columns`: it is in `keys` or `partition_by`"
            )
        if len(listed) != len(self.columns):
            raise ValueError("expected unique names in `columns`")
        if self.name is None and not re.match(NAME_PATTERN, self._last_part):
            raise ValueError("expected `name`: the last part of the path is not a valid table name")
        return self

    @property
    def _last_part(self) -> str:
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def table(self) -> str:
        """Return the table's name in the ledger."""
        return self.name or self._last_part


def tables_named_once(sinks: tuple[DeltaSink, ...]) -> tuple[DeltaSink, ...]:
    require_unique("table names", (sink.table.lower() for sink in sinks))
    require_unique("table paths", (sink.path.rstrip("/") for sink in sinks))
    return sinks


DeltaSinks = Annotated[
    tuple[DeltaSink, ...],
    AfterValidator(tables_named_once),
    BeforeValidator(one_as_list),
    OneOrMany,
]
