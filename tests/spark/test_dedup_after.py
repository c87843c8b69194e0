"""Records are written before they are judged: those of spread producers, and of others where many
come at a time. Where some have to go the attempt is done again by the verdicts, and micro-batches
after it wait for theirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame, SparkSession
from support.dedup import policy
from support.dedup_on_spark import DEDUP, IN_ORDER, TASKS, DedupRun, encoding, offsets, selected
from support.errors import raises
from support.spark_session import local_spark

from eos.dedup.stamp_columns import StampPlace
from eos.errors import (
    AttemptFailedError,
    PromiseBrokenError,
    RecordRefusedError,
    TransformError,
)
from eos.seal import crossed
from eos.spark.dedup_attempt import LOOKS_FIRST
from eos.spark.steps import encodable
from eos.spark.tasks import nothing

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("judged_behind") as session:
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "30")  # several of them
        yield session


def of_no_use(rows: DataFrame) -> DataFrame:
    return rows.where("false")


@pytest.mark.parametrize("in_one_task", [True, False])
@pytest.mark.parametrize(
    "dedup",
    [
        DEDUP,
        replace(DEDUP, producer=StampPlace("key")),
        replace(DEDUP, verdict="how"),
        IN_ORDER,
        replace(IN_ORDER, verdict="how"),
    ],
)
def test_where_all_stay_they_are_written_as_if_there_were_no_dedup(
    spark, tmp_path, dedup, in_one_task
):
    run = DedupRun(spark, tmp_path, dedup)
    for _ in range(2):
        frame = run.next()
        plain = encoding(run.plan, encodable(run.plan, frame)).collect()
        found = run.attempt(frame, in_one_task=in_one_task)
        assert [row[:-1] for row in found] == [row[:-1] for row in plain]
        assert [bytes(row.blob) for row in found] == [bytes(row.blob) for row in plain]
        assert run.jobs == 0, "the stamps were looked at first"
        # A second job of the attempt, for dead letters, has nothing to judge.
        assert (run.dedup.judges, run.dedup.behind(TASKS)) == (0, nothing)
        assert not list((tmp_path / "producers").rglob("*.stamps")), "judged, and not removed"
        assert run.commit() == {"appended": 400}


@pytest.mark.parametrize("made", [None, selected])
@pytest.mark.parametrize("in_one_task", [True, False])
def test_where_some_have_to_go_it_is_done_again_without_them(spark, tmp_path, made, in_one_task):
    run = DedupRun(spark, tmp_path)
    run.attempt(run.next(), made)
    run.commit()
    frame = run.next(again=60)
    with raises("duplicates_written") as caught:
        run.attempt(frame, made, in_one_task=in_one_task)
    assert "60 duplicate" in caught.value.message
    written = run.attempt(frame, made, in_one_task=in_one_task)
    assert run.jobs == 0, "they were judged already"
    if made is not None:
        assert offsets(written) == list(range(460, 800))
    assert run.commit() == {"appended": 340, "duplicate": 60}


@pytest.mark.long
def test_behind_that_so_many_micro_batches_are_looked_at_first(spark, tmp_path):
    run = DedupRun(spark, tmp_path)
    run.attempt(run.next())
    run.commit()
    frame = run.next(again=60)
    with pytest.raises(AttemptFailedError):
        run.attempt(frame)
    run.attempt(frame)
    run.commit()
    # One with duplicates among them costs no attempt, and counts from the beginning.
    clean = [0] * LOOKS_FIRST
    for again in [*clean[:3], 5, *clean]:
        written = run.attempt(run.next(again), selected)
        assert len(written) == 400 - again
        run.commit()
    frame = run.next(again=60)
    with pytest.raises(AttemptFailedError):
        run.attempt(frame)


@pytest.mark.parametrize(("dedup", "again"), [(DEDUP, 60), (IN_ORDER, 5)])
def test_an_attempt_after_one_that_failed_looks_first(spark, tmp_path, dedup, again):
    """Whatever that one failed of: then it is not the rows that dedup leaves out."""
    run = DedupRun(spark, tmp_path, dedup)
    run.attempt(run.next())
    run.commit()
    frame = run.next(again)
    with pytest.raises(ZeroDivisionError):
        run.attempt(frame, lambda _rows: 1 / 0)
    assert offsets(run.attempt(frame, selected)) == list(range(400 + again, 800))
    run.commit()
    for _ in range(LOOKS_FIRST):
        run.attempt(run.next())
        run.commit()
    with pytest.raises(AttemptFailedError):
        run.attempt(run.next(again))


def test_what_was_judged_behind_one_attempt_is_for_its_micro_batch_only(spark, tmp_path):
    run = DedupRun(spark, tmp_path)
    run.attempt(run.next())
    run.commit()
    with pytest.raises(AttemptFailedError):
        run.attempt(run.next(again=60))
    assert len(run.attempt(run.next(), selected)) == 400
    assert run.jobs == 0


def test_what_is_refused_before_it_was_judged_is_refused_by_who_looks_first(spark, tmp_path):
    run = DedupRun(spark, tmp_path)
    frame = run.next()
    run.attempt(frame)
    final = RecordRefusedError("example", "no"), TransformError("example", "broken")
    run.dedup.next_micro_batch()
    assert [run.dedup.doubted(each) for each in final] == list(final), "all were judged"
    with pytest.raises(ZeroDivisionError):
        run.attempt(frame, lambda _rows: 1 / 0)
    for each in final:
        told = run.dedup.doubted(each)
        assert isinstance(told, AttemptFailedError)
        assert told.code == "record_unvalidated"
        assert told.message.startswith(each.message)
    lost = PromiseBrokenError("example", "the source lost records")
    assert run.dedup.doubted(lost) is lost
    run.attempt(frame)
    assert [run.dedup.doubted(each) for each in final] == list(final), "it looked first"


def test_a_gap_is_refused_behind_what_was_written(spark, tmp_path):
    run = DedupRun(spark, tmp_path, replace(DEDUP, policy=policy(refused=("gap",), window=9)))
    frame = run.next()
    lacking = frame.where("offset % 23 <> 5 OR offset DIV 23 <> 3")  # its third; 12 lies too far on
    words = "record of a-1 at offset 281, with verdict gap"
    with raises("producer_refused") as caught:
        run.attempt(lacking)
    assert words in caught.value.message
    assert isinstance(run.dedup.doubted(caught.value), AttemptFailedError)
    with pytest.raises(Exception, match=words) as again:  # who looks first says so for good
        run.attempt(lacking)
    told = crossed(str(again.value))
    assert run.dedup.doubted(told) is told


@pytest.mark.parametrize(
    ("dedup", "told"),
    [
        (DEDUP, "dedup validated 0 of 400 records"),
        (IN_ORDER, "dedup did not validate records of a-0, a-1,"),
    ],
)
def test_rows_that_nothing_comes_of_are_judged_all_the_same(spark, tmp_path, dedup, told):
    """Spark does not read what it sees to be in vain."""
    run = DedupRun(spark, tmp_path, dedup)
    frame = run.next()
    with raises("dedup_rows_pruned") as caught:
        run.attempt(frame, of_no_use)
    assert caught.value.message.startswith(told)
    assert run.attempt(frame, of_no_use) == []
    assert run.commit() == {"appended": 400}
    for _ in range(LOOKS_FIRST - 1):  # it does not fail each time
        assert run.attempt(run.next(), of_no_use) == []
        run.commit()


def test_partitions_without_records_are_no_reason_to_judge_again(spark, tmp_path):
    """Offsets go on where there are control records alone."""
    run = DedupRun(spark, tmp_path)
    frame = run.next().where("partition = 1")
    assert len(run.attempt(frame, selected)) == 200
    assert run.jobs == 0
    assert sum(run.commit().values()) == 200


def test_what_was_not_judged_is_not_committed(spark, tmp_path, monkeypatch):
    """As if a task that judges saw less of the folder than there is."""
    run = DedupRun(spark, tmp_path)
    monkeypatch.setattr("eos.dedup.optimistic_pass.SHARDS", 8)
    with raises("dedup_rows_pruned") as caught:
        run.attempt(run.next())
    assert caught.value.message.startswith("dedup validated 243 of 400 records")


def test_rows_that_a_step_sees_twice_are_judged_once(spark, tmp_path):
    run = DedupRun(spark, tmp_path)
    twice = run.attempt(run.next(), lambda rows: rows.union(rows).select("offset"))
    assert Counter(offsets(twice)) == dict.fromkeys(range(400), 2)
    assert run.commit() == {"appended": 400}


@pytest.mark.parametrize("made", [None, selected])
def test_in_order_many_are_written_first_and_few_wait(spark, tmp_path, made):
    run = DedupRun(spark, tmp_path, IN_ORDER)
    run.attempt(run.next(), made)
    run.commit()
    frame = run.next(again=5)
    with raises("duplicates_written") as caught:
        run.attempt(frame, made)
    assert "5 duplicate" in caught.value.message
    written = run.attempt(frame, made)
    if made is not None:
        assert offsets(written) == list(range(405, 800))
    assert run.commit() == {"appended": 395, "duplicate": 5}
    # One with duplicates among them costs no attempt, and counts from the beginning.
    for again in [0, 3, *[0] * LOOKS_FIRST]:
        run.attempt(run.next(again), made)
        run.commit()
    frame = run.next(again=4)
    with pytest.raises(AttemptFailedError):
        run.attempt(frame, made)
    few = DedupRun(spark, tmp_path / "few", IN_ORDER)
    few.attempt(few.next(), made, in_one_task=True)
    few.commit()
    written = few.attempt(few.next(again=5), made, in_one_task=True)
    if made is not None:
        assert offsets(written) == list(range(405, 800))
    assert few.commit() == {"appended": 395, "duplicate": 5}


def test_in_order_a_gap_is_refused_by_who_waits(spark, tmp_path):
    run = DedupRun(spark, tmp_path, IN_ORDER)
    lacking = run.next().where("offset <> 50")
    words = "record of a-0 at offset 51, with verdict gap"
    with pytest.raises(Exception, match=words) as caught:
        run.attempt(lacking)
    assert isinstance(run.dedup.doubted(crossed(str(caught.value))), AttemptFailedError)
    with pytest.raises(Exception, match=words) as again:
        run.attempt(lacking)
    told = crossed(str(again.value))
    assert isinstance(told, RecordRefusedError)
    assert run.dedup.doubted(told) is told
