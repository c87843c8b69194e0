"""State roots in a bucket of a real S3 server, with Spark: what is there after runs and crashes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support import verbs
from support.brokers import Kafka
from support.project import KILLED, PROFILE, Project, WarmDriver
from support.recovery import run_verb
from support.spark_recovery import SparkPipeline
from support.stores import S3, versity

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
    folder = tmp_path_factory.mktemp("far")
    profile = folder / "profile.yaml"
    profile.write_text(PROFILE.format(bootstrap="none:1", root=folder / "state") + lines(settings))
    made = WarmDriver(folder, load_profile(str(profile), folder))
    yield made
    made.close()


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


def audited(past: SparkPipeline, *words: str) -> dict[str, object]:
    found = run_verb(verbs.audit, *past.project.words(), "--json", *words)
    assert found.code == 0, found
    return json.loads(found.out)


def attempts(found: dict[str, object]) -> Sequence[object]:
    transactions = found["transactions"]
    assert isinstance(transactions, list)
    return [each["batch_id"] for each in transactions if each["kind"] == "attempt"]


def test_the_audit_table_has_each_attempt_once_after_a_crash(past: SparkPipeline) -> None:
    past.ran(2)
    assert sorted(attempts(audited(past))) == [0, 1]
    past.write_batches(1)
    died = past.project.run_warm(EOS_CRASH_AT=CRASH)
    assert died.returncode == KILLED, died.stderr
    assert len(attempts(audited(past))) == 2, "it died before it wrote the row"
    past.ran(1)
    assert len(attempts(audited(past, "--live"))) == 4


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
