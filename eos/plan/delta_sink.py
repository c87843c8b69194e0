"""The Delta tables that a plan writes, and which rows and columns it writes to each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eos.location import resolved
from eos.plan.names import Names

if TYPE_CHECKING:
    from eos.config.delta_sink import DeltaSink


@dataclass(frozen=True, slots=True)
class Table:
    """A Delta table that the pipeline writes."""

    name: str  # its name in the ledger
    path: str
    keys: tuple[str, ...] = ()  # rows are merged by these columns; empty: rows are appended
    delete_when: str | None = None  # rows for which it is true delete the row of their keys
    columns: tuple[str, ...] = ()  # empty: all columns that are not Kafka's
    where: str | None = None
    partition_by: tuple[str, ...] = ()
    evolves: bool = False


def tables(sinks: Iterable[DeltaSink], root: Path) -> tuple[Table, ...]:
    """Return the tables of the Delta sinks. A relative path begins at the folder `root`."""
    return tuple(
        Table(
            name=sink.table,
            path=resolved(sink.path, root),
            keys=sink.keys,
            delete_when=sink.delete_when,
            columns=sink.columns,
            where=sink.where,
            partition_by=sink.partition_by,
            evolves=sink.evolve,
        )
        for sink in sinks
    )


def app_of(names: Names, ledger_id: str, table: str) -> str:
    """Return the application id under which the pipeline writes in a Delta table's log.

    Delta skips a write whose version is not newer than the last one of the same id. Versions are
    offsets of the ledger, and a recreated ledger counts from 0 again. So the id includes the
    ledger's topic id. A new checkpoint does not change the id.
    """
    return f"{names.transactional_id}/{ledger_id}/{table}"
