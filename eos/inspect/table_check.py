"""Would a Delta table stop the next startup? Checks the table's log without Spark."""

from __future__ import annotations

from eos.checkpoint.files import LocalFiles
from eos.delta import table_check
from eos.delta.log import DeltaLog
from eos.inspect.snapshot import Snapshot, soon
from eos.location import local_path
from eos.plan.delta_sink import Table, app_of


def require_table(view: Snapshot, table: Table) -> None:
    """Raise the error that would stop the next startup, as far as the table's log shows it.

    Only tables on this machine are checked. A startup also compares the table's id and columns,
    which needs Spark.
    """
    known = view.position.tables.get(table.name)
    if known is None or not view.has_ledger or local_path(table.path) is None:
        return
    topic = view.ledger.partition.topic
    ledger_id = view.wire.topics([topic], soon())[topic].topic_id
    app = app_of(view.planned.names, ledger_id, table.name)
    log = DeltaLog(LocalFiles(), table.path, app)
    now = log.newest()
    if now is None:
        raise table_check.replaced(view.name, table, known, None)
    table_check.require_whole(view.name, table, log, known, now)
