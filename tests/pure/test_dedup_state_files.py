"""State files and reports of tasks: which count as lost, which are deleted, which are compared."""

from __future__ import annotations

import errno
import json
from functools import partialmethod

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from support.dedup import Row, Sent, columns, policy, verdicts_of, versions_in
from support.errors import raises

from eos.dedup import stage, state_table, summary
from eos.errors import PromiseBrokenError, UnavailableError
from eos.folder import LocalFolder
from eos.producers.id_text import TEXT_MAX, id_text
from eos.verify.stamps import hash_of, hashes

A = b"a"


def rows(*sent, start=0):
    return [Row(start + at, Sent(0, *each)) for at, each in enumerate(sent)]


def committed(made, version, *sent, start=0):
    opened = made.begin(version)
    found = verdicts_of(opened, rows(*sent, start=start))
    return opened.commit(), list(found.values())


@pytest.mark.parametrize("window", [0, 9])
def test_states_that_can_t_be_read_are_not_lost(tmp_path, monkeypatch, window):
    """A mounted disk may be away for a while, and a process may have too many open files."""
    made = versions_in(tmp_path, policy(window=window))
    first, _ = committed(made, "", (A, 0, 0))
    plain = LocalFolder.read

    def stale(folder, name):
        if name.endswith(".parquet"):
            raise OSError(errno.ESTALE, "Stale file handle")
        return plain(folder, name)

    with monkeypatch.context() as patched:
        patched.setattr(LocalFolder, "read", stale)
        with raises("producers_unavailable", UnavailableError):
            committed(made, first.version, (A, 0, 1), start=1)
    for path in (tmp_path / "producers").glob("*/*.parquet"):
        path.unlink()
    with raises("producers_lost", PromiseBrokenError):
        committed(made, first.version, (A, 0, 1), start=1)


@pytest.mark.parametrize("topic", ["t", "_t", ".t"])
def test_maintenance_deletes_replaced_files_of_any_topic(tmp_path, monkeypatch, topic):
    """VACUUM skips folders whose names begin with `_` or `.`."""
    monkeypatch.setattr(state_table, "MAINTAINED_EVERY", 1)
    made, version = versions_in(tmp_path), ""
    for number in range(2):
        opened = made.begin(version)
        sent = [Row(number, Sent(0, A, 0, number))]
        names, *others = columns(sent)
        names = pa.array([topic] * len(names), pa.string())
        list(opened.stage.codes(iter([(names, *others)])))
        version = opened.commit().version
    folder = tmp_path / "producers" / f"topic-{topic}-0"
    assert len(list(folder.iterdir())) == 2
    monkeypatch.setattr(DeltaTable, "vacuum", partialmethod(_vacuum_now, DeltaTable.vacuum))
    made.maintain()
    (file,) = made.begin(version).known.values()
    assert list(folder.iterdir()) == [tmp_path / "producers" / file.path]


def test_files_in_the_folders_of_earlier_releases_are_read_and_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr(state_table, "MAINTAINED_EVERY", 1)
    made = versions_in(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("eos.dedup.spool.folder_of", lambda home: f"{home.topic}-{home.partition}")
        first, _ = committed(made, "", (A, 0, 0))
    (old,) = (tmp_path / "producers" / "t-0").glob("*.parquet")
    second, found = committed(made, first.version, (A, 0, 0), (A, 0, 1), start=1)
    assert found == ["duplicate", "appended"]
    monkeypatch.setattr(DeltaTable, "vacuum", partialmethod(_vacuum_now, DeltaTable.vacuum))
    made.maintain()
    assert not old.exists()
    _, found = committed(versions_in(tmp_path), second.version, (A, 0, 1), start=3)
    assert found == ["duplicate"]


def _vacuum_now(table, vacuum, **how):
    vacuum(table, retention_hours=0, enforce_retention_duration=False, **how)


def test_long_ids_make_no_long_ledger_record(tmp_path):
    """A broker limits a record's size. Ids are any bytes; a byte may take four characters."""
    ids = [b"\xff" * 100_000 + b"%d" % n for n in range(12)]
    sent = [(each, 0, number) for number in (0, 5) for each in ids]
    done, _ = committed(versions_in(tmp_path), "", *sent)
    assert len(json.dumps(done.summary)) < 12_000
    for name in ("producers", "gaps"):
        assert len({each[2] for each in done.summary[name]}) == 12
    with raises("producer_refused") as caught:
        committed(
            versions_in(tmp_path, policy(["gap"])),
            "",
            (A, 0, 0),
            (ids[0] * 3, 0, 0),
            (ids[0] * 3, 0, 2),
        )
    assert len(caught.value.message) < 600


def test_a_long_id_is_found_by_the_text_in_the_ledger_of_each_release():
    long = [b"x" * 300, b"x" * 300 + b"y", b"\xff" * 60]
    texts = [id_text(each) for each in long]
    assert max(map(len, texts)) <= TEXT_MAX
    assert hashes(pa.array(long)).tolist() == [hash_of(each) for each in texts]
    in_full = [each.decode(errors="backslashreplace") for each in long]
    assert [hash_of(each) for each in in_full] == [hash_of(each) for each in texts]
    assert len(set(texts)) == 3


def test_a_report_is_read_once(tmp_path, monkeypatch):
    """In a bucket each read takes a while, and a micro-batch asks for the reports several times."""
    opened = versions_in(tmp_path).begin("")
    read = []
    plain = LocalFolder.read
    monkeypatch.setattr(
        LocalFolder, "read", lambda folder, name: read.append(name) or plain(folder, name)
    )
    verdicts_of(opened, [Row(0, Sent(0, A, 0, 0))])
    assert opened.validated() == {("t", 0): 1}
    verdicts_of(opened, [Row(0, Sent(1, A, 0, 0))])
    assert opened.validated() == {("t", 0): 1, ("t", 1): 1}
    assert opened.commit().summary["verdicts"] == {"appended": 2}
    assert len([name for name in read if name.endswith(".json")]) == 2


def test_a_task_that_ran_twice_in_other_chunks_reports_the_same(tmp_path, monkeypatch):
    """A task that reads Kafka itself cuts rows elsewhere than Spark. More producers have unusual
    records than a report lists."""
    monkeypatch.setattr(summary, "SPANS_LISTED_MAX", 5)
    ids = [b"%d" % (n * 7 % 20) for n in range(20)]
    made = versions_in(tmp_path, policy(dead=("gap",)))
    first, _ = committed(made, "", *((each, 0, 0) for each in ids))
    opened = made.begin(first.version)
    for chunk in (1, 3, 7, 1 << 17):
        monkeypatch.setattr(stage, "CHUNK_ROWS", chunk)
        sent = [(each, 0, 0) for each in ids + ids[::-1]]
        verdicts_of(opened, rows(*sent, (ids[3], 0, 9), start=20), batch=2)
    (report,) = opened.reports().values()
    assert len(report["told"]) == 5
    assert opened.commit().summary["verdicts"] == {"duplicate": 40, "gap": 1}
