"""The lookup tables that a pipeline's steps may join."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from eos.location import resolved

if TYPE_CHECKING:
    from eos.config.lookup import StaticTable
    from eos.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class LookupTable:
    """A lookup table of the pipeline file.

    `version` is the version of a Delta table to read, or None for the newest. In a test, `rows` is
    a JSON list of rows that are used in place of the table.
    """

    name: str
    kind: Literal["delta", "parquet", "csv", "rows"]
    path: str
    columns: str
    header: bool = True
    version: int | None = None
    rows: str = "[]"


def lookups(tables: Mapping[str, StaticTable], root: Path) -> tuple[LookupTable, ...]:
    """Return the declared lookup tables. A relative path begins at the folder `root`."""
    return tuple(
        LookupTable(name, each.kind, resolved(each.path, root), each.columns, each.header)
        for name, each in tables.items()
    )


def with_rows(planned: Plan, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Plan:
    """Return the plan with a test's rows in place of its lookup tables.

    `rows` has them by table name. A table that is not in it is empty."""
    found = tuple(
        replace(each, kind="rows", rows=json.dumps(list(rows.get(each.name, ())), default=str))
        for each in planned.lookups
    )
    return replace(planned, lookups=found)
