"""A Delta table in a bucket of a real S3 server: Spark writes it, and `eos verify` proves it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support import verbs
from support.copies.recovery import Output, run_verb
from support.delta import lake
from support.kafka import kafka_io
from support.kafka.brokers import Kafka
from support.machines.stores import BUCKET, S3, versity
from support.spark.project import KILLED, PROFILE, Project, WarmDriver

from eos.config.load import load_profile
from eos.launch.spark import find_spark
from eos.local import jars

pytestmark = pytest.mark.nightly
RECORDS = 20  # of a micro-batch


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with versity(tmp_path_factory.mktemp("versity")) as found:
        yield found


@pytest.fixture(scope="module")
def conf(store: S3) -> str:
    """What a profile needs for tables in the bucket."""
    delta = jars.paths_of(*find_spark().delta_jar_sets())
    settings = {
        "spark.jars": ",".join(map(str, [*delta, *jars.ensure(jars.S3)[jars.S3]])),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
        **store.settings(),
    }
    return "".join(f"    {key}: {value!r}\n" for key, value in settings.items())


@pytest.fixture(scope="module")
def driver(conf: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmDriver]:
    folder = tmp_path_factory.mktemp("delta-far")
    profile = folder / "profile.yaml"
    profile.write_text(PROFILE.format(bootstrap="none:1", root=folder / "state") + conf)
    made = WarmDriver(folder, load_profile(str(profile), folder))
    yield made
    made.close()


@pytest.fixture
def project(tmp_path, broker: Kafka, driver: WarmDriver, conf: str) -> Project:
    made = Project.made(tmp_path, broker, driver)
    made.profile.write_text(made.profile.read_text() + conf)
    return made


def verified(project: Project) -> Output:
    return run_verb(verbs.verify, *project.words(), "--json", "--from-start")


def test_each_micro_batch_is_in_the_table_once_and_verify_proves_it(
    project: Project, store: S3
) -> None:
    key = f"{project.name}/all"
    text = lake.COPIED.replace("FOLDER/lake/all", f"s3a://{BUCKET}/{key}")
    project.declare(RECORDS, 1, text)
    kafka_io.create_topics(project.broker.bootstrap, 1, project.source)
    kafka_io.fill(project.broker.bootstrap, project.source, range(3 * RECORDS))
    died = project.run_warm(EOS_CRASH_AT="tables:before:both")  # committed, and not in the table
    assert died.returncode == KILLED, died.stderr
    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    assert "table all caught up" in done.stderr

    found = verified(project)
    assert found.code == 0, found
    table = found.json["tables"]["all"]
    assert (table["micro_batches"], table["commits"], table["inserted"]) == (3, 3, 3 * RECORDS)
    assert table["unchanged"] >= 2  # the newest one has no digest before the next record
    assert table["files"] >= 3
    assert "Delta tables" in found.json["same"]

    data = next(name for name in store.names(key) if name.endswith(".parquet"))
    store.remove(f"{key}/{data}")
    damaged = verified(project)
    assert damaged.code == 1, damaged
    (finding,) = damaged.json["findings"]
    assert f"{data} of its version" in finding["message"]
    assert " is missing, " in finding["message"]
