"""Delta tables of a plan: what is written to them, as values."""

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
    name: str  # the ledger's word for it
    path: str
    keys: tuple[str, ...] = ()  # of a merge; none: rows are appended
    columns: tuple[str, ...] = ()  # none: all that are not Kafka's
    where: str | None = None
    partition_by: tuple[str, ...] = ()
    evolves: bool = False


def tables(sinks: Iterable[DeltaSink], root: Path) -> tuple[Table, ...]:
    """`root` is where plain paths begin that are not absolute."""
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
    """By which a table's log knows the pipeline. A ledger that was made anew counts from 0 again,
    so it is another application; a new checkpoint is not."""
    return f"{names.transactional_id}/{ledger_id}/{table}"
