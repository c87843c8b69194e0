"""Records are validated before they are written: with `scope: partition`, by a switch, or after an
upstream has resent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from pyspark.sql import SparkSession
from support.dedup.on_spark import DEDUP, IN_ORDER, Run, encoding, offsets, selected
from support.errors import in_turn
from support.spark.spark_session import local_spark

from eos.dedup import validation_mode
from eos.errors import DedupRetryError, RecordRefusedError
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
    with local_spark("validate_first") as session:
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "30")  # several of them
        yield session


@pytest.mark.nightly
def test_the_next_run_remembers_that_an_upstream_resends(spark, tmp_path):
    run = Run(spark, tmp_path, DEDUP)
    run.try_once(run.next())
    run.commit()
    assert run.position.validate_first == 0
    frame = run.next(again=60)
    with pytest.raises(DedupRetryError):
        run.try_once(frame)
    run.try_once(frame)
    run.commit()
    assert run.position.validate_first == FEW
    for left in range(FEW, 0, -1):
        assert run.position.validate_first == left
        run.restart()
        run.try_once(run.next(), selected)
        assert run.attempt.validators == 0, "nothing is left to validate after the writing"
        run.commit()
    run.restart()
    with pytest.raises(DedupRetryError):
        run.try_once(run.next(again=60))


@pytest.mark.parametrize(
    ("dedup", "in_one_task"),
    in_turn(product((replace(DEDUP, validates_first=True), IN_ORDER), (True, False)), of_these=2),
)
def test_no_attempt_is_retried_if_records_are_validated_first(spark, tmp_path, dedup, in_one_task):
    run, again = Run(spark, tmp_path, dedup), 60 if dedup.policy.window else 5
    run.try_once(run.next())
    run.commit()
    for resent in (again, 0, again):
        written = run.try_once(run.next(resent), selected, in_one_task=in_one_task)
        first = 400 * run.turn
        assert offsets(written) == list(range(first + resent, first + 400))
        dropped = {"duplicate": resent} if resent else {}
        assert run.commit() == {"appended": 400 - resent} | dropped


@pytest.mark.parametrize("verdict", ["", pytest.param("how", marks=pytest.mark.long)])
def test_in_partition_scope_the_output_without_duplicates_is_that_without_dedup(
    spark, tmp_path, verdict
):
    run = Run(spark, tmp_path, replace(IN_ORDER, verdict=verdict))
    for _ in range(2):
        frame = run.next()
        plain = encoding(run.plan, encodable(run.plan, frame)).collect()
        found = run.try_once(frame)
        assert [row[:-1] for row in found] == [row[:-1] for row in plain]
        assert [bytes(row.blob) for row in found] == [bytes(row.blob) for row in plain]
        assert run.jobs == 0
        assert run.commit() == {"appended": 400}
        assert run.position.validate_first == 0


def test_in_partition_scope_pruned_rows_are_validated(spark, tmp_path):
    """Spark does not read rows that no sink reads. Their states are needed all the same."""
    run = Run(spark, tmp_path, IN_ORDER)
    assert run.try_once(run.next(), lambda rows: rows.where("false")) == []
    assert run.commit() == {"appended": 400}
    run.try_once(run.next(again=5))
    assert run.commit() == {"appended": 395, "duplicate": 5}


def test_in_partition_scope_a_gap_ends_the_run_at_once(spark, tmp_path):
    run = Run(spark, tmp_path, IN_ORDER)
    lacking = run.next().where("offset <> 50")
    words = "record of a-0 at offset 51, with verdict gap"
    with pytest.raises(Exception, match=words) as caught:
        run.try_once(lacking)
    error = crossed(str(caught.value))
    assert isinstance(error, RecordRefusedError)
    assert run.retriable(error) is error
