"""`eos verify` of Delta tables: one commit for each micro-batch, with the ledger's row counts.

The tables are real ones, written by delta-rs.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support.delta.proven_lake import ROWS, Lake, Proven, as_spark, store_of

from eos.finding import FindingKind
from eos.folder import LocalFolder
from eos.kafka.api import Identity, TopicPartition
from eos.ledger.record import RowCounts
from eos.plan.delta_sink import Table
from eos.verify import table_commits
from eos.verify.findings import Findings
from eos.verify.history import CommittedAttempt
from eos.verify.progress import Point, load
from eos.verify.table_commits import TableCommits
from eos.verify.table_proof import TableProof

APPENDED = {"commitInfo": {"operation": "WRITE", "operationMetrics": {"numOutputRows": f"{ROWS}"}}}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(Table("all", str(tmp_path / "all")))
    made.adopt()
    return made


def test_each_micro_batch_has_one_commit_with_the_rows_that_the_ledger_counts(lake: Lake) -> None:
    lake.run(3)
    lake.note("stop")
    done = lake.verify()
    assert done.cases == []
    found = done.proof.as_json()
    counts = {"micro_batches": 3, "commits": 3, "unchanged": 3, "files": 3, "inserted": 3 * ROWS}
    assert found == {**dict.fromkeys(found, 0), **counts}


def test_the_newest_micro_batch_is_confirmed_by_the_next_record(lake: Lake) -> None:
    lake.run(2)
    done = lake.verify()
    assert done.cases == []
    assert (done.proof.commits, done.proof.uncounted, done.proof.rows.inserted) == (2, 1, ROWS)
    owed = lake.note("attempt")  # the process died before it wrote the table
    assert lake.verify().cases == []  # `check_tables` reports it as pending
    lake.note("recovery")  # an operator's record does not write the table either
    done = lake.verify()
    assert done.cases == []
    assert done.point.owed is not None
    assert done.point.owed.ledger_offset == owed


def test_a_lost_commit_is_found(lake: Lake) -> None:
    lake.run(3)
    lake.note("stop")
    lake.unwrite(3)
    told = lake.verify().only("delta_lost")
    assert "the table all (" in told
    assert "its log has no commit of micro-batch 2 (ledger offset 6, producer 5/6), " in told


def test_a_commit_that_lost_its_number_is_found(lake: Lake) -> None:
    """In the middle of a log that is complete."""
    lake.run(3)
    lake.note("stop")
    lake.edit(2, txn=lambda it: it.update(appId="another"))
    assert "ledger offset 4" in lake.verify().only("delta_lost")


def test_a_repeated_commit_is_found(lake: Lake) -> None:
    lake.run(2)
    lake.note("stop")
    lake.write(2)
    told = lake.verify().only("delta_twice")
    assert "its versions 1 and 3 both have the rows of micro-batch 0 (ledger offset 2" in told


def test_changed_counts_are_found(lake: Lake) -> None:
    lake.run(2)
    lake.note("stop")
    lake.edit(1, commitInfo=lambda it: as_spark(it, numOutputRows=ROWS - 1))
    told = lake.verify().only("delta_rows")
    assert "its version 1 has 9 rows, but the ledger has 10 rows, of micro-batch 0" in told
    lake.edit(1, commitInfo=lambda it: as_spark(it, numOutputRows=ROWS))
    assert lake.verify().cases == []
    lake.edit(1, add=lambda it: it.update(stats=json.dumps({"numRecords": 3})))
    done = lake.verify()
    file, rows = (each.message for each in done.findings.listed[FindingKind.WRONG])
    assert "has 10 rows, but 3 in the log, of micro-batch 0" in file
    assert "its version 1 has 10 rows, but its files have 3, of micro-batch 0" in rows


@pytest.mark.parametrize("offset", [3, 99, -5])
def test_a_foreign_commit_with_the_application_id_is_found(lake: Lake, offset: int) -> None:
    """Of a record that no micro-batch has, that the ledger does not have yet, and of no record."""
    lake.run(1)
    lake.write(offset)
    lake.run(2)
    lake.note("stop")
    told = lake.verify().only("delta_foreign")
    assert "its version 2 was written under the pipeline's application id" in told
    assert f"with the ledger's record {max(-1, offset)}." in told


def test_commits_without_rows_are_harmless_unless_they_are_ahead(lake: Lake) -> None:
    lake.run(1)
    lake.note("stop")
    lake.write(4, 0)  # a run that adopted the table again, and died
    lake.note()
    assert lake.verify().cases == []
    lake.write(99, 0)  # Delta would drop the pipeline's next writes
    assert lake.verify().cases == ["delta_foreign"]


def test_maintenance_by_others_and_a_restore_change_no_proof(lake: Lake) -> None:
    """`check_tables` reports a RESTORE that removed rows; the commits are in the log anyway."""
    lake.run(3)
    lake.note("stop")
    found = DeltaTable(lake.table.path)
    found.optimize.compact()
    found.delete("n = 3")
    found.vacuum(0, dry_run=False, enforce_retention_duration=False)
    write_deltalake(lake.table.path, pa.table({"n": [1, 2]}), mode="append")
    found = DeltaTable(lake.table.path)
    found.restore(0)
    done = lake.verify()
    assert done.cases == []
    assert (done.proof.commits, done.proof.rows.inserted) == (3, 3 * ROWS)
    assert (done.proof.files.checked, done.proof.files.replaced) == (0, 3)
    found.restore(1, ignore_missing_files=True)
    assert "is missing, of micro-batch 0" in lake.verify().only("delta_file")


def test_a_restore_with_the_application_id_is_no_write_of_a_micro_batch(lake: Lake) -> None:
    lake.run(2)
    recovery = lake.note("recovery")
    DeltaTable(lake.table.path).restore(1)
    own = json.dumps({"txn": {"appId": "app", "version": recovery}})
    lake.file(3).write_text(f"{lake.file(3).read_text().rstrip()}\n{own}")
    assert DeltaTable(lake.table.path).transaction_version("app") == recovery
    lake.note()
    assert lake.verify().cases == []


def test_a_log_that_was_cleaned_up_proves_the_rest(lake: Lake) -> None:
    lake.run(4)
    lake.note("stop")
    DeltaTable(lake.table.path).create_checkpoint()
    for version in range(3):
        lake.unwrite(version)
    done = lake.verify()
    told = done.only("delta_unproven", FindingKind.GONE)
    assert "2 writes (ledger offsets 2 to 4) could not be proven: commits up to" in told
    assert told.endswith("version 2 of its log are deleted, damaged, or too many to keep")
    assert (done.proof.commits, done.proof.as_json()["unproven"]) == (2, 2)
    lake.edit(4, txn=lambda it: it.update(appId="another"))  # newer than the oldest that is left
    assert lake.verify().cases == ["delta_lost", "delta_unproven"]


def test_a_table_that_an_operator_accepted_is_out_of_reach(lake: Lake) -> None:
    lake.run(2)
    lake.unwrite(2)  # an older copy of the folder
    lake.state = None
    lake.note("recovery")
    lake.adopt()
    lake.run(1)
    lake.note("stop")
    told = lake.verify().only("delta_unproven", FindingKind.GONE)
    assert "no later ledger record confirms them" in told


def test_a_loss_before_an_operator_accepted_the_table_names_the_record(lake: Lake) -> None:
    lake.run(3)
    lake.unwrite(3)
    lake.unwrite(2)
    lake.state = None
    recovery = lake.note("recovery")
    lake.adopt()
    lake.note("stop")
    done = lake.verify()
    assert done.cases == ["delta_lost", "delta_unproven"]
    (told, _) = done.findings.listed[FindingKind.GONE]
    assert "of micro-batch 1 (ledger offset 4" in told.message
    assert f"accepted the table since, by a recovery record (ledger offset {recovery}" in (
        told.message
    )


def test_micro_batches_of_an_earlier_table_are_counted_apart(lake: Lake) -> None:
    lake.run(2)
    shutil.rmtree(lake.table.path)
    lake.state = None
    lake.note("recovery")
    lake.adopt()
    lake.run(1)
    lake.note("stop")
    done = lake.verify()
    assert done.cases == []
    assert (done.proof.commits, done.proof.earlier) == (1, 2)


def test_a_table_that_was_replaced_in_its_log_is_another_one(lake: Lake) -> None:
    """As by CREATE OR REPLACE TABLE: the id changes, and the older commits remain."""
    lake.run(2)
    lines = map(json.loads, lake.file(0).read_text().splitlines())
    (data,) = [each["metaData"] for each in lines if "metaData" in each]
    lake.file(3).write_text(json.dumps({"metaData": {**data, "id": "another"}}))
    lake.state = None
    lake.note("recovery")
    lake.adopt()
    lake.run(1)
    lake.note("stop")
    done = lake.verify()
    assert done.cases == []
    assert (done.proof.id, done.proof.commits, done.proof.earlier) == ("another", 1, 2)


def test_records_of_older_releases_have_no_counts(lake: Lake) -> None:
    lake.has_digests = False
    lake.run(2)
    assert lake.state is not None
    lake.state = lake.state._replace(rows=None)
    lake.note("stop")
    done = lake.verify()
    assert done.cases == []
    assert (done.proof.commits, done.proof.uncounted, done.proof.unchanged) == (2, 1, 0)
    assert done.proof.files.checked == 2


def test_a_merge_is_compared_by_its_metrics(tmp_path: Path) -> None:
    lake = Lake(Table("all", str(tmp_path / "all"), keys=("n",)))
    lake.adopt()
    lake.run(1)
    names = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
    metrics = dict(zip(names, (2, 3, 4), strict=True))
    lake.edit(1, commitInfo=lambda it: as_spark(it, "MERGE", **metrics))
    assert lake.state is not None
    lake.state = lake.state._replace(rows=RowCounts(2, 3, 4))
    lake.note_digest()
    lake.note("stop")
    done = lake.verify()
    assert done.cases == []  # although its files have other counts
    assert done.proof.rows_text == "2 inserted, 3 updated, 4 deleted"
    lake.edit(1, commitInfo=lambda it: as_spark(it, "MERGE", **{**metrics, names[1]: 1}))
    told = lake.verify().only("delta_rows")
    assert "has 2 inserted, 1 updated, 4 deleted, but the ledger has 2 inserted, 3 updated" in told


def test_trimmed_records_prove_the_commits_that_exist(lake: Lake) -> None:
    """They come from the audit table, which does not know the Delta tables."""
    lake.run(3)
    lake.note("stop")
    trimmed = [
        CommittedAttempt(each.witness, {}, None, []) if each.witness.ledger_offset < 5 else each
        for each in lake.records
    ]
    done = lake.verify(trimmed)
    assert done.cases == []
    assert (done.proof.commits, done.proof.uncounted) == (3, 2)
    lake.edit(2, txn=lambda it: it.update(appId="another"))
    told = lake.verify(trimmed).only("delta_unproven", FindingKind.GONE)
    assert "their ledger records were trimmed" in told


def point(lake: Lake, done: Proven, last: CommittedAttempt, folder: Path) -> Point:
    """Return the point as the next verification loads it."""
    identity, position = Identity(5, 4), {TopicPartition("a", 0): 1}
    offset, tables = last.witness.ledger_offset, {lake.table.name: done.point}
    made = Point("p", "id", offset, "now", position, {}, identity, [5], tables=tables)
    made.save(LocalFolder(folder / "verified"), "point.json")
    found, reason = load(LocalFolder(folder / "verified"), "point.json", "p", "id")
    assert (found, reason) == (made, "")
    return made


def test_the_next_verification_reads_newer_commits_only(lake: Lake, tmp_path: Path) -> None:
    lake.run(2)
    since = point(lake, lake.verify(), lake.records[-1], tmp_path)
    known = len(lake.records)
    lake.run(2)
    lake.note("stop")
    DeltaTable(lake.table.path).create_checkpoint()
    lake.file(0).write_text("not read")
    done = lake.verify(lake.records[known:], since=since)
    assert done.cases == []
    assert (done.proof.commits, done.proof.uncounted) == (3, 0)  # the owed one, and the new ones
    lake.write(2)  # verified before, so no newer commit may have it
    assert "its version 5 was" in lake.verify(lake.records[known:], since=since).only(
        "delta_foreign"
    )


def test_the_next_verification_finds_what_the_last_one_did_not_see_written(
    lake: Lake, tmp_path: Path
) -> None:
    lake.run(1)
    lake.note("attempt")
    since = point(lake, lake.verify(), lake.records[-1], tmp_path)
    known = len(lake.records)
    assert lake.state is not None
    lake.state = lake.state._replace(at=4, rows=RowCounts(ROWS), sha256=None)
    lake.note("start")
    assert "micro-batch 1" in lake.verify(lake.records[known:], since=since).only("delta_lost")
    lake.write(4)
    assert lake.verify(lake.records[known:], since=since).cases == []


def test_commits_of_newer_records_are_left_to_the_next_verification(lake: Lake) -> None:
    lake.run(1)
    known = len(lake.records)
    lake.run(1)
    done = lake.verify(lake.records[:known], newer=lake.records[known:])
    assert done.cases == []
    assert (done.point.version, done.proof.commits) == (-1, 1)


def test_more_commits_than_fit_into_memory_are_not_proven(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.run(4)
    lake.note("stop")
    monkeypatch.setattr(table_commits, "COMMITS_MAX", 3)
    done = lake.verify()
    assert "(ledger offsets 2 to 2)" in done.only("delta_unproven", FindingKind.GONE)
    assert done.proof.commits == 3


@pytest.mark.parametrize(
    "text",
    [
        '{"commitInfo": "x"}',
        '{"commitInfo": {"operation": "WRITE", "operationParameters": [], "operationMetrics": 1}}',
        '{"commitInfo": {"operation": ["RESTORE"], "operationParameters": {"version": {}}}}',
        '{"commitInfo": {"operation": "WRITE", "operationMetrics": {"numOutputRows": -1}}}',
        '{"txn": 1}',
        '{"add": {"path": 1, "stats": "[[["}}',
        '{"add": []}',
        f'{json.dumps(APPENDED)}\n{{"add": ',
        '{"add": ' + "[" * 100_000,
        '{"commitInfo": ' + "[" * 100_000,
        "\x00",
    ],
)
def test_a_damaged_commit_is_no_crash(lake: Lake, text: str) -> None:
    lake.has_digests = False
    lake.run(2)
    lake.note("stop")
    lake.file(2).write_text('{"txn": {"appId": "app", "version": 4}}\n' + text)
    assert {*cases_without_delta_rs(lake)} <= {"delta_rows", "delta_unproven"}
    with suppress(KeyError):  # delta-rs refuses some of them, so the table counts as unreadable
        lake.verify()


def test_a_log_that_is_damaged_anywhere_is_no_crash(lake: Lake) -> None:
    lake.has_digests = False
    lake.run(2)
    lake.note("stop")
    random_, found = random.Random(1), Counter[str]()
    values = (b"", b"null", b"[]", b"{}", b"-1", b'"', b"9" * 30)
    for _ in range(300):
        file = lake.file(random_.randrange(3))
        raw = file.read_bytes()
        start = random_.randrange(len(raw))
        end = start + random_.randrange(12)
        file.write_bytes(raw[:start] + random_.choice(values) + raw[end:])
        found.update(cases_without_delta_rs(lake) or ["nothing"])
        file.write_bytes(raw)
    assert found.keys() >= {"delta_unproven", "nothing"}
    assert found["delta_unproven"] < 250


def cases_without_delta_rs(lake: Lake) -> list[str]:
    """Verify the table although delta-rs may refuse to read it."""
    assert lake.state is not None
    findings, store = Findings(), store_of(lake.table)
    proof = TableProof(store, lake.state.id, TableCommits(store.log("app")), findings)
    for each in lake.records:
        proof.see(each)
    proof.finish(proof.found.end)
    return [each.case for kind in FindingKind for each in findings.listed[kind]]
