"""The lookup tables that a pipeline's steps may join."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from eos.location import resolved

if TYPE_CHECKING:
    from eos.config.lookup import StaticTable


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
