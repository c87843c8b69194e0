"""How does `eos recover` accept a Delta table as it is, although the ledger expects other rows?"""

from __future__ import annotations

from dataclasses import replace

from eos.delta.table_status import TableStatus, table_status
from eos.errors import UsageError
from eos.inspect.snapshot import Snapshot
from eos.ledger.record import TableState, nested
from eos.recover.change import LedgerChange, Verb, no_change


def accept_table(name: str) -> Verb:
    """Return the action of `eos recover --accept-table`: remove the table's state from the ledger.

    The next run then accepts the table as it is, or creates it.
    """

    def verb(view: Snapshot) -> LedgerChange:
        before, options = view.position, f"--accept-table {name}"
        known = before.tables.get(name)
        if known is None:
            _require_declared(view, name)
            return no_change(options, before, f"the ledger has no state of the table {name}")
        left = {each: at for each, at in before.tables.items() if each != name}
        remarks = [
            f"table {name}  record {known.at} of table id {known.id} -> as the next run finds it",
            *_missing(view, name, known),
        ]
        after = replace(before, tables=left)
        return LedgerChange(options, before, after, view.group(before.ends), remarks)

    return verb


def _missing(view: Snapshot, name: str, known: TableState) -> list[str]:
    """Return one sentence for the operator: which micro-batch the table `name` may lack, or that it
    lacks none. `known` is the table's state in the ledger.

    The table is not read. The ledger does not show whether the rows of the last attempt were
    written to it, so the sentence names that attempt if the table may lack it.
    """
    newest = view.newest_attempt()
    # Assume that the table's last write is the one in the ledger, since the table is not read.
    status = table_status(known.at, known.at, -1 if newest is None else newest.offset)
    if newest is None or newest.attempt is None or status is TableStatus.COMPLETE:
        return [f"nothing is missing: the table {name} had every micro-batch"]
    starts, ends = newest.attempt["starts"], nested(newest.position.ends)
    read = [
        f"{topic}-{partition} {start} to {int(ends[topic][partition]) - 1}"
        for topic, partitions in starts.items()
        for partition, start in partitions.items()
        if int(ends[topic][partition]) > int(start)
    ]
    missing = f"the rows of {', '.join(read)} are never written there"
    record = f"the ledger's record {newest.offset}, which the topics have"
    return [f"unless the table {name} has them already, {missing}: {record}"]


def _require_declared(view: Snapshot, name: str) -> None:
    declared = [table.name for table in view.planned.tables]
    if name not in declared:
        has = ", ".join(declared) or "none"
        raise UsageError(
            "table_not_declared",
            f"{view.name}: --accept-table {name}: the pipeline has no such table (it has {has})",
            hint="use the `name` of a table's sink in the pipeline file",
        )
