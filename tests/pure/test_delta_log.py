"""A table's commits as delta-rs writes them, and what stops for them."""

from __future__ import annotations

import hashlib
import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake

from eos.checkpoint.files import LocalFiles
from eos.delta.history import Commit
from eos.delta.log import DeltaLog
from eos.delta.table_check import require_complete
from eos.errors import PromiseBrokenError
from eos.ledger.record import RowCounts, TableState
from eos.plan.delta_sink import Table

ROWS = 10


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table("all", str(tmp_path / "all"))


def write(table: Table, at: int | None, rows: int = ROWS) -> None:
    done = CommitProperties(app_transactions=[Transaction("app", at)] if at is not None else [])
    made = pa.table({"n": pa.array(range(rows), pa.int64())})
    write_deltalake(table.path, made, mode="append", commit_properties=done)


def rows(table: Table) -> int:
    made = QueryBuilder().register("t", DeltaTable(table.path)).execute("SELECT n FROM t")
    return pa.table(made.read_all()).num_rows


def check(table: Table, known: TableState) -> str:
    """What stops, or nothing."""
    log = DeltaLog(LocalFiles(), table.path, "app")
    now = log.newest()
    assert now is not None
    try:
        require_complete("orders", table, log, known, now)
    except PromiseBrokenError as error:
        return f"{error.code}: {error.message}; {error.hint}"
    return ""


def test_a_restore_behind_the_newest_write_stops(table: Table) -> None:
    for at in (1, 3, 5):
        write(table, at)
    assert check(table, TableState("id", 5, 2)) == ""
    DeltaTable(table.path).restore(1)
    assert DeltaTable(table.path).transaction_version("app") == 5  # as if nothing had happened
    told = check(table, TableState("id", 5, 2))
    assert told.startswith("table_behind: orders: the table all (")
    assert "was restored to version 1 by the RESTORE in its version 3" in told
    assert f"RESTORE TABLE delta.`{table.path}` TO VERSION AS OF 2" in told
    assert "`eos recover orders --accept-table all`" in told
    assert check(table, TableState("id", 5)) == told  # a record of a release that kept no version
    DeltaTable(table.path).restore(2)
    assert check(table, TableState("id", 5, 2)) == ""


def test_a_restore_to_a_time_is_known_by_its_files(table: Table) -> None:
    for at in (1, 3):
        write(table, at)
    write(table, None)
    write(table, None)
    first = datetime.now(timezone.utc) - timedelta(hours=1)
    for version in range(4):  # a commit's time is that of its file
        second = (first + timedelta(seconds=version)).timestamp()
        os.utime(Path(table.path) / "_delta_log" / f"{version:020d}.json", (second, second))
    DeltaTable(table.path).restore(first + timedelta(seconds=1.5))
    assert rows(table) == 2 * ROWS
    assert check(table, TableState("id", 3, 1)) == ""
    DeltaTable(table.path).restore(first + timedelta(seconds=0.5))
    assert rows(table) == ROWS
    assert "was restored to an older version" in check(table, TableState("id", 3, 1))


def test_what_others_do_to_the_rows_passes(table: Table) -> None:
    for at in (1, 3):
        write(table, at)
    found = DeltaTable(table.path)
    found.optimize.compact()
    found.delete("n = 3")
    found.update(updates={"n": "n + 1"}, predicate="n > 5")
    merged = pa.table({"n": pa.array([1, 99], pa.int64())})
    found.merge(merged, "t.n = s.n", "s", "t").when_not_matched_insert_all().execute()
    found.vacuum(0, dry_run=False, enforce_retention_duration=False)
    write(table, None)
    found = DeltaTable(table.path)
    assert {"OPTIMIZE", "DELETE", "UPDATE", "MERGE"} <= {
        each["operation"] for each in found.history()
    }
    assert check(table, TableState("id", 3, 1)) == ""
    found.restore(found.version() - 1)
    assert check(table, TableState("id", 3, 1)) == ""


def test_history_that_is_missing_stops(table: Table) -> None:
    for at in (1, None, None, 3):
        write(table, at)
    log = Path(table.path) / "_delta_log"
    (log / f"{1:020d}.json").unlink()
    told = check(table, TableState("id", 1, 0))
    assert told.startswith("table_history: ")
    assert "can't be read from version 0 to 3, since the commit of version 1 is missing" in told
    assert "`eos recover orders --accept-table all`" in told
    assert "back from version 3" in check(table, TableState("id", 1))
    assert check(table, TableState("id", 3, 1)) == ""  # it is not needed any more
    (log / f"{2:020d}.json").write_text('{"commitInfo":')
    assert "version 2 is missing or damaged" in check(table, TableState("id", 3, 1))


def test_a_version_that_is_lower_than_the_kept_one_stops(table: Table) -> None:
    write(table, 1)
    told = check(table, TableState("id", 1, 4))
    assert told.startswith("table_behind: ")
    assert "is at Delta's version 0, but it was at 4 before" in told


def test_the_newest_write_has_the_row_counts_of_its_commit(table: Table) -> None:
    for at in (1, 3, None):
        write(table, at)
    log = DeltaLog(LocalFiles(), table.path, "app")

    def last_since(base: int, **about: object) -> Commit | TableState:
        file = Path(table.path) / "_delta_log" / f"{1:020d}.json"
        lines = [{"txn": {"appId": "app", "version": 3}}, {"commitInfo": about}]
        file.write_text("\n".join(map(json.dumps, lines)))
        known = TableState("id", 1, base, RowCounts(7), "ab")
        return require_complete("orders", table, log, known, 2)

    names = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
    merged = dict(zip(names, "123", strict=True))
    last = last_since(0, operation="WRITE", operationMetrics={"numOutputRows": "9"})
    assert last.rows == (9, 0, 0)
    raw = (Path(table.path) / "_delta_log" / f"{1:020d}.json").read_bytes()
    assert last.sha256 == hashlib.sha256(raw).hexdigest()
    assert last_since(0, operation="MERGE", operationMetrics=merged).rows == (1, 2, 3)
    assert last_since(0, operation="MERGE", operationMetrics={names[0]: "1"}).rows is None
    # No ledger record could have this number.
    too_many = {"numOutputRows": str(2**63)}
    assert last_since(0, operation="WRITE", operationMetrics=too_many).rows is None
    last = last_since(1, operation="WRITE")  # nothing was written since
    assert (last.rows, last.sha256) == ((7, 0, 0), "ab")


def test_a_long_commit_is_read_line_by_line(table: Table) -> None:
    write(table, 1)
    log = Path(table.path) / "_delta_log"
    vector = {"storageType": "u", "pathOrInlineDv": "ab", "offset": 1}
    lines = [json.dumps({"add": {"path": f"p{n}", "deletionVector": vector}}) for n in range(9)]
    lines.append(json.dumps({"txn": {"appId": "another", "version": 9}}))
    (log / f"{1:020d}.json").write_text("\n".join(lines))
    found = DeltaLog(LocalFiles(), table.path, "app")
    assert (found.commit(1).wrote, found.commit(1).changes_rows) == (None, True)
    assert found.change(1).added == {(f"p{n}", "u/ab/1") for n in range(9)}
    assert found.commit(0).wrote == 1
