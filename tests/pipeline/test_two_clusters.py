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
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from support.errors import in_turn
from support.kafka import kafka_io
from support.kafka.brokers import Kafka, abandon
from support.spark.project import PIPELINE, Project
from support.spark.python_jobs import OPENED, RECORDS, eos, run
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


def findings(project: Project) -> list[dict[str, Any]]:
    found = verb(project, "verify", "--json")
    assert found.returncode == 1, found.stderr
    return json.loads(found.stdout)["findings"]


@pytest.mark.parametrize(
    ("text", "reader"), in_turn(product((PASSED_ON, IN_SQL), ("spark", "arrow")), of_these=2)
)
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


@pytest.mark.nightly
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


@pytest.mark.long
def test_a_moved_or_deleted_mirror_changes_nothing(across: Project, there: Kafka) -> None:
    filled(across, there, PASSED_ON, 300)
    admin = AdminClient({"bootstrap.servers": there.bootstrap, "log_level": 3})
    assert across.run_warm().returncode == 0
    kafka_io.move_group(admin, across.group, across.source, {0: 5, 1: 10_000})
    kafka_io.fill(there.bootstrap, across.source, range(300, 500))
    done = across.run_warm()
    assert done.returncode == 0, done.stderr
    assert mirrored(across, there) == kafka_io.ends(there.bootstrap, across.source)
    kafka_io.delete_group(admin, across.group)
    done = across.run_warm()
    assert done.returncode == 0, done.stderr
    assert "differ from the ledger" not in done.stderr
    check_copied(across, there)
    assert mirrored(across, there) == kafka_io.ends(there.bootstrap, across.source)


@pytest.mark.long
def test_one_topic_name_on_both_clusters(across: Project, there: Kafka) -> None:
    filled(across, there, SAME_NAME, 250)
    done = across.run_warm()
    assert done.returncode == 0, done.stderr
    check_copied(across, there, across.source)
    assert across.run_warm().returncode == 0
    check_copied(across, there, across.source)
    found = verb(across, "verify", "--json")
    assert found.returncode == 0, found.stdout
    producer = kafka_io.producer(across.broker.bootstrap)
    producer.produce(across.source, b"7", b"7", 0)
    assert producer.flush(300) == 0
    assert verb(across, "verify").returncode == 1


def test_verify_finds_what_either_cluster_lost(across: Project, there: Kafka) -> None:
    filled(across, there, PASSED_ON, 250)
    assert across.run_warm().returncode == 0
    admin = AdminClient({"bootstrap.servers": across.broker.bootstrap, "log_level": 3})
    kafka_io.delete_records(admin, across.target, 0, 1)
    (lost,) = findings(across)
    assert (lost["topic"], lost["partition"], lost["offset"]) == (across.target, 0, 0)
    kafka_io.outside.delete_topics(there.bootstrap, across.source)
    kafka_io.create_topics(there.bootstrap, 2, across.source)
    assert "source_recreated" in [each["case"] for each in findings(across)]
    done = across.run_warm()
    assert done.returncode != 0
    assert "[recreated]" in done.stderr


def test_a_lost_ledger_is_noticed_by_the_checkpoint(across: Project, there: Kafka) -> None:
    filled(across, there, PASSED_ON, 100)
    assert across.run_warm().returncode == 0
    kafka_io.outside.delete_topics(across.broker.bootstrap, across.ledger)
    done = across.run_warm()
    assert done.returncode != 0
    assert "[ledger_empty]" in done.stderr


def test_one_cluster_under_two_names_is_refused(project: Project) -> None:
    connected(project, project.broker)
    filled(project, project.broker, SAME_NAME, 10)
    done = project.run_warm()
    assert done.returncode == 2
    assert "[source_cluster_same]" in done.stderr


# Each run dies in its micro-batch, the next one resumes.
DEATHS = ("offsets:before:both", "end_txn_sent:after:python", "commit_log:before:both")
MORE_DEATHS = (
    *("ledger_record:after:jvm", "offsets:after:python", "end_txn_sent:before:both"),
    *("end_txn_answered:after:both", "commit_log:after:jvm"),
)


@pytest.mark.long
@pytest.mark.timeout(1800)  # several runs of spark-submit
@pytest.mark.parametrize(
    "points", [DEATHS, pytest.param(MORE_DEATHS, marks=pytest.mark.nightly)], ids=["few", "more"]
)
def test_every_record_once_if_the_driver_dies(
    tmp_path: Path, broker: Kafka, there: Kafka, points: tuple[str, ...]
) -> None:
    project = connected(Project.made(tmp_path, broker), there)
    filled(project, there, PASSED_ON, 200 * (len(points) + 2), records=200)
    for point in points:
        log = project.folder / point.replace(":", ".")
        died = project.run(EOS_CRASH_AT=point, EOS_CRASH_LOG=str(log))
        assert died.returncode != 0, died.stderr
        assert log.exists(), f"{point} was not reached:\n{died.stderr}"
    done = project.run()
    assert done.returncode == 0, done.stderr
    check_copied(project, there)
    assert mirrored(project, there) == kafka_io.ends(there.bootstrap, project.source)
    found = verb(project, "verify", "--json")
    assert found.returncode == 0, found.stdout
    assert "transactions" in json.loads(found.stdout)["same"]


@pytest.mark.nightly
@pytest.mark.parametrize("paused", ["source", "target"])
def test_an_outage_of_one_cluster_is_reported_with_its_address(tmp_path: Path, paused: str) -> None:
    (tmp_path / "project").mkdir()
    with (
        EmbeddedKafka(tmp_path / "there") as there,
        EmbeddedKafka(tmp_path / "here") as here,
    ):
        project = connected(Project.made(tmp_path / "project", here), there)
        filled(project, there, FOREVER, 100)
        kafka = there if paused == "source" else here
        log = tmp_path / "run.log"
        with log.open("w") as stderr:
            process = subprocess.Popen(
                project.command(), env=project.environment(), cwd=project.folder, stderr=stderr
            )
        try:
            wait_until(lambda: "committed" in log.read_text(), log.read_text, process)
            (node,) = kafka.nodes
            node.signal("broker_pid", signal.SIGSTOP)
            try:
                silent = f"no broker of {kafka.bootstrap}"
                wait_until(lambda: silent in log.read_text(), log.read_text, process)
            finally:
                node.signal("broker_pid", signal.SIGCONT)
            back = "a broker responds again, after"
            wait_until(lambda: back in log.read_text(), log.read_text, process)
            kafka_io.fill(there.bootstrap, project.source, range(100, 200))
            ends = kafka_io.ends(there.bootstrap, project.source)
            wait_until(lambda: mirrored(project, there) == ends, log.read_text, process)
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S_MAX) == 0, log.read_text()
        finally:
            process.kill()
        check_copied(project, there)


JOB = (
    OPENED
    + """
other = sys.argv[5]
source = eos.read_kafka(spark, topic, kafka=eos.Kafka(other), max_records=100)
job = eos.exactly_once(source, name=topic, kafka=eos.Kafka(bootstrap)).to_topic(
    f"{topic}.out", create={"partitions": 2})
assert job.start(state, available_now=True).awaitTermination()
"""
)


@pytest.mark.nightly
def test_a_python_job_writes_to_another_cluster(
    broker: Kafka, there: Kafka, tmp_path: Path
) -> None:
    topic = "python-across"
    kafka_io.create_topics(there.bootstrap, 2, topic)
    kafka_io.fill(there.bootstrap, topic, range(RECORDS))
    path = tmp_path / "job.py"
    path.write_text(JOB.replace("sys.argv[5]", repr(there.bootstrap)))
    code, _, err = run(path, broker, topic)
    assert code == 0, err
    came_out = kafka_io.read(broker.bootstrap, f"{topic}.out")
    assert sorted(int(row.value or b"-1") for row in came_out) == list(range(RECORDS))
    profile = tmp_path / "profile.yaml"
    profile.write_text(
        f'kafka: {{bootstrap: "{broker.bootstrap}"}}\nstate: {{root: {tmp_path / "state"}}}\n'
        f'clusters: {{source: {{bootstrap: "{there.bootstrap}"}}}}\n'
    )
    for name in ("status", "verify", "plan"):
        done = eos(tmp_path, name, topic, "--profile", str(profile))
        assert done.returncode == 0, (name, done.stdout, done.stderr)
