"""The Delta tables that a plan writes, and which rows and columns it writes to each."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eos.location import resolved
from eos.plan.names import Names

if TYPE_CHECKING:
    from eos.config.delta_sink import DeltaSink

# Set by the test kit: the folder for the tables of a run, so that no test writes a real table.
TEST_TABLES = "EOS_TEST_TABLES"


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
    """Return the tables of the Delta sinks. A relative path begins at the folder `root`.

    In a run of the test kit, all tables are in the folder that the kit names."""
    of_test = os.environ.get(TEST_TABLES)
    return tuple(
        Table(
            name=sink.table,
            path=str(Path(of_test, sink.table)) if of_test else resolved(sink.path, root),
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
