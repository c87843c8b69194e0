"""Producers' states on disk: which are read, written, refused and cleaned up."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from support.dedup import Row, Sent, columns, policy, verdicts_of, versions_in
from support.errors import raises

from eos.dedup import buckets, stage, state_table, state_versions
from eos.dedup.buckets import bucket_of

A, B = b"a", b"b"


def rows(*sent, start=0, partition=0):
    return [Row(start + at, Sent(partition, *each)) for at, each in enumerate(sent)]


def committed(made, version, *sent, start=0):
    opened = made.begin(version)
    found = verdicts_of(opened, rows(*sent, start=start))
    return opened.commit(), [found[0, start + at] for at in range(len(sent))]


def test_a_resend_is_found_in_the_micro_batch_and_in_the_next(tmp_path):
    made = versions_in(tmp_path)
    first, found = committed(made, "", (A, 0, 0), (A, 0, 1), (A, 0, 0))
    assert found == ["appended", "appended", "duplicate"]
    second, found = committed(made, first.version, (A, 0, 1), (A, 0, 2), (A, 1, 0), start=3)
    assert found == ["duplicate", "appended", "appended"]
    _, found = committed(made, second.version, (A, 0, 3), start=6)
    assert found == ["fenced"]
    assert second.summary["producers"] == [["t", 0, "a", "duplicate", 1, 3, 3]]


@pytest.mark.parametrize("accepted", [True, False])
@pytest.mark.parametrize("chunk", [1, 1 << 17])
def test_a_gap_is_listed_with_the_expected_number(tmp_path, monkeypatch, accepted, chunk):
    """The first gap of each producer in an attempt, whether accepted or a dead letter."""
    monkeypatch.setattr(stage, "CHUNK_ROWS", chunk)
    made = versions_in(tmp_path, policy(sequences=2**16, dead=() if accepted else ("gap",)))
    first, found = committed(made, "", (A, 0, 0), (A, 0, 1), (B, 1, 0))
    assert "gap" not in found
    assert "gaps" not in first.summary
    assert first.summary["states"] == 2
    sent = (A, 0, 2), (A, 0, 5), (A, 0, 9), (B, 2, 7), (B, 2, 9), (b"c", 0, 65535), (b"c", 0, 4)
    second, _ = committed(made, first.version, *sent, start=3)
    assert second.summary["gaps"] == [
        ["t", 0, "a", 0, 3, 5, 4],
        ["t", 0, "b", 2, 0, 7, 6],
        ["t", 0, "c", 0, 0, 4, 9],
    ]
    assert second.summary["states"] == 3


def test_some_of_many_gaps_are_listed(tmp_path):
    sent = [(b"%03d" % n, 0, number) for number in (0, 5) for n in range(50)]
    done, _ = committed(versions_in(tmp_path), "", *sent)
    assert [each[2] for each in done.summary["gaps"]] == [f"{n:03}" for n in range(20)]


@pytest.mark.parametrize("window", [0, 1000])
def test_an_attempt_is_repeated_by_its_version_and_clock(tmp_path, window):
    """As a startup does that writes its rows to a Delta table, maybe long after the attempt."""
    made = versions_in(tmp_path, policy(forget_ms=3_600_000, window=window))
    first, _ = committed(made, "", (A, 0, 0), (A, 0, 1))
    sent = rows((A, 0, 1), (A, 0, 2), (B, 0, 0), start=2)
    attempt = made.begin(first.version)
    found = verdicts_of(attempt, sent)
    assert list(found.values()) == ["duplicate", "appended", "appended"]
    after = attempt.commit()

    origin = dict(attempt.origin)
    restarted = versions_in(tmp_path, policy(forget_ms=3_600_000, window=window))
    restarted.require(after.version)
    version, late = origin.pop("before"), origin["now_ms"] + 3_600_000
    assert verdicts_of(restarted.begin(version, **origin), sent) == found
    # Neither the states after it nor another clock give the same verdicts.
    assert verdicts_of(restarted.begin(after.version, **origin), sent) != found
    assert verdicts_of(restarted.begin(version, **{**origin, "now_ms": late}), sent) != found


def test_an_uncommitted_attempt_leaves_nothing_to_the_next(tmp_path):
    made = versions_in(tmp_path)
    first, _ = committed(made, "", (A, 0, 0))
    lost, _ = committed(made, first.version, (A, 0, 1), (B, 0, 0), start=1)
    second, found = committed(versions_in(tmp_path), first.version, (A, 0, 1), start=1)
    assert found == ["appended"]
    versions = [int(each.version.split("/")[0]) for each in (first, lost, second)]
    assert versions == [1, 2, 3]
    # Whoever reads the newest version sees what it holds and nothing of the attempt between.
    assert DeltaTable(tmp_path / "producers").count() == 1


def test_a_rewind_uses_the_states_of_its_version(tmp_path):
    made = versions_in(tmp_path)
    first, _ = committed(made, "", (A, 0, 0))
    second, _ = committed(made, first.version, (A, 0, 1), (B, 0, 0), start=1)
    committed(made, second.version, (A, 0, 2), start=3)
    again, found = committed(made, first.version, (A, 0, 1), (B, 0, 0), start=1)
    assert found == ["appended", "appended"]
    _, found = committed(made, again.version, (A, 0, 1), (B, 0, 1), start=3)
    assert found == ["duplicate", "appended"]


@pytest.mark.parametrize(
    ("name", "sent", "words"),
    [
        ("gap", (A, 0, 3), "epoch 0, sequence 3, expected 1)"),
        ("gap", (A, 1, 3), "sequence 3, the first of its epoch, after epoch 0)"),
        ("unknown_producer", (B, 0, 3), "(producer b, epoch 0, sequence 3)"),
        ("unstamped", (A, None, 3), "epoch none, sequence 3)"),
        ("unstamped", (A, 0, -1), "sequence -1"),
    ],
)
def test_a_verdict_that_is_not_accepted_ends_the_run(tmp_path, name, sent, words):
    opened = versions_in(tmp_path, policy([name])).begin("")
    with raises("producer_refused") as found:
        verdicts_of(opened, rows((A, 0, 0), sent))
    assert f"t-0 at offset 1, with verdict {name}, and `" in found.value.message
    assert words in found.value.message
    assert found.value.fields["source_offset"] == 1
    assert "accept` under `dedup`" in found.value.hint
    assert opened.reports() == {}
    _, accepted = committed(versions_in(tmp_path), "", (A, 0, 0), sent)
    assert accepted[1] == name


def test_a_late_record_ends_the_run(tmp_path):
    made = versions_in(tmp_path, policy(["late"]))
    with raises("producer_refused") as found:
        committed(made, "", (A, 0, 0), *((A, 0, n) for n in (5, 6, 8, 9, 10, 11, 12)), (A, 0, 2))
    assert found.value.fields["verdict"] == "late"
    assert "sequence 2, expected 13)" in found.value.message


def test_an_idle_producer_is_forgotten_and_counted(tmp_path):
    made = versions_in(tmp_path, policy(forget_ms=60_000))
    first, _ = committed(made, "", (A, 0, 0), (B, 0, 0))
    opened = made.begin(first.version)
    later = opened.stage.now_ms + 60_001
    opened.stage = stage.DedupStage(**{**_fields(opened.stage), "now_ms": later})
    assert verdicts_of(opened, rows((A, 0, 0), start=2)) == {(0, 2): "appended"}
    done = opened.commit()
    assert done.summary["expired"] == (
        2 if bucket_of(pa.array([A]), 4) == bucket_of(pa.array([B]), 4) else 1
    )


def test_forgotten_producers_are_not_written_again_with_unchanged_ones(tmp_path):
    made = versions_in(tmp_path, policy(forget_ms=60_000))
    assert bucket_of(pa.array([A]), 4) == bucket_of(pa.array([B]), 4)
    done, _ = committed(made, "", (A, 0, 0), (B, 0, 0))
    expired = []
    for later, number in ((40_000, 1), (70_000, 1), (80_000, 1)):
        opened = made.begin(done.version)
        opened.stage = replace(opened.stage, now_ms=opened.stage.now_ms + later)
        verdicts_of(opened, rows((A, 0, number), start=2))
        done = opened.commit()
        expired.append(done.summary["expired"])
    assert expired == [0, 1, 0]
    assert done.summary["states"] == 1


def _fields(value):
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def test_a_partition_with_many_producers_gets_more_buckets_once(tmp_path, monkeypatch):
    monkeypatch.setattr(buckets, "BUCKET_ROWS_MAX", 2)
    made = versions_in(tmp_path)
    many = [(b"%d" % n, 0, 0) for n in range(40)]
    first, _ = committed(made, "", *many)
    found = made.begin(first.version)
    (kept,) = state_versions.manifests(found.known).values()
    assert (kept.buckets, sum(each.rows for each in kept.files.values())) == (32, 40)
    second, verdicts = committed(made, first.version, *many, start=40)
    assert set(verdicts) == {"duplicate"}
    # Nothing moved on, so nothing was written.
    assert made.begin(second.version).known == found.known


def test_only_the_buckets_of_its_producers_are_read_and_written(tmp_path, monkeypatch):
    made = versions_in(tmp_path)
    first, _ = committed(made, "", *((b"%d" % n, 0, 0) for n in range(40)))
    read = []
    original = buckets.read_states
    monkeypatch.setattr(
        "eos.dedup.partition_validator.read_states",
        lambda place, *more: read.append(place) or original(place, *more),
    )
    second, _ = committed(made, first.version, (b"7", 0, 1), start=40)
    before, after = (made.begin(each.version).known for each in (first, second))
    assert len(read) == 1
    assert sum(before[home] != after[home] for home in before) == 1


def test_lost_states_end_the_run(tmp_path):
    made = versions_in(tmp_path)
    first, _ = committed(made, "", (A, 0, 0))
    for path in (tmp_path / "producers").glob("topic-t-0/*.parquet"):
        path.write_bytes(path.read_bytes()[:100])
    with raises("producers_lost"):
        committed(made, first.version, (A, 0, 1), start=1)
    version, rules, token = first.version.split("/")
    for wrong in (f"7/{rules}/{token}", f"{version}/{rules}/5"):
        with raises("producers_lost") as found:
            versions_in(tmp_path).require(wrong)
        assert "--forget-producers" in found.value.hint
    with raises("producers_lost"):
        versions_in(tmp_path / "elsewhere").require(first.version)


def test_states_of_other_rules_are_refused(tmp_path):
    first, _ = committed(versions_in(tmp_path), "", (A, 0, 0))
    for other in (
        versions_in(tmp_path, None, "id", "epoch", "another"),
        versions_in(tmp_path, policy(sequences=2**16)),
        versions_in(tmp_path, policy(window=100)),
    ):
        with raises("producers_changed"):
            other.begin(first.version)
    versions_in(tmp_path, policy(["gap"])).begin(first.version)


def test_a_task_that_ran_twice_counts_once_and_a_partition_in_two_parts_stops(tmp_path):
    made = versions_in(tmp_path)
    opened = made.begin("")
    for _ in range(2):
        verdicts_of(opened, rows((A, 0, 0), (A, 0, 1)))
    assert opened.commit().summary["verdicts"] == {"appended": 2}
    opened = made.begin("")
    verdicts_of(opened, rows((A, 0, 0)))
    verdicts_of(opened, rows((A, 0, 1), start=1))
    with raises("dedup_order"):
        opened.commit()


def test_a_partition_that_lost_records_between_two_reads_is_read_again(tmp_path):
    """Compaction took one of them: the next attempt finds what is left, and may do."""
    made = versions_in(tmp_path)
    opened = made.begin("")
    verdicts_of(opened, rows((A, 0, 0), (A, 0, 1), (A, 0, 2)))
    verdicts_of(opened, rows((A, 0, 1), (A, 0, 2), start=1))
    with raises("source_changed_during_attempt") as caught:
        opened.commit()
    assert "2 records from 1 to 2" in caught.value.message
    _, found = committed(made, "", (A, 0, 1), (A, 0, 2), start=1)
    assert len(found) == 2


def test_rows_out_of_order_end_the_run(tmp_path):
    opened = versions_in(tmp_path).begin("")
    with raises("dedup_order"):
        verdicts_of(opened, [*rows((A, 0, 0), start=5), *rows((A, 0, 1), start=4)])


def test_partitions_in_one_task_are_validated_separately(tmp_path):
    opened = versions_in(tmp_path).begin("")
    mixed = [Row(0, Sent(0, A, 0, 0)), Row(0, Sent(1, A, 0, 0)), Row(1, Sent(0, A, 0, 0))]
    codes = [each.to_pylist() for each in opened.stage.codes(_columns(mixed))]
    assert codes == [[0, 0, 1]]
    assert sorted(tuple(tp) for tp in opened.reports()) == [("t", 0), ("t", 1)]
    assert opened.validated() == {("t", 0): 2, ("t", 1): 1}


def _columns(mixed):
    return iter([columns(mixed)])


@pytest.mark.parametrize("topic", ["t", ""])
@pytest.mark.parametrize("window", [0, 9])
def test_rows_have_partition_and_offset_in_one_number(tmp_path, topic, window):
    """And with their topic, where a source has several."""
    made = versions_in(tmp_path, policy(window=window))
    made.topic = topic
    opened = made.begin("")
    sent = [Row(2**40 + at, Sent(65_535, A, 0, number)) for at, number in enumerate((0, 1, 1))]
    names, _, _, *stamps = columns(sent)
    at = pa.array([(row.offset << 16) | row.sent.partition for row in sent])
    named = [] if topic else [names]
    if window:
        rows = pa.RecordBatch.from_arrays([at, *stamps, *named], schema=opened.stage.schema)
        assert list(opened.stage.at_once(iter([rows]))) == []
        assert dict(opened.lookup().counts) == {("t", 65_535): 3}
        (codes,) = opened.lookup()(iter([(at, *named) if named else at]))
    else:
        (codes,) = opened.stage(iter([(at, *stamps, *named)]))
    assert codes.to_pylist() == [0, 0, 1]
    assert opened.commit().summary["producers"] == [
        ["t", 65_535, "a", "duplicate", 1, 2**40 + 2, 2**40 + 2]
    ]


def test_a_commit_is_repeated_on_top_of_a_concurrent_one(tmp_path, monkeypatch):
    made = versions_in(tmp_path)
    first, _ = committed(made, "", (A, 0, 0))
    other = versions_in(tmp_path)
    opened = made.begin(first.version)
    verdicts_of(opened, rows((A, 0, 1), start=1))
    write, left = state_table._write, [1]

    def between(*words):
        if left.pop(0) if left else 0:
            committed(other, first.version, (B, 0, 0), start=1)
        return write(*words)

    monkeypatch.setattr(state_table, "_write", between)
    done = opened.commit()
    assert done.version.startswith("3/")
    assert (
        made.table.files(state_table.StateVersion.of(done.version))
        == made.begin(done.version).known
    )
    _, found = committed(versions_in(tmp_path), done.version, (A, 0, 2), (B, 0, 0), start=2)
    assert found == ["appended", "appended"]


def test_maintenance_keeps_young_files_and_those_of_the_version(tmp_path, monkeypatch):
    monkeypatch.setattr(state_table, "MAINTAINED_EVERY", 1)
    made = versions_in(tmp_path)
    first, _ = committed(made, "", (A, 0, 0))
    committed(made, first.version, (A, 0, 1), start=1)
    folder = tmp_path / "producers" / "topic-t-0"
    (folder / "young.parquet").touch()  # a task's of this moment: no version names it yet
    (folder / "old.parquet").touch()
    os.utime(folder / "old.parquet", (time.time() - 7200,) * 2)
    second, _ = committed(made, first.version, (A, 0, 1), start=1)
    made.maintain()
    assert (folder / "young.parquet").exists()
    assert not (folder / "old.parquet").exists()
    for version in (first, second):
        versions_in(tmp_path).require(version.version)
        committed(versions_in(tmp_path), version.version, (B, 0, 0), start=2)


def test_a_producer_has_one_bucket_in_any_arrow_type():
    """`spark.sql.execution.arrow.useLargeVarTypes` gives offsets of 64 bits."""
    ids = pa.array([b"%d" % n for n in range(50)], pa.binary())
    wanted = bucket_of(ids, 64).tolist()
    assert len(set(wanted)) > 8
    assert bucket_of(ids.cast(pa.large_binary()), 64).tolist() == wanted
    assert [bucket_of(ids.cast(pa.large_binary())[n:], 64)[0] for n in range(50)] == wanted


def test_a_replaced_version_is_readable_for_an_hour_however_old_it_is(tmp_path, monkeypatch):
    """A pipeline that runs once a day: what yesterday's run left is replaced only now."""
    monkeypatch.setattr(state_table, "MAINTAINED_EVERY", 1)
    made = versions_in(tmp_path)
    first, _ = committed(made, "", (A, 0, 0))
    second, _ = committed(made, first.version, (A, 0, 1), start=1)
    hours_ago = time.time() - 5 * 3600
    for each in (tmp_path / "producers").rglob("*.*"):
        os.utime(each, (hours_ago, hours_ago))
    third, _ = committed(made, second.version, (A, 0, 2), start=2)
    made.maintain()
    _, found = committed(versions_in(tmp_path), second.version, (A, 0, 1), (A, 0, 2), start=2)
    assert found == ["duplicate", "appended"]
    versions_in(tmp_path).require(third.version)
    with raises("producers_lost") as caught:
        versions_in(tmp_path).require(first.version)
    assert "version 1 of" in caught.value.message


def test_maintenance_runs_even_if_each_process_commits_once(tmp_path, monkeypatch):
    monkeypatch.setattr(state_table, "MAINTAINED_EVERY", 3)
    version, checkpoints = "", []
    for number in range(4):
        made = versions_in(tmp_path)
        done, _ = committed(made, version, (A, 0, number), start=number)
        version = done.version
        made.maintain()
        log = tmp_path / "producers" / "_delta_log"
        checkpoints.append(sorted(int(each.name[:20]) for each in log.glob("*.checkpoint.*")))
    assert checkpoints == [[], [], [3], [3]]


def test_an_unwritable_folder_ends_the_run(tmp_path):
    opened = versions_in(tmp_path).begin("")
    (tmp_path / "producers" / "topic-t-0").write_text("in the way")
    with raises("state_root_unwritable"):
        verdicts_of(opened, rows((A, 0, 0)))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "producers").write_text("in the way")
    with raises("state_root_unwritable"):
        versions_in(tmp_path / "other").begin("")
