"""A run whose only broker stops answering for a while: what it reports, and that it goes on."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kafka import kafka_io
from support.spark.project import PIPELINE, Project
from support.waiting import wait_until

from eos.local.embedded_kafka import EmbeddedKafka

WAIT_S_MAX = 600
FOREVER = PIPELINE.replace("available_now: true", "every: 100 ms")


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Project]:
    """A project with a broker of its own."""
    with EmbeddedKafka(tmp_path / "broker") as kafka:
        yield Project.made(tmp_path, kafka)


@pytest.mark.long
def test_an_outage_while_a_pipeline_is_idle_is_reported_with_its_end(own: Project) -> None:
    bootstrap, log = own.broker.bootstrap, own.folder / "run.log"
    own.declare(1000, text=FOREVER)
    kafka_io.create_topics(bootstrap, 2, own.source)
    kafka_io.fill(bootstrap, own.source, range(100))
    with log.open("w") as stderr:
        process = subprocess.Popen(
            own.command(), env=own.environment(), cwd=own.folder, stderr=stderr
        )
    try:
        wait_until(lambda: "committed" in log.read_text(), log.read_text, process)
        (node,) = own.broker.nodes
        node.signal("broker_pid", signal.SIGSTOP)
        try:
            wait_until(
                lambda: "no broker has responded since" in log.read_text(), log.read_text, process
            )
        finally:
            node.signal("broker_pid", signal.SIGCONT)
        wait_until(
            lambda: "a broker responds again, after" in log.read_text(), log.read_text, process
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S_MAX) == 0, log.read_text()
    finally:
        process.kill()
    assert "lacks 0 attempts" not in log.read_text()
    assert log.read_text().count("no broker has responded since") == 1
