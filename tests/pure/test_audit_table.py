"""Rows from ledger records, and the Delta table: written once, by many, whatever became of it."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from support.errors import raises
from support.simulated_broker.wire import stored_at

from eos.audit import projection as projections
from eos.audit import reader as looking
from eos.audit import rows as made
from eos.audit import table as tables
from eos.audit.history import transactions
from eos.audit.projection import Projection
from eos.audit.table import KEPT_HOURS, OvertakenError, TransactionsTable
from eos.errors import PromiseBrokenError, UnavailableError
from eos.kafka.api import Identity, TopicPartition
from eos.ledger.decoder import decoded
from eos.ledger.receipt import Receipt
from eos.ledger.record import AttemptRecord, LedgerRecord, Position, encoded, stamped

OWNER = {"deployment": "here", "host": "h", "process": 7}
IN = [TopicPartition("in", 0), TopicPartition("in", 1)]


def record(
    offset: int, number: int = 1, failed: Sequence[dict] = (), targets: int = 2
) -> LedgerRecord:
    identity = Identity(9, offset)
    receipts = [Receipt("out", p, 5, 10, 14, 100, -3) for p in range(targets)]
    blob = encoded(
        "p",
        OWNER,
        "attempt",
        Position({IN[0]: 7, IN[1]: 4}, {"in": "id"}, "q", 3),
        AttemptRecord(number, identity, {IN[0]: 2, IN[1]: 4}, receipts, 1_000),
        failed=failed,
    )
    return decoded("p", "l", *stored_at(stamped(blob, identity), offset))


def table_of(*records: LedgerRecord) -> pa.Table:
    return made.table(made.rows("p", "l", "lid", records))


def test_a_row_for_each_target_partition():
    first, second = table_of(record(4)).to_pylist()
    assert (first["target_partition"], second["target_partition"]) == (0, 1)
    same = {"target_partition": 1}
    assert second == {**first, **same}
    assert first["outcome"] == "CompleteCommit"
    assert (first["ledger_offset"], first["ledger_id"]) == (4, "lid")
    assert first["sources"] == [{"topic": "in", "partition": 0, "start": 2, "end": 7}]
    assert (first["records_in"], first["records"], first["digest"]) == (5, 5, -3)
    assert (first["offsets_in"], first["records_read"], first["refused"]) == (5, None, None)
    assert (first["sequence_first"], first["sequence_last"]) == (0, 4)
    assert (first["producer_id"], first["epoch"], first["attempt"]) == (9, 4, 1)
    assert first["begun_at"].timestamp() == 1
    assert first["ended_at"] > first["begun_at"]


def test_visible_records_and_records_by_rule_are_told_once():
    said = AttemptRecord(
        1,
        Identity(9, 4),
        {IN[0]: 2},
        [Receipt("out", p, 5, 10, 14, 100, -3) for p in range(2)],
        refused={"paid": {"dead_letter": 2}},
        records_read=3,
    )
    position = Position({IN[0]: 7}, {"in": "id"}, "q", 3)
    blob = encoded("p", OWNER, "attempt", position, said)
    found = decoded("p", "l", *stored_at(stamped(blob, Identity(9, 4)), 4))
    first, second = table_of(found).to_pylist()
    assert (first["records_read"], second["records_read"], first["offsets_in"]) == (3, 3, 5)
    assert [json.loads(first["refused"]), second["refused"]] == [{"paid": {"dead_letter": 2}}, None]
    # A release before this one said it of pipelines with dedup only.
    older = replace(said, records_read=None, dedup={"verdicts": {"appended": 2, "gap": 1}})
    blob = encoded("p", OWNER, "attempt", position, older)
    found = decoded("p", "l", *stored_at(stamped(blob, Identity(9, 4)), 4))
    assert table_of(found).to_pylist()[0]["records_read"] == 3


def test_lag_and_the_steps_of_the_micro_batch_before_are_told_once():
    receipts = [Receipt("out", p, 5, 10, 14, 100, -3) for p in range(2)]
    steps = {"ledger": 3, "offsets": 2, "end": 9}
    measures = {"lag_ms": 1_500, "previous_ms": steps}
    said = AttemptRecord(1, Identity(9, 4), {IN[0]: 2}, receipts, **measures)
    blob = encoded("p", OWNER, "attempt", Position({IN[0]: 7}, {"in": "id"}, "q", 3), said)
    found = table_of(decoded("p", "l", *stored_at(stamped(blob, Identity(9, 4)), 4))).to_pylist()
    assert [row["lag_ms"] for row in found] == [1_500, 1_500]
    assert [json.loads(found[0]["previous_ms"]), found[1]["previous_ms"]] == [steps, None]
    (transaction,) = transactions(found)
    assert (transaction.lag_ms, transaction.previous_ms) == (1_500, steps)
    # A record or a table of an older release has neither.
    (older,) = transactions(table_of(record(4)).to_pylist())
    assert (older.lag_ms, older.previous_ms) == (None, {})
    for row in found:
        del row["lag_ms"], row["previous_ms"]
    (older,) = transactions(found)
    assert (older.lag_ms, older.previous_ms) == (None, {})


def test_a_transaction_without_a_target_has_a_row_with_all_of_the_position():
    blob = encoded("p", OWNER, "start", Position({IN[0]: 7, IN[1]: 0}, {}, is_reset=True))
    (row,) = table_of(decoded("p", "l", *stored_at(stamped(blob, Identity(1, 2)), 0))).to_pylist()
    assert (row["kind"], row["target_topic"], row["records_in"]) == ("start", None, 0)
    assert row["is_reset"]
    assert [(each["partition"], each["start"], each["end"]) for each in row["sources"]] == [
        (0, 7, 7),
        (1, 0, 0),
    ]


def test_aborted_attempts_stand_before_the_record_that_tells_of_them():
    failed = {
        "number": 1,
        "batch_id": 3,
        "query_id": "q",
        "producer_id": 9,
        "epoch": 3,
        "reason": "a task died",
        "starts": {"in": {"0": 2}},
        "ends": {"in": {"0": 7}},
        "at_ms": 5,
    }
    aborted, *committed = table_of(record(4, 2, [failed], targets=1)).to_pylist()
    assert [row["attempt"] for row in committed] == [2]
    assert (aborted["outcome"], aborted["reason"]) == ("CompleteAbort", "a task died")
    assert (aborted["epoch"], aborted["attempt"], aborted["target_topic"]) == (3, 1, None)
    assert aborted["records_in"] == 5
    assert aborted["ledger_offset"] == 4


def offsets(table: TransactionsTable) -> list[int]:
    found = table.query("SELECT ledger_offset FROM transactions ORDER BY 1")
    return [row["ledger_offset"] for row in found]


def test_rows_and_what_is_known_are_one_commit(tmp_path):
    table = TransactionsTable(tmp_path / "t")
    assert table.known("a") == -1
    table.append(table_of(record(4)), "a", 4)
    assert table.known("a") == 4
    assert TransactionsTable(tmp_path / "t").known("a") == 4
    assert table.known("b") == -1
    assert offsets(table) == [4, 4]


def test_it_is_read_in_order_a_stretch_of_a_ledger_at_a_time(tmp_path, monkeypatch):
    table = TransactionsTable(tmp_path / "t")
    # Another ledger first, whose numbers are higher; then one that was written in two parts.
    for day, name, numbers in ((1, "old", (8, 2)), (2, "new", (6, 4)), (3, "new", (9, 0))):
        given = made.rows("p", "l", name, [record(number) for number in numbers])
        at = {"ended_at": datetime(2026, 11, day, tzinfo=timezone.utc)}
        table.known("p")
        table.append(made.table([{**row, **at} for row in given]), "p", day)
    wanted = [("old", 2), ("old", 8), ("new", 0), ("new", 4), ("new", 6), ("new", 9)]
    asked: list[str] = []
    plain = table.stream
    monkeypatch.setattr(table, "stream", lambda sql: [asked.append(sql), *plain(sql)][1:])
    for stretch in (20_000, 3, 1):
        monkeypatch.setattr(looking, "_SORTED_MAX", stretch)
        asked.clear()
        found = list(looking.walk(table, "p", "l"))
        assert [(each.ledger_id, each.ledger_offset) for each in found] == wanted
        assert [len(each.targets) for each in found] == [2] * len(wanted)
        # Of offsets 2 to 8 and 0 to 9, and one that asks for the ends.
        assert len(asked) == 1 + -(-7 // stretch) + -(-10 // stretch)
    asked.clear()
    found = list(looking.walk(table, "p", "l", datetime(2026, 11, 2, tzinfo=timezone.utc)))
    assert [(each.ledger_id, each.ledger_offset) for each in found] == wanted[2:]
    assert len(asked) == 1 + 10  # nothing of the old ledger is asked for
    found = list(looking.walk(table, "p", "l", records_max=2))
    assert [(each.ledger_id, each.ledger_offset) for each in found] == wanted[-2:]
    assert list(looking.walk(table, "p", "another")) == []


def test_of_two_that_looked_at_the_same_time_one_writes(tmp_path):
    """Also if the other one would write less than is known, which the library accepts."""
    one, other = TransactionsTable(tmp_path / "t"), TransactionsTable(tmp_path / "t")
    assert (one.known("a"), other.known("a")) == (-1, -1)
    one.append(table_of(record(4), record(6)), "a", 6)
    with pytest.raises(OvertakenError):
        other.append(table_of(record(4)), "a", 4)
    assert other.known("a") == 6
    assert offsets(other) == [4, 4, 6, 6]


def test_a_commit_by_another_process_is_seen(tmp_path, monkeypatch):
    """By the log's next file, or once the snapshot is old: then that file may be deleted."""
    table, other = TransactionsTable(tmp_path / "t"), TransactionsTable(tmp_path / "t")
    before = -1
    for offset in (4, 6, 8):
        assert table.known("a") == other.known("a") == before
        other.append(table_of(record(offset)), "a", offset)
        before = offset
    found = DeltaTable(tmp_path / "t")
    found.create_checkpoint()
    (tmp_path / "t" / "_delta_log" / f"{found.version():020}.json").unlink()
    monkeypatch.setattr(tables, "_SNAPSHOT_S", 0.0)
    assert table.known("a") == 8


def test_many_pipelines_make_the_table_and_write_at_once(tmp_path):
    failed: list[BaseException] = []
    all_are_there = threading.Barrier(4)

    def writes(app: str) -> None:
        try:
            table = TransactionsTable(tmp_path / "t")
            all_are_there.wait(300)
            for offset in range(4):
                assert table.known(app) == offset - 1
                table.append(table_of(record(offset, targets=1)), app, offset)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=writes, args=(f"app{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert offsets(TransactionsTable(tmp_path / "t")) == sorted([*range(4)] * 4)


def test_a_table_that_is_deleted_is_made_anew(tmp_path):
    table = TransactionsTable(tmp_path / "t")
    table.known("a")
    table.append(table_of(record(4)), "a", 4)
    shutil.rmtree(tmp_path / "t")
    assert table.known("a") == -1
    table.append(table_of(record(4)), "a", 4)
    assert offsets(table) == [4, 4]
    table.known("a")
    shutil.rmtree(tmp_path / "t")  # between the look and the commit
    with raises("audit_table_unavailable", UnavailableError):
        table.append(table_of(record(6)), "a", 6)
    assert table.known("a") == -1


def test_what_is_no_table_is_told(tmp_path):
    (tmp_path / "t" / "_delta_log").mkdir(parents=True)
    (tmp_path / "t" / "_delta_log" / f"{3:020}.json").write_text('{"commitInfo": {}}\n')
    with raises("audit_table_unavailable", UnavailableError) as caught:
        TransactionsTable(tmp_path / "t").known("a")
    assert str(tmp_path / "t") in caught.value.message
    (tmp_path / "file").write_text("")
    with pytest.raises(UnavailableError):
        TransactionsTable(tmp_path / "file").known("a")


@pytest.mark.parametrize(("value", "is_known"), [("1", True), ("2", False), ("x", False)])
def test_a_format_of_a_newer_release_is_refused(tmp_path, value, is_known):
    """By a process that opens the table, and by one that has it open."""
    table = TransactionsTable(tmp_path / "t")
    table.known("a")
    table.append(table_of(record(4)), "a", 4)
    DeltaTable(tmp_path / "t").alter.set_table_properties(
        {"eos.format": value}, raise_if_not_exists=False
    )
    for each in (table, TransactionsTable(tmp_path / "t")):
        if is_known:
            assert each.known("a") == 4
            continue
        for use in (lambda: each.known("a"), lambda: offsets(each), lambda: each.file_count("p")):  # noqa: B023
            with raises("table_newer", PromiseBrokenError) as caught:
                use()
            assert f"has format '{value}'" in caught.value.message
        assert "creates the table again from the ledger" in caught.value.hint


def test_columns_are_only_ever_added(tmp_path):
    """A table of an older release gets ours; one of a newer release keeps its own."""
    older = pa.schema([field for field in made.SCHEMA if field.name not in {"digest", "bytes"}])
    newer = older.append(pa.field("novel", pa.string()))
    DeltaTable.create(tmp_path / "t", newer, partition_by=["pipeline"])
    table = TransactionsTable(tmp_path / "t")
    assert table.known("a") == -1
    table.append(table_of(record(4, targets=1)), "a", 4)
    (row,) = table.query("SELECT novel, digest FROM transactions")
    assert dict(row) == {"novel": None, "digest": -3}


def test_compaction_keeps_each_row_and_what_is_known(tmp_path):
    table = TransactionsTable(tmp_path / "t")
    for offset in range(12):
        table.known("a")
        table.append(table_of(record(offset, targets=1)), "a", offset)
    assert table.file_count("p") == 12
    reader = DeltaTable(tmp_path / "t")  # looked before
    Projection(table, None, "p", "l").maintain(13)
    assert table.file_count("p") == 12, "not yet"
    Projection(table, None, "p", "l").maintain(12)
    assert table.file_count("p") == 1
    assert offsets(table) == [*range(12)]
    assert table.known("a") == 11
    older = QueryBuilder().register("t", reader).execute("SELECT digest FROM t").read_all()
    assert older.num_rows == 12, "an older snapshot is still readable"


def test_files_that_are_large_enough_wait_until_there_are_many(tmp_path, monkeypatch):
    """Here every file is large enough at once."""
    monkeypatch.setattr(projections, "FILE_BYTES", 1)
    table = TransactionsTable(tmp_path / "t")
    counts = []
    for offset in range(12):
        table.known("a")
        table.append(table_of(record(offset, targets=1)), "a", offset)
        Projection(table, None, "p", "l").maintain(6)
        counts.append(table.file_count("p"))
    assert counts == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2]
    assert offsets(table) == [*range(12)]


def test_what_nobody_has_goes_and_what_somebody_may_commit_stays(tmp_path):
    """A checkpoint forgets which files are gone, and who was killed never told."""
    table = TransactionsTable(tmp_path / "t")
    for number in range(3):
        table.known("app")
        table.append(table_of(record(number)), "app", number)
    folder = tmp_path / "t" / "pipeline=p"
    forgotten, begun = folder / "part-1-forgotten.parquet", folder / "part-2-begun.parquet"
    for file in (forgotten, begun):
        file.write_bytes(b"x")
    hours = (KEPT_HOURS * 3600 + 60) * 1_000_000_000
    for file in folder.iterdir():  # all but one are older than any snapshot that is in use
        if file != begun:
            at = file.stat().st_mtime_ns - hours
            os.utime(file, ns=(at, at))
    assert table.clean() == 1
    assert not forgotten.exists()
    assert begun.exists()
    assert len(table.query("SELECT * FROM transactions")) == 3 * 2


def test_what_was_compacted_a_moment_ago_stays_however_old_it_is(tmp_path):
    """Somebody reads the snapshot before."""
    table = TransactionsTable(tmp_path / "t")
    for number in range(3):
        table.known("app")
        table.append(table_of(record(number)), "app", number)
    for file in (tmp_path / "t" / "pipeline=p").iterdir():
        at = file.stat().st_mtime_ns - 3 * KEPT_HOURS * 3600 * 1_000_000_000
        os.utime(file, ns=(at, at))
    reader = DeltaTable(tmp_path / "t")
    table.compact("p")
    assert table.file_count("p") == 1
    for _ in range(2):  # the second time behind a checkpoint
        assert table.clean() == 0
        older = QueryBuilder().register("t", reader).execute("SELECT digest FROM t").read_all()
        assert older.num_rows == 3 * 2
