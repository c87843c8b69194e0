"""Tables that the steps join, as values."""

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
    """`version`: of a Delta table, which one is read; None: the newest. `rows`: those of a test, as
    a JSON list, which then stand for the table."""

    name: str
    kind: Literal["delta", "parquet", "csv", "rows"]
    path: str
    columns: str
    header: bool = True
    version: int | None = None
    rows: str = "[]"


def lookups(tables: Mapping[str, StaticTable], root: Path) -> tuple[LookupTable, ...]:
    """`root` is where plain paths begin that are not absolute."""
    return tuple(
        LookupTable(name, each.kind, resolved(each.path, root), each.columns, each.header)
        for name, each in tables.items()
    )


def with_rows(planned: Plan, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Plan:
    """For a test of a pipeline file: nothing is read. A table that it does not name is empty."""
    found = tuple(
        replace(each, kind="rows", rows=json.dumps(list(rows.get(each.name, ())), default=str))
        for each in planned.lookups
    )
    return replace(planned, lookups=found)
