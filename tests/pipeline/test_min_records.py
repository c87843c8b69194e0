"""A micro-batch waits for `min_records`, and not longer than `max_delay`."""

from __future__ import annotations

import signal
import time

import pytest
from support.kafka import kafka_io
from support.spark.project import PIPELINE, Project
from support.waiting import wait_until

pytestmark = pytest.mark.long

MIN = 15
WAITING = PIPELINE.replace("available_now: true", "every: 20 ms").replace(
    "max_records: {records}", f"min_records: {MIN}, max_delay: DELAY"
)


def test_a_micro_batch_waits_for_records_or_for_the_longest_time(project: Project) -> None:
    bootstrap = project.broker.bootstrap
    kafka_io.create_topics(bootstrap, 1, project.source)

    def written() -> int:
        return len(kafka_io.read(bootstrap, project.target))

    kafka_io.fill(bootstrap, project.source, range(1))
    project.declare(0, text=WAITING.replace("DELAY", "1 day"))
    run = project.start_warm()
    wait_until(lambda: "committed: 1 record" in run.said(), run.said)  # the first one never waits
    for number in range(1, MIN):
        kafka_io.fill(bootstrap, project.source, [number])
        time.sleep(0.03)  # longer than `every`: without the minimum, Spark would read this record
    assert run.said().count(" committed: ") == 1
    kafka_io.fill(bootstrap, project.source, [MIN])
    wait_until(lambda: f"committed: {MIN} records" in run.said(), run.said)
    kafka_io.fill(bootstrap, project.source, [MIN + 1])
    run.send_signal(signal.SIGTERM)
    assert run.wait() == 0, run.said()
    assert run.said().count(" committed: ") == 2
    assert written() == 1 + MIN

    # The longest time alone brings the rest of the records.
    project.declare(0, text=WAITING.replace("DELAY", "1 second"))
    run = project.start_warm()
    wait_until(lambda: written() == 2 + MIN, run.said)
    kafka_io.fill(bootstrap, project.source, [MIN + 2])
    wait_until(lambda: written() == 3 + MIN, run.said)
    run.send_signal(signal.SIGTERM)
    assert run.wait() == 0, run.said()

    # A run that ends reads everything, however little that is. Spark would leave out the last one.
    kafka_io.fill(bootstrap, project.source, range(MIN + 3, MIN + 10))
    text = WAITING.replace("DELAY", "1 day").replace(f"min_records: {MIN}", "min_records: 3")
    project.declare(0, text=text.replace("max_delay", "max_records: 3, max_delay"))
    drained = project.run_warm("--available-now")
    assert drained.returncode == 0, drained.stderr
    assert drained.stderr.count(" committed: ") == 3
    assert written() == 10 + MIN
