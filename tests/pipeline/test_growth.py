"""Many micro-batches in one process: what it holds stays flat, and what each of them costs."""

from __future__ import annotations

import os

import pytest
from support.kafka import kafka_io
from support.spark.processes import cpu_growth, growth, sample_run
from support.spark.project import Project

pytestmark = pytest.mark.long

MICRO_BATCHES = int(os.environ.get("EOS_GROWTH_MICRO_BATCHES", "300"))
# From the second third of them to the last: what leaks by the micro-batch leaks a hundred times.
MOST = {"threads": 15, "files": 30, "mb": 80}
JVM_MB_MOST = 300  # it takes what it may have before it collects
COSTS_AT_MOST = 1.5


@pytest.mark.nightly
@pytest.mark.timeout(1200 + 2 * MICRO_BATCHES)
def test_micro_batches_leave_nothing_behind(project: Project) -> None:
    bootstrap = project.broker.bootstrap
    project.declare(1, partitions=1)
    kafka_io.create_topics(bootstrap, 1, project.source)
    kafka_io.fill(bootstrap, project.source, range(MICRO_BATCHES))
    run = project.start_warm()
    samples = sample_run(run)
    assert run.wait(1200 + MICRO_BATCHES) == 0, run.said()
    assert samples[-1].micro_batch > MICRO_BATCHES * 0.9
    grown = growth(samples)
    most = {what: MOST[what.split()[1]] for what in grown} | {"jvm mb": JVM_MB_MOST}
    too_much = {what: by for what, by in grown.items() if by > most[what]}
    assert not too_much, grown
    assert cpu_growth(samples) < COSTS_AT_MOST
    assert len(kafka_io.read(bootstrap, project.target)) == MICRO_BATCHES
