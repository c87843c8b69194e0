"""Is the last write of each Delta table the one that the ledger expects?

The checks use the table's log: its table id, the ledger record of the last write, and whether a
RESTORE removed writes. `table_proof` checks the commit of each micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote

from eos.delta.table_check import require_complete
from eos.delta.table_status import TableStatus, table_status
from eos.errors import PromiseBrokenError
from eos.finding import Finding, FindingKind, Witness
from eos.ledger.record import LedgerRecord, TableState
from eos.plan.delta_sink import Table
from eos.verify.table_store import TableStore


@dataclass(frozen=True, slots=True)
class Sinks:
    """The pipeline's Delta tables.

    `app` has, by table, the application name under which the pipeline's writes are recorded. `conf`
    is the profile's `spark.conf`, with the access to buckets."""

    tables: Sequence[Table]
    app: Mapping[str, str]
    pipeline: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)

    def readable(self) -> dict[str, TableStore]:
        """Return the tables that can be read without Spark, by name."""
        stores = {table.name: TableStore.of(table, self.conf) for table in self.tables}
        return {name: store for name, store in stores.items() if store is not None}

    def others(self) -> dict[str, str]:
        """Return the paths of the other tables, by name."""
        readable = self.readable()
        return {each.name: each.path for each in self.tables if each.name not in readable}


@dataclass(frozen=True, slots=True)
class TableWrite:
    """A Delta table's id, and the ledger offset of the pipeline's last write to it; -1 for none.

    `version` is the table's newest version when it was read. History is checked up to it.
    """

    id: str
    at: int
    version: int | None = None


def read_tables(sinks: Sinks) -> Mapping[str, TableWrite | str]:
    """Return each table's last write, or the reason why it can't be read.

    Call this between two reads of the ledger.
    """
    stores = sinks.readable()
    return {name: _read_table(store, sinks.app[name]) for name, store in stores.items()}


def _read_table(store: TableStore, app: str) -> TableWrite | str:
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        if not store.has_log():
            return "is gone"
        found = store.newest()
        version = found.transaction_version(app)
        return TableWrite(
            str(found.metadata().id), -1 if version is None else int(version), found.version()
        )
    except (TableNotFoundError, DeltaError, OSError) as error:
        return f"can't be read ({str(error).splitlines()[0][:200]})"


def files_in_use(store: TableStore, paths: Sequence[str]) -> set[str] | str:
    """Return which data files the table's newest version uses, or why that can't be read.

    `paths` are as in the log. The library may decode them."""
    if not paths:
        return set()
    import pyarrow as pa
    import pyarrow.compute as pc
    from deltalake.exceptions import DeltaError

    try:
        used = pa.table(store.newest().get_add_actions())["path"]
    except (DeltaError, OSError) as error:
        return f"the table can't be read ({str(error).splitlines()[0][:200]})"
    wanted = {unquote(path): path for path in paths}
    names = pa.array([*wanted, *wanted.values()], used.type)
    found = used.filter(pc.is_in(used, value_set=names)).to_pylist()
    return {wanted.get(name, name) for name in found}


def check_tables(
    sinks: Sinks,
    found: Mapping[str, TableWrite | str],
    owed: Mapping[str, int],
    low: LedgerRecord,
    high: LedgerRecord,
) -> Iterator[Finding]:
    """Yield a finding for each table whose last write is not the one that the ledger expects.

    `owed` has, by table, the ledger offset of a micro-batch that no later record confirms. Records
    other than attempts may follow it: of a recovery, or of a stop that could not wait for Delta."""
    for name, store in sinks.readable().items():
        table, known, now = store.table, low.position.tables.get(name), found[name]
        if known is None:
            continue  # the table is declared, but no run has used it yet
        place = f"the table {table.name} ({table.path})"
        if isinstance(now, str):
            yield Finding(
                "delta_unreadable", f"{place} {now}", witness=low.witness, kind=FindingKind.GONE
            )
        elif now.id != known.id:
            message = f"{place} was replaced: its id is {now.id}, but {known.id} in the ledger"
            yield Finding("delta_replaced", message, witness=low.witness)
        elif lost := _lost(sinks, store, known, now):
            yield Finding(f"delta_{lost.case}", lost.words, witness=low.witness)
        elif low.offset != high.offset:  # the pipeline runs and writes
            if not known.at <= now.at <= high.offset:
                yield _disagrees(place, now.at, known.at, high.witness)
        else:
            is_attempt = low.kind == "attempt"
            newest = low.offset if is_attempt else owed.get(name, -1)
            status = table_status(known.at, now.at, newest)
            if status is TableStatus.OWED:
                message = f"{place} lacks the ledger's record {newest} (it has {now.at}): the "
                message += "running or the next run writes it"
                yield Finding("delta_pending", message, witness=low.witness, kind=FindingKind.GONE)
            elif status is not TableStatus.COMPLETE:
                yield _disagrees(place, now.at, known.at, low.witness)


class _Lost(NamedTuple):
    case: str
    words: str


def _lost(sinks: Sinks, store: TableStore, known: TableState, now: TableWrite) -> _Lost | None:
    """Return why the next startup would refuse the table's history: committed rows were removed, or
    log entries that would show it are gone. Return None if it would not.

    A table whose newest write has a lower ledger offset than expected is left to `check_tables`.
    """
    if now.version is None or now.at < known.at:
        return None
    log = store.log(sinks.app[store.table.name])
    try:
        require_complete(sinks.pipeline, store.table, log, known, now.version)
    except PromiseBrokenError as error:
        is_unknown = error.code == "table_history"
        return _Lost("history" if is_unknown else "restored", error.message)
    return None


def _disagrees(place: str, at: int, known: int, witness: Witness) -> Finding:
    expected = witness.ledger_offset if witness.kind == "attempt" else known
    message = f"{place} has the ledger's record {at}, but {expected} is expected"
    return Finding("delta_version", message, witness=witness)
