"""Micro-batches of one task on `local-cluster`, whose executors are processes, with faults in them.

The Spark is a SPARK_HOME of the user's. It has a folder of its own, since executors work in it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.kafka import kafka_io
from support.spark.executor_faults import FaultyRun, check_never_mixed, declare
from support.spark.project import Project

from eos.launch import spark
from eos.local.embedded_kafka import EmbeddedKafka

pytestmark = pytest.mark.long

RECORDS = 500
FROZEN = "2/first_produce:after:frozen"
FAULTS = [
    "1/first_produce:before:worker",
    "1/written:after:executor",
    FROZEN,
    "3/first_produce:after:hung",
]
COUNT = 5 * RECORDS


@pytest.mark.nightly  # test_executors_cluster.py has most of its faults
def test_no_two_attempts_are_mixed_in_micro_batches_of_one_task(
    broker: EmbeddedKafka, tmp_path: Path
) -> None:
    project = Project.made(tmp_path, broker)
    declare(project, "local-cluster[2,1,1024]", RECORDS, timeout="40 seconds")
    kafka_io.fill(broker.bootstrap, project.source, range(COUNT))
    with FaultyRun(project, FAULTS, SPARK_HOME=str(installed(tmp_path / "spark"))) as run:
        run.wake_after(FROZEN)
        assert run.wait() == 0, run.said()
        run.check_each_struck(FAULTS)
        # Spark alone would wait for the worker that hangs as long as it does.
        assert run.said().count("the broker ended the transaction (") == 1
    check_never_mixed(project, COUNT)


def test_a_spark_that_does_not_start_is_named_with_the_cause(
    broker: EmbeddedKafka, tmp_path: Path
) -> None:
    project = Project.made(tmp_path, broker)
    project.declare(RECORDS)
    text = project.profile.read_text()
    project.profile.write_text(text.replace("bindAddress: 127.0.0.1", "bindAddress: 192.0.2.99"))
    ended = project.run()
    assert ended.returncode == 5
    assert "Spark did not start on local[2]: java.net.BindException" in ended.stderr


def installed(home: Path) -> Path:
    """Spark's own files, in another place."""
    home.mkdir()
    for name in ("bin", "jars", "python"):
        (home / name).symlink_to(spark.find_spark().home / name)
    return home
