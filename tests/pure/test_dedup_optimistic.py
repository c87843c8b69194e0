"""Rows pass before they are validated: from the stamps that the reading task leaves, by shard."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from support.dedup import Row, Sent, policy, stamps, versions_in
from support.errors import raises

from eos.dedup import optimistic_pass
from eos.dedup.optimistic_pass import DeferredCheck, OptimisticPass
from eos.dedup.stamp_shards import STAMPS, Gather, unpacked
from eos.errors import (
    UnavailableError,
)
from eos.folder import LocalFolder
from eos.seal import CrossingError, crossed


def log(partition, count, topic="t", start=0):
    """Of one partition, in its order: some of nobody, some twice."""
    rows = []
    for at in range(start, start + count):
        who = None if at % 11 == 7 else b"producer-%d" % (at % 23)
        rows.append(Row(at, Sent(partition, who, None if at % 13 == 5 else 0, at // 23 * 2 // 3)))
    return stamps(rows, [topic] * count)


def passed(stage, *batches):
    """One task's: how many of each batch it said are next."""
    codes = [each.to_pylist() for each in stage(iter([batch.columns for batch in batches]))]
    assert {code for each in codes for code in each} <= {0}
    return [len(each) for each in codes]


def opened(folder, topic=""):
    made = versions_in(folder, policy(window=99))
    made.topic = topic
    return made.begin("")


def verdicts_of(begun, tasks=3):
    """By as many tasks; 0: it is done."""
    check = pickle.loads(pickle.dumps(DeferredCheck(begun.stage, begun.optimistic_pass(), tasks)))
    for task in range(tasks):
        check(task)
    files = {"files", "notes"}  # they have names of their own
    reports = {
        home: {name: each for name, each in report.items() if name not in files}
        for home, report in begun.reports().items()
    }
    lookup = begun.lookup()
    work = lookup.work.local
    verdicts = [row for f in lookup.files for row in pa.parquet.read_table(work / f).to_pylist()]
    places = sorted((each["topic"], each["partition"], each["offset"]) for each in verdicts)
    return dict(lookup.counts), reports, places


def running(monkeypatch, task, attempt):
    monkeypatch.setattr(optimistic_pass, "_task", lambda: (task, attempt))


LOGS = [log(n, 60 * (n + 1), topic) for topic in ("a", "b") for n in (0, 1)]


def test_spooled_stamps_get_the_verdicts_of_shuffled_ones(tmp_path):
    """In batches of any size, a task for each partition or one for all."""
    first = opened(tmp_path / "first")
    packed = [row for each in LOGS for row in Gather(STAMPS)(iter([each]))]
    first.stage.validate(sorted(unpacked(iter(packed), STAMPS), key=lambda part: part[0]))
    wanted = verdicts_of(first, 0)
    assert wanted[0] == {("a", 0): 60, ("a", 1): 120, ("b", 0): 60, ("b", 1): 120}
    assert len(wanted[2]) > 100, "nothing was odd"
    for number, (tasks, size) in enumerate([(LOGS, 7), (LOGS[::-1], 1000), (LOGS, 1)]):
        begun = opened(tmp_path / str(number))
        for each in tasks:
            parts = [each.slice(at, size) for at in range(0, each.num_rows, size)]
            assert sum(passed(begun.optimistic_pass(), *parts)) == each.num_rows
        assert verdicts_of(begun) == wanted
    begun = opened(tmp_path / "one")
    assert passed(begun.optimistic_pass(), *LOGS) == [60, 120, 60, 120]
    assert verdicts_of(begun, 40) == wanted  # more than there are shards


def test_rows_have_a_topic_column_only_if_there_are_several_topics(tmp_path):
    begun = opened(tmp_path, topic="t")
    (columns,) = [each.columns[:4] for each in [log(3, 30)]]
    assert [len(each) for each in begun.optimistic_pass()(iter([columns]))] == [30]
    assert begun.optimistic_pass().spool().counts == {("t", 3): 30}
    assert verdicts_of(begun)[0] == {("t", 3): 30}


def test_offsets_of_64_bits_are_accepted(tmp_path):
    """`spark.sql.execution.arrow.useLargeVarTypes`, in batches of any size."""
    first = opened(tmp_path / "first")
    passed(first.optimistic_pass(), *LOGS)
    wanted = verdicts_of(first)
    large = {pa.binary(): pa.large_binary(), pa.string(): pa.large_string()}
    for size in (1, 50):
        begun = opened(tmp_path / str(size))
        parts = [each.slice(at, size) for each in LOGS for at in range(0, each.num_rows, size)]
        columns = ([each.cast(large.get(each.type, each.type)) for each in p] for p in parts)
        assert sum(len(each) for each in begun.optimistic_pass().codes(columns)) == 360
        assert verdicts_of(begun) == wanted


def test_validated_stamps_are_deleted(tmp_path):
    begun = opened(tmp_path)
    passed(begun.optimistic_pass(), *LOGS)
    verdicts_of(begun)
    begun.optimistic_pass().clear()
    left = {place.suffix for place in begun.stage.work.local.iterdir()}
    assert left == {".json", ".parquet"}
    assert sum(begun.counts().values()) == 360


def test_damaged_files_are_reported(tmp_path):
    begun = opened(tmp_path)
    passed(begun.optimistic_pass(), LOGS[0])
    (file,) = begun.optimistic_pass().spool().files
    (begun.stage.work.local / file).write_bytes(b"short")
    with raises("dedup_files_unreadable"):
        verdicts_of(begun)


def test_no_row_waits(tmp_path):
    """A batch's codes are there before the next one is asked for."""
    given = []

    def batches():
        for at in range(5):
            given.append(at)
            yield log(0, 10, start=10 * at).columns

    seen = 0
    for seen, _ in enumerate(opened(tmp_path).optimistic_pass().codes(batches()), 1):
        assert len(given) == seen
    assert seen == 5


def test_rows_are_not_kept_in_memory(tmp_path):
    """A column keeps all of the batch in memory that it came in."""
    stage = opened(tmp_path).optimistic_pass()
    before = pa.total_allocated_bytes()
    kept = [
        pa.total_allocated_bytes() - before
        for _ in stage.codes(log(0, 10_000, start=10_000 * at).columns for at in range(30))
    ]
    assert len(kept) == 30
    assert max(kept) < 3 << 20


def test_a_task_that_runs_again_counts_once(tmp_path, monkeypatch):
    begun = opened(tmp_path)
    for attempt in range(2):
        running(monkeypatch, "3.0", attempt)
        passed(begun.optimistic_pass(), LOGS[0])
    assert len(begun.optimistic_pass().spool().files) == 1
    # A step that has the rows evaluated twice: another stage of Spark's, the same rows.
    running(monkeypatch, "4.0", 2)
    passed(begun.optimistic_pass(), LOGS[0])
    assert verdicts_of(begun)[0] == {("a", 0): 60}


def test_a_task_that_reads_several_parts_leaves_as_many_reports(tmp_path, monkeypatch):
    """One after the other; and an earlier run of the task died in between."""
    begun = opened(tmp_path)
    for attempt, parts in enumerate((LOGS[:1], LOGS, LOGS)):
        running(monkeypatch, "3.0", attempt)
        for part in parts:
            passed(begun.optimistic_pass(), part)
    assert verdicts_of(begun)[0] == {("a", 0): 60, ("a", 1): 120, ("b", 0): 60, ("b", 1): 120}
    running(monkeypatch, "3.0", 3)
    for part in (LOGS[0], LOGS[1], LOGS[2], log(1, 0)):
        passed(begun.optimistic_pass(), part)
    with raises("source_changed_during_attempt"):
        begun.optimistic_pass().spool()


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (log(0, 60), log(0, 59)),  # retention or compaction in between
        (log(0, 60), log(0, 59, start=1)),
        (log(0, 60), log(0, 0)),
        (log(0, 0), log(0, 60)),
    ],
)
def test_a_task_that_reads_other_records_when_it_runs_again_ends_the_attempt(
    tmp_path, monkeypatch, first, again
):
    stage = opened(tmp_path).optimistic_pass()
    for attempt, batch in enumerate((first, again)):
        running(monkeypatch, "3.0", attempt)
        passed(stage, batch)
    with raises("source_changed_during_attempt") as caught:
        stage.spool()
    assert ": t-0 " in caught.value.message


def test_overlapping_parts_end_the_attempt_and_adjacent_ones_do_not(tmp_path):
    begun = opened(tmp_path)
    passed(begun.optimistic_pass(), log(0, 60))
    passed(begun.optimistic_pass(), log(0, 60, start=60))
    assert verdicts_of(begun)[0] == {("t", 0): 120}
    passed(begun.optimistic_pass(), log(0, 60, start=30))
    with raises("source_changed_during_attempt") as caught:
        begun.optimistic_pass().spool()
    assert "t-0 0 to 59, t-0 30 to 89" in caught.value.message


def test_an_unfinished_task_leaves_no_report(tmp_path):
    stage = opened(tmp_path).optimistic_pass()
    running = stage.codes(each.columns for each in LOGS)
    next(running)
    running.close()
    assert stage.spool() == ((), {})
    assert list(stage.codes(iter(()))) == []  # a part of the source without records
    assert stage.spool() == ((), {})
    passed(stage, LOGS[1])
    assert stage.spool().counts == {("a", 1): 120}


def test_an_unwritable_folder_is_reported(tmp_path):
    stage = OptimisticPass("orders", LocalFolder(tmp_path / "gone"))
    with pytest.raises(CrossingError) as caught:
        list(stage(iter([LOGS[0].columns])))
    error = crossed(str(caught.value))
    assert isinstance(error, UnavailableError)
    assert error.message == (
        "orders: the stamps of producers' records can't be written to "
        f"{tmp_path / 'gone'}: No such file or directory"
    )


def test_an_error_of_reading_rows_does_not_blame_the_folder(tmp_path):
    def broken():
        yield LOGS[0].columns
        raise ConnectionResetError("the JVM is gone")

    stage = opened(tmp_path).optimistic_pass()
    with pytest.raises(ConnectionResetError, match="the JVM is gone"):
        list(stage(broken()))
    assert not list(stage.work.local.glob("*.passed"))
