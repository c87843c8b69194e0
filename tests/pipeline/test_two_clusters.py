"""The source on one cluster, targets and ledger on another: each record once, whatever dies.

A broker accepts group offsets only of its own topics, so the transaction has the ledger record
alone. The group's offsets are mirrored to the source's cluster after the commit.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from support import kafka_io
from support.brokers import Kafka, abandon
from support.project import PIPELINE, Project
from support.python_jobs import OPENED, RECORDS, eos, numbers, run
from support.waiting import wait_until

from eos.local.embedded_kafka import EmbeddedKafka
from eos.plan.reader import OVERRIDE

ACROSS = PIPELINE.replace("topic: {source},", "topic: {source}, cluster: there,")
PASSED_ON = ACROSS.replace("transform:\n", "").replace(
    '  - {{python: "pipelines.{module}.transform:passed_on"}}\n', ""
)
IN_SQL = ACROSS.replace(
    '{{python: "pipelines.{module}.transform:passed_on"}}',
    '{{sql: "SELECT key, value FROM input WHERE value IS NOT NULL"}}',
)
SAME_NAME = PASSED_ON.replace("{target}", "{source}")
FOREVER = PASSED_ON.replace("available_now: true", "every: 100 ms")
WAIT_S_MAX = 600


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """The cluster of the sources; `broker` is that of the targets."""
    with EmbeddedKafka(tmp_path_factory.mktemp("there")) as kafka:
        yield kafka
        abandon(kafka)


def connected(project: Project, there: Kafka) -> Project:
    """The project, with the other cluster in its profile."""
    text = f'clusters: {{there: {{bootstrap: "{there.bootstrap}"}}}}\n'
    project.profile.write_text(project.profile.read_text() + text)
    return project


@pytest.fixture
def across(project: Project, there: Kafka) -> Project:
    return connected(project, there)


def filled(project: Project, there: Kafka, text: str, count: int, records: int = 100) -> None:
    project.declare(records, 2, text)
    kafka_io.create_topics(there.bootstrap, 2, project.source)
    kafka_io.fill(there.bootstrap, project.source, range(count))


def check_copied(project: Project, there: Kafka, target: str = "") -> None:
    went_in = kafka_io.read(there.bootstrap, project.source)
    came_out = kafka_io.read(project.broker.bootstrap, target or project.target)
    assert went_in
    assert Counter((row.key, row.value) for row in came_out) == Counter(
        (row.key, row.value) for row in went_in
    )


def mirrored(project: Project, there: Kafka) -> dict[int, int]:
    return kafka_io.group_offsets(there.bootstrap, project.group, project.source)


def verb(project: Project, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "eos", name, *project.words(), *words],
        env=project.environment(),
        cwd=project.folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("reader", ["arrow", "spark"])
@pytest.mark.parametrize("text", [PASSED_ON, IN_SQL], ids=["passed on", "sql"])
def test_every_record_once_and_the_group_is_mirrored(
    across: Project, there: Kafka, text: str, reader: str
) -> None:
    filled(across, there, text, 450)
    done = across.run_warm(**{OVERRIDE: reader})
    assert done.returncode == 0, done.stderr
    check_copied(across, there)
    assert mirrored(across, there) == kafka_io.ends(there.bootstrap, across.source)
    assert across.group not in kafka_io.groups(across.broker.bootstrap)
    assert across.ledger not in kafka_io.outside.topics(there.bootstrap)


def test_the_commands_see_both_clusters(across: Project, there: Kafka) -> None:
    filled(across, there, PASSED_ON, 450)
    done = across.run_warm()
    assert done.returncode == 0, done.stderr
    for name in ("verify", "status", "recover", "audit", "doctor", "report"):
        found = verb(across, name)
        assert found.returncode == 0, (name, found.stdout, found.stderr)
    shown = verb(across, "plan", "--check")
    assert shown.returncode == 0, (shown.stdout, shown.stderr)
    assert "kafka, cluster there:" in shown.stdout
    status = json.loads(verb(across, "status", "--json").stdout)
    assert status["lag"] == 0
    kafka_io.fill(there.bootstrap, across.source, range(7))
    assert json.loads(verb(across, "status", "--json").stdout)["lag"] == 7
    for option in ("--from-group", "--restore-group"):
        refused = verb(across, "recover", option)
        assert refused.returncode == 2
        assert "[group_is_mirror]" in refused.stderr
