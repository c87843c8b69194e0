"""Whose process does the work of a small micro-batch: the driver's, or a worker of Spark's?"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from support import doubles

from eos.checkpoint.offset_log import Ranges
from eos.faults import CrashPlan, TaskFault
from eos.kafka.api import Identity, TopicPartition
from eos.micro_batch.jobs import ONE_TASK_RECORDS_MAX, Jobs
from eos.spark.fused_step import SinkRows
from eos.spark.python_rows import PythonPlan, PythonRows

PLAIN = SinkRows((), (), None)  # type: ignore[arg-type]  # its schema is not read
USERS = replace(PLAIN, part=lambda: None)  # type: ignore[arg-type]  # it is not called
DEDUP = object()
FAULT = CrashPlan(tasks=(TaskFault(0, "written:after", "worker", "nowhere"),))


def test_the_writers_of_each_job_have_the_same_time() -> None:
    """However long an earlier job of the attempt took."""
    plan = replace(doubles.plan(), transaction_timeout_ms=60_000)
    client = SimpleNamespace(settings=None, profile=None)
    stages: Any = SimpleNamespace(plan=plan, client=client, crash=CrashPlan())
    jobs = Jobs(stages, 0, Ranges({}, {}), Identity(1, 0))
    targets: Any = None
    assert jobs._write_stage(targets).timeout_ms == 48_000


@pytest.mark.parametrize(
    ("records", "slots", "rows", "crash", "dedup", "is_in_driver"),
    [
        (1, 2, PLAIN, CrashPlan(), None, True),
        (ONE_TASK_RECORDS_MAX, 2, PLAIN, CrashPlan(), None, True),
        (ONE_TASK_RECORDS_MAX + 1, 2, PLAIN, CrashPlan(), None, False),
        (1, 0, PLAIN, CrashPlan(), None, False),
        (1, 2, USERS, CrashPlan(), None, False),
        (1, 2, PLAIN, FAULT, None, False),
        (1, 2, PLAIN, CrashPlan(), DEDUP, False),
    ],
    ids=["few", "just few", "many", "cluster", "a user's function", "a fault of a task", "dedup"],
)
def test_the_driver_does_only_small_work_of_its_own_on_its_own_machine(
    records: int, slots: int, rows: SinkRows, crash: CrashPlan, dedup: Any, is_in_driver: bool
) -> None:
    stages: Any = SimpleNamespace(
        plan=doubles.plan(), reader=SimpleNamespace(slots=slots), crash=crash
    )
    tp = TopicPartition("in", 0)
    ranges = Ranges({tp: 0}, {tp: records})
    jobs = Jobs(stages, 0, ranges, Identity(1, 0))
    unused: Any = None
    python = PythonRows(unused, unused, PythonPlan(rows))
    assert jobs._runs_in_driver(python, dedup) is is_in_driver
