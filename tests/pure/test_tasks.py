"""What Spark's tasks leave in their worker."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext

from eos.encode.sink_spec import SinkSpec
from eos.encode.stage import EncodeStage
from eos.faults import CrashPlan
from eos.kafka.api import Identity, TransactionProfile
from eos.kafka.settings import KafkaSettings
from eos.kafka.target_partitions import Targets
from eos.seal import CrossingError
from eos.spark import tasks
from eos.spark.exchange import Exchange

TARGETS = Targets.of({"out": (1, 1_000_000)})
NO_CRASH = CrashPlan.from_environment().of_tasks(0)
ENCODE = EncodeStage((SinkSpec("out"),), TARGETS, n_writers=1, base_timestamp_ms=0)
WRITE = tasks.WriteStage(
    KafkaSettings(("nowhere:1",)),
    TransactionProfile.TV2,
    "id",
    Identity(1, 1),
    TARGETS,
    1_000,
    NO_CRASH,
)


@pytest.fixture(autouse=True)
def second_attempt() -> Iterator[None]:
    """Of a task: a writer refuses before it connects."""
    context = TaskContext()
    context._attemptNumber, context._partitionId = 1, 0
    TaskContext._setTaskContext(context)
    tasks.settle.cache_clear()
    yield
    TaskContext._setTaskContext(None)
    gc.unfreeze()


@pytest.mark.parametrize(
    "task",
    [
        tasks.EncodeTask(ENCODE, NO_CRASH),
        tasks.WriteTask(WRITE),
        tasks.EncodeAndWriteTask(ENCODE, WRITE),
        tasks.EncodeToFilesTask(ENCODE, Exchange("nowhere", 1), NO_CRASH),
    ],
    ids=["encode", "write", "both", "files"],
)
def test_modules_are_no_garbage_for_a_worker(task: Callable[[Iterator[Any]], Any]) -> None:
    """Spark lets it look for some after each task, which costs more than a small task does."""
    assert gc.get_freeze_count() < 10_000
    with suppress(Exception):
        list(task(iter(())))
    frozen = gc.get_freeze_count()
    assert frozen > 10_000
    since: list[list[int]] = [[] for _ in range(10_000)]  # as what a task leaves: garbage again
    with suppress(Exception):
        list(task(iter(())))
    assert gc.get_freeze_count() < frozen + len(since)


def test_a_repeated_task_leaves_no_record_batches_next_to_those_of_the_first(
    tmp_path: Path,
) -> None:
    with Exchange(str(tmp_path / "exchange"), 1).opened() as exchange:
        task = tasks.EncodeToFilesTask(ENCODE, exchange, NO_CRASH)
        with pytest.raises(CrossingError) as caught:
            list(task(iter(())))
        assert "task_attempt_repeated" in str(caught.value)
        assert list(exchange.batches(0)) == []
