"""State roots in a bucket of a real S3 server, with Spark: what is there after runs and crashes."""

from __future__ import annotations

import json
import signal
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support import verbs
from support.copies.recovery import run_verb
from support.kafka import kafka_io
from support.kafka.brokers import Kafka
from support.machines.stores import S3, versity
from support.spark import stateful
from support.spark.processes import is_paused
from support.spark.project import KILLED, PIPELINE, PROFILE, Project, WarmDriver
from support.spark.spark_recovery import SparkPipeline
from support.waiting import wait_until

from eos.config.load import load_profile
from eos.local import jars

pytestmark = pytest.mark.long

PLAIN = "plain"  # the bucket of a server that ignores If-None-Match
CRASH = "end_txn_answered:after:both"  # driver and JVM die when the transaction is committed


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with versity(tmp_path_factory.mktemp("versity")) as found:
        yield found


@pytest.fixture(scope="module")
def settings(store: S3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Of both servers."""
    with versity(tmp_path_factory.mktemp("plain"), "--nometa") as plain:
        plain.client.create_bucket(Bucket=PLAIN)
        bucket = {f"spark.hadoop.fs.s3a.bucket.{PLAIN}.endpoint": plain.endpoint}
        jar_files = ",".join(map(str, jars.ensure(jars.S3)[jars.S3]))
        yield {"spark.jars": jar_files, **store.settings(), **bucket}


@pytest.fixture(scope="module")
def s3_driver(
    settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WarmDriver]:
    made = driver(settings, tmp_path_factory.mktemp("far"))
    yield made
    made.close()


@pytest.fixture
def successor(settings: dict[str, str], tmp_path: Path) -> Iterator[WarmDriver]:
    """A second driver, for two copies at once."""
    folder = tmp_path / "successor"
    folder.mkdir()
    made = driver(settings, folder)
    yield made
    made.close()


def driver(settings: dict[str, str], folder: Path) -> WarmDriver:
    profile = folder / "profile.yaml"
    profile.write_text(PROFILE.format(bootstrap="none:1", root=folder / "state") + lines(settings))
    return WarmDriver(folder, load_profile(str(profile), folder))


def lines(settings: dict[str, str]) -> str:
    return "".join(f"    {key}: {value!r}\n" for key, value in settings.items())


@pytest.fixture
def project(
    tmp_path: Path, broker: Kafka, s3_driver: WarmDriver, settings: dict[str, str], store: S3
) -> Project:
    made = Project.made(tmp_path, broker, s3_driver)
    text = made.profile.read_text().replace(str(tmp_path / "state"), f"{store.root}/{made.name}")
    made.profile.write_text(f"{text}{lines(settings)}deployment: test\n")
    return made


@pytest.fixture
def past(project: Project) -> SparkPipeline:
    return SparkPipeline(project, {project.source: 2})


def audited(project: Project, *words: str) -> dict[str, object]:
    found = run_verb(verbs.audit, *project.words(), "--json", *words)
    assert found.code == 0, found
    return json.loads(found.out)


def attempts(found: dict[str, object]) -> Sequence[object]:
    transactions = found["transactions"]
    assert isinstance(transactions, list)
    return [each["batch_id"] for each in transactions if each["kind"] == "attempt"]


@pytest.mark.nightly
def test_the_audit_table_has_each_attempt_once_after_a_crash(past: SparkPipeline) -> None:
    past.ran(2)
    assert sorted(attempts(audited(past.project))) == [0, 1]
    past.write_batches(1)
    died = past.project.run_warm(EOS_CRASH_AT=CRASH)
    assert died.returncode == KILLED, died.stderr
    assert len(attempts(audited(past.project))) == 2, "it died before it wrote the row"
    past.ran(1)
    assert len(attempts(audited(past.project, "--live"))) == 4


def test_a_store_without_conditional_puts_is_refused_before_the_fence(past: SparkPipeline) -> None:
    profile = past.project.profile
    text = profile.read_text()
    profile.write_text(text.replace("s3a://checkpoints", f"s3a://{PLAIN}"))
    past.write_batches(1)
    refused = past.project.run_warm()
    assert refused.returncode == 2, refused.stderr
    assert "store_lacks_conditional_puts" in refused.stderr
    assert "the audit table can't be in s3a://plain/eos" in refused.stderr
    assert "Traceback" not in refused.stderr
    # Nothing was fenced or written, so the pipeline begins in the other bucket.
    profile.write_text(text)
    past.goes_on()


def test_a_run_is_stopped_by_a_marker_in_the_bucket(project: Project, store: S3) -> None:
    """Nothing but the ledger names the run."""
    project.declare(20, text=PIPELINE.replace("available_now: true", "every: 100 ms"))
    kafka_io.create_topics(project.broker.bootstrap, 2, project.source)
    none = run_verb(verbs.stop, *project.words())
    assert (none.code, "shows no run" in none.out) == (1, True), none

    running = project.start_warm()
    kafka_io.fill(project.broker.bootstrap, project.source, range(20))
    wait_until(lambda: "committed: 20 records" in running.said(), running.said, running)
    stopped = run_verb(verbs.stop, *project.words(), "--json")
    assert stopped.code == 0, stopped
    assert json.loads(stopped.out)["outcome"] == "stopped"
    assert running.wait() == 0, running.said()
    assert f" on host {socket.gethostname()}" in running.said().partition("asked to stop by")[2]
    left = store.names(f"eos/{project.name}/stops")
    assert all(name.endswith("/") for name in left), "the run removes its marker"
    assert run_verb(verbs.stop, *project.words()).code == 1


@pytest.mark.timeout(1800)  # four starts of Spark
def test_state_outlives_a_kill_and_a_woken_zombie(
    project: Project, successor: WarmDriver, store: S3
) -> None:
    """A count that is too high or too low was counted twice, or its state was lost."""
    stateful.declare(project, "running", 24, "output_mode: update\n")
    kafka_io.create_topics(project.broker.bootstrap, stateful.PARTITIONS, project.source)
    stateful.feed(project, range(24))
    died = project.run_warm(EOS_CRASH_AT=CRASH)
    assert died.returncode == KILLED, died.stderr
    # Its successor stands still in a transaction, when the state of its micro-batch is written.
    stateful.feed(project, range(24, 48))
    log = project.folder / "paused"
    zombie = project.start_warm(
        EOS_CRASH_AT="all_acked:after:python", EOS_CRASH_SIGNAL="STOP", EOS_CRASH_LOG=str(log)
    )
    wait_until(lambda: log.exists() and is_paused(zombie.pid), zombie.said, zombie)
    assert "so its state was copied" in zombie.said()
    of_zombie = folders(project, store)[-1]
    done = replace(project, warm=successor).run_warm("--take-over")
    assert done.returncode == 0, done.stderr
    assert f"from {store.root}/{project.name}/checkpoints/" in done.stderr
    check_counts(project, 48)

    # It wakes up. Whatever it still writes into its folder is never read again.
    zombie.send_signal(signal.SIGCONT)
    assert zombie.wait() == 3, zombie.said()
    for name in ("offsets/1", "offsets/2", "commits/1"):
        store.put(f"{of_zombie}/{name}", b"of a zombie")
    stateful.feed(project, range(48, 72))
    again = replace(project, warm=successor).run_warm()
    assert again.returncode == 0, again.stderr
    check_counts(project, 72)
    assert audited(project)["committed"] == 3


@pytest.mark.timeout(1800)
def test_state_outlives_a_stop_that_was_asked_for(project: Project, store: S3) -> None:
    """A stop interrupts Spark, so the ledger's record of it names no checkpoint."""
    stateful.declare(project, "running", 24, "output_mode: update\n")
    text = project.pipeline.read_text()
    project.pipeline.write_text(text.replace("available_now: true", "every: 100 ms"))
    kafka_io.create_topics(project.broker.bootstrap, stateful.PARTITIONS, project.source)
    for number in range(2):
        stateful.feed(project, range(24 * number, 24 * (number + 1)))
        said = stopped_after(project, 24)
        assert ("so its state was copied" in said) == (number > 0), said
        check_counts(project, 24 * (number + 1))
    assert len(folders(project, store)) == 2


def stopped_after(project: Project, records: int) -> str:
    """A run that `eos stop` ends once it has committed them. What it said."""
    running = project.start_warm()
    wait_until(lambda: f"committed: {records} records" in running.said(), running.said, running)
    stopped = run_verb(verbs.stop, *project.words(), "--json")
    assert stopped.code == 0, (stopped, running.said())
    assert running.wait() == 0, running.said()
    return running.said()


def folders(project: Project, store: S3) -> list[str]:
    root = f"eos/{project.name}/checkpoints/{project.group}"
    return sorted({f"{root}/{name.partition('/')[0]}" for name in store.names(root)})


def check_counts(project: Project, records: int) -> None:
    found: dict[str, list[int]] = {}
    for row in stateful.found(project):
        found.setdefault(str(row["user"]), []).append(int(str(row["count"])))
    fed = Counter(map(stateful.user, range(records)))
    assert {who: max(counts) for who, counts in found.items()} == fed
    assert all(len(counts) == len(set(counts)) for counts in found.values())
