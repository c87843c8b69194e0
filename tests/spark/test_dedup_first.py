"""Records are validated before they are written: by a switch, or after an upstream has resent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession
from support.dedup_on_spark import DEDUP, IN_ORDER, Run, selected
from support.spark_session import local_spark

from eos.dedup import validation_mode
from eos.errors import DedupRetryError

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


@pytest.mark.parametrize(
    ("dedup", "again"), [(DEDUP, 60), pytest.param(IN_ORDER, 5, marks=pytest.mark.long)]
)
def test_the_next_run_remembers_that_an_upstream_resends(spark, tmp_path, dedup, again):
    run = Run(spark, tmp_path, dedup)
    run.try_once(run.next())
    run.commit()
    assert run.position.validate_first == 0
    frame = run.next(again)
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
        run.try_once(run.next(again))


@pytest.mark.parametrize(
    ("dedup", "again"), [(DEDUP, 60), pytest.param(IN_ORDER, 5, marks=pytest.mark.long)]
)
def test_with_validate_first_no_attempt_is_retried(spark, tmp_path, dedup, again):
    run = Run(spark, tmp_path, replace(dedup, validates_first=True))
    run.try_once(run.next())
    run.commit()
    for resent in (again, 0, again):
        assert len(run.try_once(run.next(resent), selected)) == 400 - resent
        run.commit()
