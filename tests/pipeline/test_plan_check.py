"""`eos plan --check` as a user runs it: the cluster, the audit table and a Spark of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from support.kafka import kafka_io
from support.kafka.brokers import Kafka
from support.kafka.schemas import registry
from support.spark.project import RUN_S_MAX, Project
from support.spark.spark_session import class_path, end_jvm, with_archive, words_of_a_run

from eos.checkpoint.files import HadoopFiles
from eos.cli.plan import _delta_tables, _lookup_tables, _steps
from eos.config.load import load_pipeline, load_profile
from eos.delta import table as delta
from eos.delta.log import DeltaLog
from eos.delta.sinks import TablesInLedger
from eos.delta.table_check import require_complete
from eos.errors import PromiseBrokenError
from eos.inspect.check import Check
from eos.ledger.record import Position, TableState
from eos.plan.delta_sink import Table, app_of
from eos.plan.plan import Plan, plan
from eos.spark.local_session import local_session
from eos.transform.functions import load

pytestmark = pytest.mark.spark

STATEFUL = """
version: 1
name: {name}
source:
  kafka: {{topic: {source}, max_records: {records}}}
  value: {{avro: {{file: order.avsc, subject: orders-value}}}}
tables: {{names: {{parquet: data/names, columns: "id INT, name STRING"}}}}
transform:
  - sql: SELECT i.id, max(n.name) AS name FROM input i JOIN names n ON i.id = n.id GROUP BY i.id
sink: {{kafka: {{topic: {target}, value: json, create: {{partitions: {partitions}}}}}}}
"""
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}


@pytest.mark.long
def test_what_spark_would_refuse_is_found_beside_what_the_cluster_has(
    broker: Kafka, tmp_path: Path
) -> None:
    project = Project.made(tmp_path, broker)
    project.declare(10, text=STATEFUL)
    (tmp_path / "pipelines" / project.name / "order.avsc").write_text(json.dumps(ORDER))
    kafka_io.create_topics(broker.bootstrap, 2, project.source)
    command = [sys.executable, "-m", "eos", "plan", *project.words(), "--check", "--json"]
    with registry() as made:
        profile = project.profile.read_text()
        project.profile.write_text(f"{profile}\nregistry: {{url: '{made.url}'}}\n")
        done = subprocess.run(
            command,
            env=project.environment(NO_COLOR="1"),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=RUN_S_MAX,
            check=False,
        )
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    found = {each["what"]: each for each in told["checks"] if each["level"] == "finding"}
    assert set(found) == {"spark", "registry", "table"}, found
    assert "Spark can't run the transforms as a stream" in found["spark"]["says"]
    assert "orders-value" in found["registry"]["says"]
    assert "the table names (" in found["table"]["says"]
    assert all(each["remedy"] for each in found.values())
    assert {each["what"] for each in told["checks"]} >= {"features", "source", "target", "start"}
    assert [each["stage"] for each in told["stages"]][:3] == ["source", "tables", "step 1"]
    assert "Traceback" not in done.stderr


TABLES = """
version: 1
name: tabled
source:
  kafka: {topic: orders}
  value: {json: "id INT, n BIGINT"}
tables:
  names: {parquet: FOLDER/names, columns: "id INT, name STRING"}
  gone: {parquet: FOLDER/gone, columns: "id INT"}
  other: {parquet: FOLDER/names, columns: "id BIGINT"}
transform:
  - {sql: "SELECT i.id, i.n, n.name FROM input i JOIN names n ON i.id = n.id"}
sink:
  kafka: {topic: out, value: json}
  delta:
    - {path: FOLDER/lake/new}
    - {path: FOLDER/lake/there}
    - {path: FOLDER/lake/typed}
    - {path: FOLDER/lake/parted, partition_by: [n]}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tabled")
    place = made / "pipelines" / "tabled"
    place.mkdir(parents=True)
    (place / "pipeline.yaml").write_text(TABLES.replace("FOLDER", str(made)))
    rows = {"id": pa.array([1], pa.int32()), "n": pa.array([2], pa.int64()), "name": ["a"]}
    for name in ("there", "parted"):
        write_deltalake(str(made / "lake" / name), pa.table(rows))
    write_deltalake(str(made / "lake" / "typed"), pa.table({**rows, "n": ["two"]}))
    (made / "names").mkdir()
    names = {"id": pa.array([1], pa.int32()), "name": ["a"]}
    pq.write_table(pa.table(names), made / "names" / "part.parquet")
    return made


@pytest.fixture(scope="module")
def planned(folder: Path) -> Plan:
    return made_of(folder)


def made_of(folder: Path) -> Plan:
    pipeline = load_pipeline(folder / "pipelines" / "tabled" / "pipeline.yaml", {})
    steps = load(pipeline.transform, pipeline.project_root, pipeline.folder)
    return plan(pipeline, load_profile(None, folder, {}), (), steps)


@pytest.fixture(scope="module")
def spark(folder: Path) -> Iterator[SparkSession]:
    end_jvm()
    profile, words = load_profile(None, folder, {}), words_of_a_run("local[1]")
    # Little to read: most of the time would go into empty tasks.
    few = {"spark.databricks.delta.snapshotPartitions": "1"}
    profile.spark.conf.update({**class_path(words), **few})
    with pytest.MonkeyPatch.context() as of_the_jvm:
        for key, value in with_archive(os.environ, "local[1]", words).items():
            of_the_jvm.setenv(key, value)
        with local_session(profile, folder, "tabled", has_delta=True) as session:
            yield session
    end_jvm()


def told(checks: Iterable[Check]) -> list[tuple[str, str]]:
    found = list(checks)
    assert all(each.remedy for each in found if each.level == "finding")
    return [(each.level, each.message) for each in found]


COUNTED = """
version: 1
name: tabled
source: {kafka: {topic: orders}, value: {json: "id INT"}}
transform: [{sql: "SELECT id, count(*) AS orders FROM input GROUP BY id"}]
output_mode: update
sink: {kafka: {topic: out, value: json}}
"""


@pytest.mark.nightly
def test_the_reader_of_a_run_is_named(spark, planned, tmp_path, monkeypatch) -> None:
    place = tmp_path / "pipelines" / "tabled"
    place.mkdir(parents=True)
    (place / "pipeline.yaml").write_text(COUNTED)
    counted = made_of(tmp_path)

    def reader(plan: Plan) -> list[tuple[str, str]]:
        return told(each for each in _steps(spark, plan) if each.subject == "reader")

    ((level, says),) = reader(planned)
    assert level == "ok"
    assert says.startswith("the Arrow reader reads the records and parses their JSON values; ")
    assert says.endswith("Spark runs the steps, since a Delta table is written")
    ((level, says),) = reader(counted)
    assert (level, says.startswith("Spark's Kafka source reads the records: a step keeps")) == (
        "ok",
        True,
    )
    monkeypatch.setenv("EOS_READER", "arrow")
    ((level, says),) = reader(counted)
    assert (level, "EOS_READER=arrow is not possible" in says) == ("finding", True)


@pytest.mark.long
def test_tables_that_are_joined_are_looked_at_one_by_one(spark, planned) -> None:
    (_, names), (_, gone), (_, other) = found = told(_lookup_tables(spark, planned))
    assert [level for level, _ in found] == ["ok", "finding", "finding"]
    assert "names (" in names
    assert "the table gone (" in gone
    assert "can't be read as parquet" in gone
    assert "has column `id` as int, but `columns` declares it as bigint" in other


@pytest.mark.nightly
def test_tables_that_are_written_are_looked_at_one_by_one(spark, planned) -> None:
    (_, new), (_, there), (_, typed), (_, parted) = found = told(
        _delta_tables(spark, planned, None)
    )
    assert [level for level, _ in found] == ["ok", "ok", "finding", "finding"]
    assert new.endswith("the first start creates it")
    assert there.endswith("is used as it is")
    assert "typed" in typed
    assert "`n`" in typed
    assert "is partitioned by nothing, but the pipeline file declares n" in parted


@pytest.mark.long
def test_a_table_that_is_not_as_the_ledger_knows_it_is_found(spark, planned) -> None:
    table = next(each for each in planned.tables if each.name == "there")
    only = replace(planned, tables=(table,))

    def by(known: TableState) -> list[tuple[str, str]]:
        position = Position({}, {}, tables={"there": known})
        return told(_delta_tables(spark, only, TablesInLedger("a-topic-id", position, None)))

    own = DeltaTable(table.path).metadata().id
    ((level, behind),) = by(TableState(own, 5))
    assert level == "finding"
    assert "has the rows up to ledger record -1, but had those up to 5 before" in behind
    ((level, anew),) = by(TableState("another", 5))
    assert (level, "was recreated (its id changed from another to " in anew) == ("finding", True)
    ((level, fine),) = by(TableState(own, -1))
    assert (level, fine.endswith("has all committed micro-batches")) == ("ok", True)


@pytest.mark.nightly
def test_a_table_that_spark_restored_is_found(spark, planned, folder) -> None:
    """By version and by time, through the files of this machine and through Hadoop's."""
    table = Table("restored", str(folder / "restored"))
    only = replace(planned, tables=(replace(table, path=f"file://{table.path}"),))
    app = app_of(planned.names, "a-topic-id", table.name)
    columns = spark.createDataFrame([(1, 2, "x")], "id INT, n BIGINT, name STRING")
    for at in (1, 3):
        delta.write(columns, table, app, at)

    def found(version: int | None) -> tuple[str, str]:
        seen = delta.view_table(spark, table, app)
        assert seen is not None
        assert seen.at == 3
        known = TableState(seen.id, 3, version)
        position = Position({}, {}, tables={table.name: known})
        log = DeltaLog(HadoopFiles(spark), table.path, app)
        told_of: tuple[str, str] = ("ok", "")
        try:
            require_complete(planned.names.pipeline, table, log, known, seen.version)
        except PromiseBrokenError as error:
            told_of = ("finding", error.message)
        ((level, says),) = told(
            _delta_tables(spark, only, TablesInLedger("a-topic-id", position, None))
        )
        assert level == told_of[0], says
        return level, says

    assert found(1)[0] == "ok"
    place = f"delta.`{table.path}`"
    spark.sql(f"RESTORE {place} TO VERSION AS OF 0").collect()
    for version in (1, None):
        level, says = found(version)
        assert (level, "was restored to version 0 by the RESTORE in its version 2" in says) == (
            "finding",
            True,
        )
    spark.sql(f"RESTORE {place} TO VERSION AS OF 1").collect()
    assert found(1)[0] == "ok"
    second = datetime.now(timezone.utc) - timedelta(hours=1)
    for version in range(4):
        log_file = Path(table.path) / "_delta_log" / f"{version:020d}.json"
        at_s = (second + timedelta(minutes=version)).timestamp()
        os.utime(log_file, (at_s, at_s))
    text = (second + timedelta(seconds=30)).strftime("%Y-%m-%dT%H:%M:%S+00:00")
    spark.sql(f"RESTORE {place} TO TIMESTAMP AS OF '{text}'").collect()
    level, says = found(3)
    assert (level, "was restored to an older version" in says) == ("finding", True)
