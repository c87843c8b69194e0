"""Delta tables of a pipeline file: what they say, what is wrong with others, what is planned."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.simulated_broker.wire import stored_at

from eos.config.load import load_pipeline, load_profile
from eos.errors import UsageError
from eos.kafka.api import Identity, TopicPartition
from eos.launch import spark
from eos.launch.spark import Spark
from eos.ledger.decoder import decoded
from eos.ledger.record import AttemptRecord, Position, TableState, encoded, stamped
from eos.local import jars
from eos.plan.delta_sink import Table, app_of
from eos.plan.plan import Plan, plan
from eos.plan.tree import AFTERWARDS, mermaid, stages

TEXT = """\
version: 1
name: orders
source: {kafka: {topic: orders}}
sink:
  kafka: {topic: out}
  delta:
"""
BY_COLUMNS = "dedup: {by: [offset], within: 1 day, watermark: timestamp}\n"
DEDUP = """\
dedup: {producer: {id: header(p), epoch: header(e), sequence: header(s)}}
"""


def written(folder: Path, *sinks: str, more: str = "") -> Path:
    place = folder / "pipelines" / "orders"
    place.mkdir(parents=True)
    path = place / "pipeline.yaml"
    path.write_text(TEXT + "".join(f"    - {sink}\n" for sink in sinks) + more)
    return path


def planned(folder: Path, *sinks: str) -> Plan:
    pipeline = load_pipeline(written(folder, *sinks), {})
    assert pipeline.has_delta
    return plan(pipeline, load_profile(None, folder, {}), ("a:1",), ())


def test_a_table_has_its_name_of_the_path_and_its_path_of_the_project(tmp_path: Path) -> None:
    found = planned(
        tmp_path,
        "{path: lake/all/, partition_by: [k]}",
        "{path: 's3a://lake/all', name: last, mode: merge, keys: [k], where: k > 0, evolve: true,"
        " delete_when: value IS NULL}",
    )
    assert found.tables == (
        Table("all", f"{tmp_path}/lake/all", partition_by=("k",)),
        Table("last", "s3a://lake/all", ("k",), "value IS NULL", where="k > 0", evolves=True),
    )


@pytest.mark.parametrize(
    ("sinks", "told"),
    [
        (["{path: a, mode: merge}"], "expected `keys` with `mode: merge`"),
        (["{path: a, keys: [k]}"], "expected `keys` with `mode: merge`"),
        (["{path: a, delete_when: n < 0}"], "`delete_when` only with `mode: merge`"),
        (["{path: a, mode: merge, keys: [k], columns: [n]}"], "expected `k` in `columns`"),
        (["{path: a, partition_by: [day], columns: [n]}"], "expected `day` in `columns`"),
        (["{path: a, columns: [n, N]}"], "expected unique names in `columns`"),
        (["{path: a}", "{path: b, name: A}"], "unique table names, `a` appears twice"),
        (["{path: a}", "{path: a/, name: b}"], "unique table paths, `a` appears twice"),
        (["{path: 'a b'}"], "expected `name`"),
        (["{path: a, mode: overwrite}"], "expected append or merge"),
        (["{path: a, where: SELECT 1}"], "without `SELECT`"),
    ],
)
def test_what_can_not_be_meant(tmp_path: Path, sinks: list[str], told: str) -> None:
    with pytest.raises(UsageError) as error:
        load_pipeline(written(tmp_path, *sinks), {})
    assert told in str(error.value)


def test_a_sink_writes_a_topic_or_a_table(tmp_path: Path) -> None:
    path = written(tmp_path, "{path: all}")
    text = path.read_text()
    path.write_text(text.replace("  kafka: {topic: out}\n", ""))
    pipeline = load_pipeline(path, {})
    alone = plan(pipeline, load_profile(None, tmp_path, {}), ("a:1",), ())
    assert (alone.sinks, alone.sink_topics, alone.outputs.is_filtered) == ((), (), False)
    for sink in ("{}", "{dead_letter: dead}"):
        path.write_text(text.partition("sink:")[0] + f"sink: {sink}\n")
        with pytest.raises(UsageError, match="expected `kafka`, `delta` or both"):
            load_pipeline(path, {})


def test_only_dedup_that_spark_keeps_is_refused_beside_a_table(tmp_path: Path) -> None:
    path = written(tmp_path, "{path: a}", more=DEDUP)
    assert load_pipeline(path, {}).producers is not None
    path.write_text(path.read_text().replace(DEDUP, BY_COLUMNS))
    with pytest.raises(UsageError, match=r"no Delta table with `dedup: \{by"):
        load_pipeline(path, {})


def test_plan_tells_what_a_table_is_promised(tmp_path: Path) -> None:
    found = stages(planned(tmp_path, "{path: all}"))
    (table,) = [each for each in found if each.name == "table 1"]
    assert table.guarantee == AFTERWARDS
    assert not table.in_transaction
    drawn = "\n".join(mermaid(found))
    assert "transaction -. then .-> table_1" in drawn


def test_only_such_a_pipeline_gets_deltas_jars(tmp_path: Path) -> None:
    here = Spark(tmp_path, is_installed=False, version="4.2.0")
    conf = {"spark.sql.extensions": "a.B"}
    words = spark.command(here, [], "local[1]", conf, [], tmp_path, tmp_path, with_delta=True)
    delta = jars.paths_of(*jars.of_delta("4.2"))
    (first,) = [word for word in words if word.startswith("spark.driver.extraClassPath=")]
    assert delta
    assert all(str(jar) in first for jar in delta)
    assert f"spark.sql.extensions=a.B,{spark._DELTA_EXTENSION}" in words
    assert f"spark.sql.catalog.spark_catalog={spark._DELTA_CATALOG}" in words
    words = spark.command(here, [], "local[1]", conf, [], tmp_path, tmp_path)
    assert "delta" not in " ".join(words).replace(str(tmp_path), "")


def test_the_launcher_reads_whether_it_is_such_a_pipeline(tmp_path: Path) -> None:
    assert load_pipeline(written(tmp_path / "a", "{path: all}")).has_delta
    plain = tmp_path / "pipeline.yaml"
    plain.write_text(TEXT.replace("  delta:\n", "").replace("orders", "deltas"))
    assert not load_pipeline(plain).has_delta
    joined = '{names: {delta: lake/names, columns: "k INT"}}'
    plain.write_text(plain.read_text() + f"tables: {joined}\n")
    assert load_pipeline(plain).has_delta


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ('{a: {delta: x, csv: y, columns: "k INT"}}', "one of `delta`, `parquet` and `csv`"),
        ('{a: {delta: x, header: false, columns: "k INT"}}', "expected `header` only with `csv`"),
        ('{input: {delta: x, columns: "k INT"}}', "a name other than `input`"),
        ('{a: {csv: x, columns: "k INT"}, A: {csv: y, columns: "k INT"}}', "`a` appears twice"),
        ('{paid: {csv: x, columns: "k INT"}}', "a step name other than `paid`"),
        ('{b: {csv: x, columns: "k INT"}}', "it has no `a` (it has b)"),
    ],
)
def test_tables_that_can_not_be_meant(tmp_path: Path, tables: str, told: str) -> None:
    steps = "transform: [{sql: SELECT * FROM input, name: paid}, {python: 'm:f', tables: [a]}]\n"
    with pytest.raises(UsageError) as error:
        load_pipeline(written(tmp_path, "{path: all}", more=f"tables: {tables}\n{steps}"), {})
    assert told in str(error.value)


def test_a_record_of_the_ledger_tells_how_the_tables_were() -> None:
    tp = TopicPartition("orders", 0)
    # A release that kept no version of Delta's wrote the second form.
    tables = {"all": TableState("7f", 12, 3), "old": TableState("8a", 12)}
    position = Position({tp: 5}, {"orders": "x"}, tables=tables)
    attempt = AttemptRecord(1, Identity(1, 2), {tp: 3}, ())
    owner = {"deployment": "d", "host": "h", "process": 1}
    blob = stamped(encoded("orders", owner, "attempt", position, attempt), Identity(1, 2))
    assert decoded("orders", "ledger", *stored_at(blob, 20)).position.tables == tables


def test_another_ledger_is_another_application(tmp_path: Path) -> None:
    names = planned(tmp_path, "{path: all}").names
    assert app_of(names, "id-1", "all") == "eos.orders/id-1/all"
    assert app_of(names, "id-2", "all") != app_of(names, "id-1", "all")
