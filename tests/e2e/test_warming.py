"""The job beside a start: the next one finds a worker that has our stages; no run waits for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.local_spark import local_spark

from eos.run import warming
from eos.run.warming import Warming

WAIT_S_MAX = 300  # a bound, not a measure


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("warming") as session:
        yield session


@pytest.fixture(autouse=True)
def _cold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Warming, "_warm", "")


def _known_to_a_worker(spark: SparkSession) -> bool:
    """Before anything of ours is sent to it. Defined inside, so it travels without a module."""

    def known(batches: Any) -> Any:
        import sys

        is_known = "eos.run.tasks" in sys.modules
        for batch in batches:
            yield batch if is_known else batch.slice(0, 0)

    return bool(spark.range(1).mapInArrow(known, "id long").collect())


def _ended(warmed: Warming) -> bool:
    assert warmed._thread is not None
    warmed._thread.join(WAIT_S_MAX)
    return not warmed._thread.is_alive()


def test_the_next_job_finds_a_warm_worker_and_a_second_run_starts_no_job(
    spark: SparkSession,
) -> None:
    warmed = Warming(spark)
    assert _ended(warmed)
    assert _known_to_a_worker(spark)
    warmed.close()
    assert Warming(spark)._thread is None


def test_one_that_hangs_is_cancelled_and_leaves_spark_as_it_was(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hangs(batches: Any) -> Any:
        import time

        time.sleep(3600)
        yield from batches

    monkeypatch.setattr(warming, "WarmTask", lambda: hangs)
    warmed = Warming(spark)
    tracker, give_up_at = spark.sparkContext.statusTracker(), time.monotonic() + WAIT_S_MAX
    while not tracker.getActiveJobsIds():
        assert time.monotonic() < give_up_at, "it never ran"
        time.sleep(0.05)
    warmed.close()
    assert _ended(warmed)
    assert spark.range(3).count() == 3


def test_one_that_fails_says_nothing(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest turns what a thread does not catch into an error."""
    monkeypatch.setattr(warming, "_ROWS", ("no_such_column",))
    warmed = Warming(spark)
    assert _ended(warmed)
    warmed.close()
