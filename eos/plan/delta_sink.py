"""Which Delta tables does a plan write, and what is written to them?"""

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
    """One Delta table of the sink."""

    name: str  # its name in the ledger
    path: str
    keys: tuple[str, ...] = ()  # rows are merged by these columns; empty: rows are appended
    columns: tuple[str, ...] = ()  # empty: all columns that are not Kafka's
    where: str | None = None
    partition_by: tuple[str, ...] = ()
    evolves: bool = False


def tables(sinks: Iterable[DeltaSink], root: Path) -> tuple[Table, ...]:
    """Return the declared tables. Relative plain paths begin at `root`."""
    return tuple(
        Table(
            name=sink.table,
            path=resolved(sink.path, root),
            keys=sink.keys,
            columns=sink.columns,
            where=sink.where,
            partition_by=sink.partition_by,
            evolves=sink.evolve,
        )
        for sink in sinks
    )


def app_of(names: Names, ledger_id: str, table: str) -> str:
    """Return the pipeline's application id in a table's log.

    It includes the ledger's topic id. A recreated ledger counts from 0 again, and Delta would skip
    its writes as already done under the same id. A new checkpoint does not change the id.
    """
    return f"{names.transactional_id}/{ledger_id}/{table}"
