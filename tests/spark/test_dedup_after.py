"""With `scope: producer` records are written before they are validated. If dedup drops one, the
attempt is retried with validation first, and the next micro-batches validate first, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from pyspark.sql import DataFrame, SparkSession
from support.dedup import policy
from support.dedup.on_spark import DEDUP, Run, encoding, offsets, selected
from support.errors import in_turn, raises
from support.spark.spark_session import local_spark

from eos.dedup import validation_mode
from eos.dedup.stamp_columns import StampPlace
from eos.errors import (
    AttemptFailedError,
    PromiseBrokenError,
    RecordRefusedError,
    TransformError,
)
from eos.seal import crossed
from eos.spark.steps import encodable

pytestmark = pytest.mark.spark
FEW = 3  # micro-batches that validate first


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let fewer micro-batches validate first than in a run."""
    monkeypatch.setattr(validation_mode, "VALIDATE_FIRST_MAX", FEW)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("validate_after") as session:
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "30")  # several of them
        yield session


def of_no_use(rows: DataFrame) -> DataFrame:
    return rows.where("false")


@pytest.mark.parametrize("in_one_task", [True, False])
@pytest.mark.parametrize(
    "dedup",
    [
        DEDUP,
        pytest.param(replace(DEDUP, producer=StampPlace("key")), marks=pytest.mark.nightly),
        pytest.param(replace(DEDUP, verdict="how"), marks=pytest.mark.long),
    ],
)
def test_without_duplicates_the_output_is_that_without_dedup(spark, tmp_path, dedup, in_one_task):
    run = Run(spark, tmp_path, dedup)
    for _ in range(2):
        frame = run.next()
        plain = encoding(run.plan, encodable(run.plan, frame)).collect()
        found = run.try_once(frame, in_one_task=in_one_task)
        assert [row[:-1] for row in found] == [row[:-1] for row in plain]
        assert [bytes(row.blob) for row in found] == [bytes(row.blob) for row in plain]
        assert run.jobs == 0, "validated before the write"
        assert not list((tmp_path / "producers").rglob("*.stamps")), "validated, and not removed"
        assert run.commit() == {"appended": 400}


@pytest.mark.parametrize(
    ("in_one_task", "made"), in_turn(product((True, False), (None, selected)), of_these=2)
)
def test_an_attempt_with_duplicates_is_retried_without_them(spark, tmp_path, made, in_one_task):
    run = Run(spark, tmp_path)
    run.try_once(run.next(), made)
    run.commit()
    frame = run.next(again=60)
    with raises("duplicates_written") as caught:
        run.try_once(frame, made, in_one_task=in_one_task)
    assert "60 duplicate" in caught.value.message
    written = run.try_once(frame, made, in_one_task=in_one_task)
    assert run.jobs == 0, "they were validated already"
    if made is not None:
        assert offsets(written) == list(range(460, 800))
    assert run.commit() == {"appended": 340, "duplicate": 60}


@pytest.mark.nightly
def test_the_next_micro_batches_validate_first(spark, tmp_path):
    run = Run(spark, tmp_path)
    run.try_once(run.next())
    run.commit()
    frame = run.next(again=60)
    with pytest.raises(AttemptFailedError):
        run.try_once(frame)
    run.try_once(frame)
    run.commit()
    # One with duplicates among them costs no attempt, and counts from the beginning.
    clean = [0] * FEW
    for again in [*clean[1:], 5, *clean]:
        written = run.try_once(run.next(again), selected)
        assert len(written) == 400 - again
        run.commit()
    frame = run.next(again=60)
    with pytest.raises(AttemptFailedError):
        run.try_once(frame)


def test_a_retry_after_a_failure_validates_first(spark, tmp_path):
    """Whatever that one failed of: then it is not the rows that dedup leaves out."""
    run = Run(spark, tmp_path)
    run.try_once(run.next())
    run.commit()
    frame = run.next(again=60)
    with pytest.raises(ZeroDivisionError):
        run.try_once(frame, lambda _rows: 1 / 0)
    assert offsets(run.try_once(frame, selected)) == list(range(460, 800))
    run.commit()
    for _ in range(FEW):
        run.try_once(run.next())
        run.commit()
    with pytest.raises(AttemptFailedError):
        run.try_once(run.next(again=60))


def test_verdicts_of_an_attempt_are_reused_in_its_micro_batch_only(spark, tmp_path):
    run = Run(spark, tmp_path)
    run.try_once(run.next())
    run.commit()
    with pytest.raises(AttemptFailedError):
        run.try_once(run.next(again=60))
    assert len(run.try_once(run.next(), selected)) == 400
    assert run.jobs == 0


def test_an_error_before_validation_is_final_only_in_the_retry(spark, tmp_path):
    run = Run(spark, tmp_path)
    frame = run.next()
    run.try_once(frame)
    final = RecordRefusedError("example", "no"), TransformError("example", "broken")
    run.dedup.forget_attempts()
    assert [run.retriable(each) for each in final] == list(final), "all were validated"
    with pytest.raises(ZeroDivisionError):
        run.try_once(frame, lambda _rows: 1 / 0)
    for each in final:
        error = run.retriable(each)
        assert isinstance(error, AttemptFailedError)
        assert error.code == "record_unvalidated"
        assert error.message.startswith(each.message)
    lost = PromiseBrokenError("example", "the source lost records")
    assert run.retriable(lost) is lost
    run.try_once(frame)
    assert [run.retriable(each) for each in final] == list(final), "it validated first"


def test_a_gap_is_found_after_the_write(spark, tmp_path):
    run = Run(spark, tmp_path, replace(DEDUP, policy=policy(refused=("gap",), window=9)))
    frame = run.next()
    lacking = frame.where("offset % 23 <> 5 OR offset DIV 23 <> 3")  # its third; 12 lies too far on
    words = "record of a-1 at offset 281, with verdict gap"
    with raises("producer_refused") as caught:
        run.try_once(lacking)
    assert words in caught.value.message
    assert isinstance(run.retriable(caught.value), AttemptFailedError)
    with pytest.raises(Exception, match=words) as again:  # validated first, the same error is final
        run.try_once(lacking)
    error = crossed(str(again.value))
    assert run.retriable(error) is error


@pytest.mark.long
def test_pruned_rows_are_validated_too(spark, tmp_path):
    """Spark does not read rows that no sink reads."""
    run = Run(spark, tmp_path)
    frame = run.next()
    with raises("dedup_rows_pruned") as caught:
        run.try_once(frame, of_no_use)
    assert caught.value.message.startswith("dedup validated 0 of 400 records")
    assert run.try_once(frame, of_no_use) == []
    assert run.commit() == {"appended": 400}
    for _ in range(FEW - 1):  # it does not fail each time
        assert run.try_once(run.next(), of_no_use) == []
        run.commit()


def test_partitions_without_records_cost_no_retry(spark, tmp_path):
    """Offsets go on where there are control records alone."""
    run = Run(spark, tmp_path)
    frame = run.next().where("partition = 1")
    assert len(run.try_once(frame, selected)) == 200
    assert run.jobs == 0
    assert sum(run.commit().values()) == 200


def test_unvalidated_records_are_not_committed(spark, tmp_path, monkeypatch):
    """As if a validating task saw a part of the stamp files only."""
    run = Run(spark, tmp_path)
    monkeypatch.setattr("eos.dedup.optimistic_pass.SHARDS", 8)
    with raises("dedup_rows_pruned") as caught:
        run.try_once(run.next())
    assert caught.value.message.startswith("dedup validated 243 of 400 records")


def test_rows_that_a_step_reads_twice_are_validated_once(spark, tmp_path):
    run = Run(spark, tmp_path)
    twice = run.try_once(run.next(), lambda rows: rows.union(rows).select("offset"))
    assert Counter(offsets(twice)) == dict.fromkeys(range(400), 2)
    assert run.commit() == {"appended": 400}
