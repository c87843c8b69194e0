"""States of producers on disk: what is read and written, what is refused, what is cleaned up."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from support.dedup import Row, Sent, columns, policy, state_versions, verdicts_of
from support.errors import raises

from eos.dedup import buckets, stage, state_table
from eos.dedup import state_versions as generations_file
from eos.dedup.buckets import bucket_of

A, B = b"a", b"b"


def rows(*sent, start=0, partition=0):
    return [Row(start + at, Sent(partition, *each)) for at, each in enumerate(sent)]


def committed(made, generation, *sent, start=0):
    opened = made.begun(generation)
    found = verdicts_of(opened, rows(*sent, start=start))
    return opened.commit(), [found[0, start + at] for at in range(len(sent))]


def test_a_resend_is_told_in_the_micro_batch_and_in_the_next(tmp_path):
    made = state_versions(tmp_path)
    first, found = committed(made, "", (A, 0, 0), (A, 0, 1), (A, 0, 0))
    assert found == ["appended", "appended", "duplicate"]
    second, found = committed(made, first.generation, (A, 0, 1), (A, 0, 2), (A, 1, 0), start=3)
    assert found == ["duplicate", "appended", "appended"]
    _, found = committed(made, second.generation, (A, 0, 3), start=6)
    assert found == ["fenced"]
    assert second.told["producers"] == [["t", 0, "a", "duplicate", 1, 3, 3]]


@pytest.mark.parametrize("accepted", [True, False])
@pytest.mark.parametrize("chunk", [1, 1 << 17])
def test_a_gap_is_told_with_what_was_expected_and_what_came(tmp_path, monkeypatch, accepted, chunk):
    """Of each producer the first one of an attempt, whether it is accepted or a dead letter."""
    monkeypatch.setattr(stage, "CHUNK_ROWS", chunk)
    made = state_versions(tmp_path, policy(sequences=2**16, dead=() if accepted else ("gap",)))
    first, found = committed(made, "", (A, 0, 0), (A, 0, 1), (B, 1, 0))
    assert "gap" not in found
    assert "gaps" not in first.told
    assert first.told["states"] == 2
    sent = (A, 0, 2), (A, 0, 5), (A, 0, 9), (B, 2, 7), (B, 2, 9), (b"c", 0, 65535), (b"c", 0, 4)
    second, _ = committed(made, first.generation, *sent, start=3)
    assert second.told["gaps"] == [
        ["t", 0, "a", 0, 3, 5, 4],
        ["t", 0, "b", 2, 0, 7, 6],
        ["t", 0, "c", 0, 0, 4, 9],
    ]
    assert second.told["states"] == 3


def test_of_many_gaps_some_are_told(tmp_path):
    sent = [(b"%03d" % n, 0, number) for number in (0, 5) for n in range(50)]
    done, _ = committed(state_versions(tmp_path), "", *sent)
    assert [each[2] for each in done.told["gaps"]] == [f"{n:03}" for n in range(20)]


def test_what_an_attempt_left_that_did_not_commit_is_no_part_of_the_next(tmp_path):
    made = state_versions(tmp_path)
    first, _ = committed(made, "", (A, 0, 0))
    lost, _ = committed(made, first.generation, (A, 0, 1), (B, 0, 0), start=1)
    second, found = committed(state_versions(tmp_path), first.generation, (A, 0, 1), start=1)
    assert found == ["appended"]
    versions = [int(each.generation.split("/")[0]) for each in (first, lost, second)]
    assert versions == [1, 2, 3]
    # Whoever reads the newest version sees what it holds and nothing of the attempt between.
    assert DeltaTable(tmp_path / "producers").count() == 1


def test_a_rewind_takes_up_the_states_of_then(tmp_path):
    made = state_versions(tmp_path)
    first, _ = committed(made, "", (A, 0, 0))
    second, _ = committed(made, first.generation, (A, 0, 1), (B, 0, 0), start=1)
    committed(made, second.generation, (A, 0, 2), start=3)
    again, found = committed(made, first.generation, (A, 0, 1), (B, 0, 0), start=1)
    assert found == ["appended", "appended"]
    _, found = committed(made, again.generation, (A, 0, 1), (B, 0, 1), start=3)
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
def test_what_is_not_accepted_ends_the_run_and_is_named(tmp_path, name, sent, words):
    opened = state_versions(tmp_path, policy([name])).begun("")
    with raises("producer_refused") as found:
        verdicts_of(opened, rows((A, 0, 0), sent))
    assert f"t-0 at offset 1, with verdict {name} (" in found.value.message
    assert words in found.value.message
    assert found.value.fields["source_offset"] == 1
    assert "accept` under `dedup`" in found.value.hint
    assert opened.reports() == {}
    _, accepted = committed(state_versions(tmp_path), "", (A, 0, 0), sent)
    assert accepted[1] == name


def test_what_is_late_ends_the_run(tmp_path):
    made = state_versions(tmp_path, policy(["late"]))
    with raises("producer_refused") as found:
        committed(made, "", (A, 0, 0), *((A, 0, n) for n in (5, 6, 8, 9, 10, 11, 12)), (A, 0, 2))
    assert found.value.fields["verdict"] == "late"
    assert "sequence 2, expected 13)" in found.value.message


def test_who_sent_nothing_for_too_long_is_forgotten_and_counted(tmp_path):
    made = state_versions(tmp_path, policy(forget_ms=60_000))
    first, _ = committed(made, "", (A, 0, 0), (B, 0, 0))
    opened = made.begun(first.generation)
    later = opened.stage.now_ms + 60_001
    opened.stage = stage.DedupStage(**{**_fields(opened.stage), "now_ms": later})
    assert verdicts_of(opened, rows((A, 0, 0), start=2)) == {(0, 2): "appended"}
    done = opened.commit()
    assert done.told["expired"] == (
        2 if bucket_of(pa.array([A]), 4) == bucket_of(pa.array([B]), 4) else 1
    )


def test_who_is_forgotten_is_not_written_again_beside_who_moved_nowhere(tmp_path):
    made = state_versions(tmp_path, policy(forget_ms=60_000))
    assert bucket_of(pa.array([A]), 4) == bucket_of(pa.array([B]), 4)
    done, _ = committed(made, "", (A, 0, 0), (B, 0, 0))
    expired = []
    for later, number in ((40_000, 1), (70_000, 1), (80_000, 1)):
        opened = made.begun(done.generation)
        opened.stage = replace(opened.stage, now_ms=opened.stage.now_ms + later)
        verdicts_of(opened, rows((A, 0, number), start=2))
        done = opened.commit()
        expired.append(done.told["expired"])
    assert expired == [0, 1, 0]
    assert done.told["states"] == 1


def _fields(value):
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def test_a_partition_with_many_producers_gets_more_buckets_once(tmp_path, monkeypatch):
    monkeypatch.setattr(buckets, "BUCKET_ROWS_MAX", 2)
    made = state_versions(tmp_path)
    many = [(b"%d" % n, 0, 0) for n in range(40)]
    first, _ = committed(made, "", *many)
    found = made.begun(first.generation)
    (kept,) = generations_file.by_home(found.known).values()
    assert (kept.buckets, kept.rows) == (32, 40)
    second, verdicts = committed(made, first.generation, *many, start=40)
    assert set(verdicts) == {"duplicate"}
    # Nothing moved on, so nothing was written.
    assert made.begun(second.generation).known == found.known


def test_only_the_buckets_of_its_producers_are_read_and_written(tmp_path, monkeypatch):
    made = state_versions(tmp_path)
    first, _ = committed(made, "", *((b"%d" % n, 0, 0) for n in range(40)))
    read = []
    original = buckets.read_states
    monkeypatch.setattr(
        "eos.dedup.partition_validator.read_states",
        lambda place, *more: read.append(place) or original(place, *more),
    )
    second, _ = committed(made, first.generation, (b"7", 0, 1), start=40)
    before, after = (made.begun(each.generation).known for each in (first, second))
    assert len(read) == 1
    assert sum(before[home] != after[home] for home in before) == 1


def test_states_that_are_gone_stop_and_say_so(tmp_path):
    made = state_versions(tmp_path)
    first, _ = committed(made, "", (A, 0, 0))
    for path in (tmp_path / "producers").glob("t-0/*.parquet"):
        path.write_bytes(path.read_bytes()[:100])
    with raises("producers_lost"):
        committed(made, first.generation, (A, 0, 1), start=1)
    version, rules, token = first.generation.split("/")
    for wrong in (f"7/{rules}/{token}", f"{version}/{rules}/5"):
        with raises("producers_lost") as found:
            state_versions(tmp_path).require(wrong)
        assert "--forget-producers" in found.value.hint
    with raises("producers_lost"):
        state_versions(tmp_path / "elsewhere").require(first.generation)


def test_other_rules_do_not_take_up_the_states(tmp_path):
    first, _ = committed(state_versions(tmp_path), "", (A, 0, 0))
    for other in (
        state_versions(tmp_path, None, "id", "epoch", "another"),
        state_versions(tmp_path, policy(sequences=2**16)),
        state_versions(tmp_path, policy(window=100)),
    ):
        with raises("producers_changed"):
            other.begun(first.generation)
    state_versions(tmp_path, policy(["gap"])).begun(first.generation)


def test_a_task_that_ran_twice_counts_once_and_a_partition_in_two_parts_stops(tmp_path):
    made = state_versions(tmp_path)
    opened = made.begun("")
    for _ in range(2):
        verdicts_of(opened, rows((A, 0, 0), (A, 0, 1)))
    assert opened.commit().told["verdicts"] == {"appended": 2}
    opened = made.begun("")
    verdicts_of(opened, rows((A, 0, 0)))
    verdicts_of(opened, rows((A, 0, 1), start=1))
    with raises("dedup_order"):
        opened.commit()


def test_a_partition_that_lost_records_between_two_looks_is_read_again(tmp_path):
    """Compaction took one of them: the next attempt finds what is left, and may do."""
    made = state_versions(tmp_path)
    opened = made.begun("")
    verdicts_of(opened, rows((A, 0, 0), (A, 0, 1), (A, 0, 2)))
    verdicts_of(opened, rows((A, 0, 1), (A, 0, 2), start=1))
    with raises("source_changed_during_attempt") as caught:
        opened.commit()
    assert "2 records from 1 to 2" in caught.value.message
    _, found = committed(made, "", (A, 0, 1), (A, 0, 2), start=1)
    assert len(found) == 2


def test_rows_out_of_order_stop(tmp_path):
    opened = state_versions(tmp_path).begun("")
    with raises("dedup_order"):
        verdicts_of(opened, [*rows((A, 0, 0), start=5), *rows((A, 0, 1), start=4)])


def test_partitions_in_one_task_are_judged_apart(tmp_path):
    opened = state_versions(tmp_path).begun("")
    mixed = [Row(0, Sent(0, A, 0, 0)), Row(0, Sent(1, A, 0, 0)), Row(1, Sent(0, A, 0, 0))]
    codes = [each.to_pylist() for each in opened.stage.codes(_columns(mixed))]
    assert codes == [[0, 0, 1]]
    assert sorted(tuple(tp) for tp in opened.reports()) == [("t", 0), ("t", 1)]
    assert opened.missing(opened.reports()) == []


def _columns(mixed):
    return iter([columns(mixed)])


@pytest.mark.parametrize("topic", ["t", ""])
@pytest.mark.parametrize("window", [0, 9])
def test_rows_come_with_partition_and_offset_as_one_number(tmp_path, topic, window):
    """And with their topic, where a source has several."""
    made = state_versions(tmp_path, policy(window=window))
    made.topic = topic
    opened = made.begun("")
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
    assert opened.commit().told["producers"] == [
        ["t", 65_535, "a", "duplicate", 1, 2**40 + 2, 2**40 + 2]
    ]


def test_a_commit_beside_another_is_made_again_upon_it(tmp_path, monkeypatch):
    made = state_versions(tmp_path)
    first, _ = committed(made, "", (A, 0, 0))
    other = state_versions(tmp_path)
    opened = made.begun(first.generation)
    verdicts_of(opened, rows((A, 0, 1), start=1))
    write, left = state_table._write, [1]

    def between(*words):
        if left.pop(0) if left else 0:
            committed(other, first.generation, (B, 0, 0), start=1)
        return write(*words)

    monkeypatch.setattr(state_table, "_write", between)
    done = opened.commit()
    assert done.generation.startswith("3/")
    assert (
        made.table.files(state_table.Generation.of(done.generation))
        == made.begun(done.generation).known
    )
    _, found = committed(state_versions(tmp_path), done.generation, (A, 0, 2), (B, 0, 0), start=2)
    assert found == ["appended", "appended"]


def test_maintenance_leaves_what_is_young_and_what_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(state_table, "MAINTAINED_EVERY", 1)
    made = state_versions(tmp_path)
    first, _ = committed(made, "", (A, 0, 0))
    committed(made, first.generation, (A, 0, 1), start=1)
    folder = tmp_path / "producers" / "t-0"
    (folder / "young.parquet").touch()  # a task's of this moment: no version names it yet
    (folder / "old.parquet").touch()
    os.utime(folder / "old.parquet", (time.time() - 7200,) * 2)
    second, _ = committed(made, first.generation, (A, 0, 1), start=1)
    made.maintain()
    assert (folder / "young.parquet").exists()
    assert not (folder / "old.parquet").exists()
    for generation in (first, second):
        state_versions(tmp_path).require(generation.generation)
        committed(state_versions(tmp_path), generation.generation, (B, 0, 0), start=2)


def test_a_producer_has_one_bucket_however_spark_hands_its_id_over():
    """`spark.sql.execution.arrow.useLargeVarTypes` gives offsets of 64 bits."""
    ids = pa.array([b"%d" % n for n in range(50)], pa.binary())
    wanted = bucket_of(ids, 64).tolist()
    assert len(set(wanted)) > 8
    assert bucket_of(ids.cast(pa.large_binary()), 64).tolist() == wanted
    assert [bucket_of(ids.cast(pa.large_binary())[n:], 64)[0] for n in range(50)] == wanted


def test_a_generation_can_be_gone_back_to_for_an_hour_however_old_it_is(tmp_path, monkeypatch):
    """A pipeline that runs once a day: what yesterday's run left is replaced only now."""
    monkeypatch.setattr(state_table, "MAINTAINED_EVERY", 1)
    made = state_versions(tmp_path)
    first, _ = committed(made, "", (A, 0, 0))
    second, _ = committed(made, first.generation, (A, 0, 1), start=1)
    hours_ago = time.time() - 5 * 3600
    for each in (tmp_path / "producers").rglob("*.*"):
        os.utime(each, (hours_ago, hours_ago))
    third, _ = committed(made, second.generation, (A, 0, 2), start=2)
    made.maintain()
    _, found = committed(state_versions(tmp_path), second.generation, (A, 0, 1), (A, 0, 2), start=2)
    assert found == ["duplicate", "appended"]
    state_versions(tmp_path).require(third.generation)
    with raises("producers_lost") as caught:
        state_versions(tmp_path).require(first.generation)
    assert "version 1 of" in caught.value.message


def test_maintenance_comes_round_where_each_process_commits_once(tmp_path, monkeypatch):
    monkeypatch.setattr(state_table, "MAINTAINED_EVERY", 3)
    generation, checkpoints = "", []
    for number in range(4):
        made = state_versions(tmp_path)
        done, _ = committed(made, generation, (A, 0, number), start=number)
        generation = done.generation
        made.maintain()
        log = tmp_path / "producers" / "_delta_log"
        checkpoints.append(sorted(int(each.name[:20]) for each in log.glob("*.checkpoint.*")))
    assert checkpoints == [[], [], [3], [3]]


def test_a_folder_that_refuses_is_told(tmp_path):
    opened = state_versions(tmp_path).begun("")
    (tmp_path / "producers" / "t-0").write_text("in the way")
    with raises("state_root_unwritable"):
        verdicts_of(opened, rows((A, 0, 0)))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "producers").write_text("in the way")
    with raises("state_root_unwritable"):
        state_versions(tmp_path / "other").begun("")
