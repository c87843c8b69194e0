"""Which Delta tables does `eos recover --restore-tables` restore, and to which versions?

All tables are planned before the first one changes. The steps after that are in `recover/apply.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eos.delta.restore import RestorePlanner, TableRestore
from eos.errors import UsageError
from eos.inspect.snapshot import Snapshot
from eos.ledger.record import TableState
from eos.plan.delta_sink import Table, app_of


def plan_restores(view: Snapshot, known: Mapping[str, TableState]) -> Sequence[TableRestore]:
    """Return the restore of each table to its state in `known`. Change nothing.

    Raise UsageError if one of the tables can't be restored without a loss.
    """
    if not view.planned.tables:
        raise UsageError(
            "restore_without_tables",
            f"{view.name}: --restore-tables: the pipeline has no Delta table",
            hint="leave that option out",
        )
    assert view.last is not None, "a rewind has a ledger record"
    # The mark is the offset of the transaction marker after the last record. No attempt has that
    # offset, it is above all that were written to the tables, and a repeated command computes it
    # again.
    mark = view.last.offset + 1
    newest = view.newest_attempt()
    planners = [_planner(view, table, known.get(table.name)) for table in view.planned.tables]
    at = -1 if newest is None else newest.offset
    return [each.plan(mark, at) for each in planners]


def _planner(view: Snapshot, table: Table, then: TableState | None) -> RestorePlanner:
    if then is None:
        raise UsageError(
            "table_restore_unknown",
            f"{view.name}: the table {table.name} ({table.path}) can't be restored: the ledger has "
            "no version of it at that position",
            hint="nothing is changed. Was it added to the pipeline, recreated or accepted by "
            "--accept-table after that record? Rewind to a later record, or without "
            "--restore-tables, and delete the rows that the table gets a second time",
            table=table.name,
        )
    app = app_of(view.planned.names, view.ledger_id, table.name)
    return RestorePlanner(view.name, table, app, then)
