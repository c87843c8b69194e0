"""Protobuf in and out, beside the library's own reading and writing of the same messages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from support.errors import raises
from support.kafka import kafka_io
from support.kafka.kafka_io import NOW_MS, Record
from support.kafka.schemas import descriptor_file, message, shop
from support.spark.project import Project
from support.spark.spark_session import local_spark

from eos.config.load import load_pipeline, load_profile
from eos.errors import RecordRefusedError
from eos.micro_batch.task_errors import task_error
from eos.pipeline_tests.runner import run_case
from eos.plan.plan import Plan, plan
from eos.read.rejected_records import RejectedRecords
from eos.spark.failure import Failure
from eos.spark.sink_columns import sink_columns
from eos.transform.functions import load

pytestmark = pytest.mark.spark

ORDER, SMALL, KEY, READING = (
    message(f"shop.{name}").type for name in ("Order", "Small", "Key", "Reading")
)
PIPELINE = """
version: 1
name: {name}
source:
  kafka: {{topic: {source}, max_records: {records}}}
  key: {{protobuf: {{file: shop.desc, message: shop.Key}}, as: k}}
  value: {{protobuf: {{file: shop.desc, message: shop.Order}}}}
  on_error: dead_letter
transform:
  - sql: SELECT *, price * 2 AS gross FROM input WHERE value IS NULL OR id >= 0
sink:
  kafka:
    - topic: {target}
      key: {{protobuf: {{file: shop.desc, message: shop.Key}}}}
      value: {{protobuf: {{file: shop.desc, message: shop.Small}}}}
      where: value IS NULL OR id < 3000000000
      create: {{partitions: {partitions}}}
    - topic: {target}.whole
      key: string
      value: {{protobuf: {{file: shop.desc, message: shop.Order}}}}
      where: value IS NOT NULL
      create: {{partitions: {partitions}}}
  dead_letter: {{topic: {target}.dlq, create: {{partitions: 1}}}}
trigger: {{available_now: true}}
tests:
  - name: a mapping is the message that it means
    input:
      - key: {{id: 1}}
        value: {{id: 7, price: 1.25, kind: OLD, took: 93784s, seen: {{1: "1970-01-01T00:00:01Z"}}}}
      - value: no order
    output:
      - {{topic: {target}, key: {{id: 7}}, value: {{id: 7, gross: 2.5, kind: OLD}}}}
      - topic: {target}.whole
        key: "\\b\\x01"
        value:
          {{id: 7, name: null, kind: OLD, at: null, took: "INTERVAL '1 02:03:04' DAY TO SECOND",
          lines: [], by: {{}}, first: null, u32: 0, u64: 0, weight: 0.0, price: 1.25, ok: false,
          raw: "", kinds: [], i32: 0, card: null, voucher: null,
          seen: {{"1": "1970-01-01T00:00:01.000000Z"}}}}
      - {{topic: {target}.dlq, value: no order}}
"""
KAFKA = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
TYPE = "protobuf_column_type_invalid"


def declare(project: Project) -> None:
    project.declare(1000, 1, PIPELINE)
    (project.folder / "pipelines" / project.name / "shop.desc").write_bytes(descriptor_file(shop()))


def order(number: int) -> bytes:
    made = ORDER(id=number, price=number / 4, kind=number % 3, first={"sku": f"s{number}"})
    return made.SerializeToString(deterministic=True)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("protobuf") as session:
        yield session


@pytest.fixture
def planned(project: Project) -> Plan:
    declare(project)
    return plan_of(project)


def plan_of(project: Project, **instead: str) -> Plan:
    """Of its file, with a text of it replaced."""
    path = project.folder / "pipelines" / project.name / "pipeline.yaml"
    text = path.read_text()
    for before, after in instead.items():
        text = text.replace(before, after)
    path.write_text(text)
    return plan(load_pipeline(path), load_profile(str(project.profile), project.folder), (), ())


@pytest.mark.long
def test_what_is_no_message_is_told_from_a_tombstone(spark, planned):
    values = [order(1), b"", b"\xff\xff", order(1)[:3], None, order(2)]
    rows = [(b"\x08\x05", value, "in", 0, at, None) for at, value in enumerate(values)]
    rows.append((b"\xff", order(3), "in", 0, len(rows), None))
    frame = spark.createDataFrame(rows, KAFKA)
    out = planned.decode.apply(frame)
    found = [row.asDict() for row in out.collect()]
    assert [row["offset"] for row in found] == [0, 1, 4, 5]
    assert [row["id"] for row in found] == [1, 0, None, 2]  # nothing is a message of defaults
    assert [row["kind"] for row in found] == ["OLD", "NEW", None, "UNKNOWN_ENUM_VALUE_Kind_2"]
    assert [row["k"].id for row in found] == [5, 5, 5, 5]
    assert (found[0]["first"].sku, found[0]["name"], found[0]["lines"]) == ("s1", None, [])
    assert planned.decode.found(out, 4, frame) == (
        RejectedRecords("malformed", "dead_letter", 3, "in", 0, 2),
    )
    dead = planned.decode.dead_letters(frame).collect()
    assert [bytes(row.value) for row in dead] == [*values[2:4], order(3)]
    assert [row["__eos_error"] for row in dead] == [
        "the value is no Protobuf message `shop.Order`",
        "the value is no Protobuf message `shop.Order`",
        "the key is no Protobuf message `shop.Key`",
    ]


@pytest.mark.long
def test_a_row_that_is_no_message_is_told_by_field_and_place(spark, planned):
    """And one that is for another sink is not asked."""
    values = [order(1), ORDER(id=5_000_000_000).SerializeToString()]
    rows = [(b"", value, "in", 3, 17 + at, None) for at, value in enumerate(values)]
    taken = planned.decode.apply(spark.createDataFrame(rows, KAFKA)).selectExpr("*", "1.5D gross")
    key, value, where = list(planned.outputs.columns)[:3]
    made = sink_columns(taken, planned).collect()
    assert [row[where] for row in made] == [True, False]
    assert [row[key] for row in made] == [KEY(id=1).SerializeToString(), None]
    small = SMALL(id=1, gross=1.5, kind=1).SerializeToString(deterministic=True)
    assert [row[value] for row in made] == [small, None]
    for name, of, told in (
        (
            "id",
            "-3000000000",
            "`shop.Key` in field `id`: expected -2147483648 to 2147483647, got -",
        ),
        ("kind", "'ODD'", "`shop.Small` in field `kind`: expected a name of the enum `shop.Kind`"),
    ):
        odd = taken.withColumn(name, f.expr(f"IF(offset = 17, {of}, {name})"))
        with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark has many
            sink_columns(odd, planned).collect()
        error = task_error(Failure.of(caught.value))
        assert isinstance(error, RecordRefusedError)
        assert f"-3 at offset 17 does not fit the message {told}" in error.message


@pytest.mark.long
def test_a_condition_is_asked_once_for_a_row(spark, project):
    """Asked again for the message, one that draws lots would write nulls, which delete."""
    declare(project)
    drawn = plan_of(project, **{"value IS NULL OR id < 3000000000": "rand() < 0.5"})
    _, value, where = list(drawn.outputs.columns)[:3]
    rows = [(b"", order(at), "in", 0, at, None) for at in range(200)]
    taken = drawn.decode.apply(spark.createDataFrame(rows, KAFKA)).selectExpr("*", "1.5D gross")
    made = sink_columns(taken, drawn).collect()
    assert {(row[where], row[value] is None) for row in made} == {(True, False), (False, True)}


@pytest.mark.long
def test_a_field_called_value_is_not_kafkas(spark, project):
    declare(project)
    reading = plan_of(project, **{"message: shop.Small": "message: shop.Reading"})
    _, value, _ = list(reading.outputs.columns)[:3]
    taken = reading.decode.apply(spark.createDataFrame([(b"", order(1), "in", 0, 0, None)], KAFKA))
    taken = taken.selectExpr("*", "'a' AS sensor").drop("value").selectExpr("*", "0.5D AS value")
    for of, sent in (("value", {"value": 0.5}), ("CAST(NULL AS DOUBLE)", {})):
        frame = taken.withColumn("value", f.expr(of))
        (row,) = sink_columns(frame, reading).collect()
        assert row[value] == READING(sensor="a", **sent).SerializeToString(deterministic=True)


@pytest.mark.long
@pytest.mark.parametrize(
    ("odd", "code", "named"),
    [
        ("'1' AS id", TYPE, "column `id` has the type string, but the field of `shop.Key` needs I"),
        ("1.5 AS gross", TYPE, "column `gross` has the type decimal(2,1), but the field of `shop."),
        ("price AS cost", "protobuf_column_missing", "sink 1: value needs column `gross`, a fiel"),
        ("array(struct(1 AS n)) AS lines", "protobuf_column_missing", "`lines.sku`"),
        ("struct('' AS sku, 1 AS n, 2 AS m) AS first", "protobuf_column_unknown", "`first.m`"),
        ("map(1, first) AS by", TYPE, "column `by` has the type map<int,struct<sku:string,n:int>>"),
        ("'x' AS first", TYPE, "column `first` has the type string"),
        ("now() AS took", TYPE, "needs INTERVAL DAY TO SECOND"),
    ],
)
def test_columns_that_are_none_for_the_message_are_told_at_the_start(
    spark, planned, odd, code, named
):
    rows = planned.decode.apply(spark.createDataFrame([], KAFKA))
    name = odd.rpartition(" ")[2]
    wanted = "" if name == "cost" else "1.5D AS gross"
    columns = [each for each in rows.columns if each != name]
    kept = [*columns, odd] if name == "gross" else [*columns, odd, *([wanted] if wanted else [])]
    with raises(code) as caught:
        sink_columns(rows.selectExpr(*kept), planned)
    assert named in caught.value.message


@pytest.mark.long
def test_a_files_tests_write_messages_as_mappings(spark, project):
    declare(project)
    pipeline = load_pipeline(project.folder / "pipelines" / project.name / "pipeline.yaml")
    functions = load(pipeline.transform, pipeline.project_root, pipeline.folder)
    profile = load_profile(str(project.profile), project.folder)
    outcome = run_case(spark, plan(pipeline, profile, (), functions), pipeline.tests[0])
    assert outcome.is_passed, outcome


def test_messages_come_and_go_through_kafka(project: Project) -> None:
    declare(project)
    kafka_io.create_topics(project.broker.bootstrap, 1, project.source)
    values: list[bytes | None] = [order(n) for n in range(100)]
    values[10] = b"no order"
    values[20] = None
    records = [Record(0, b"\x08\x07", value, (), NOW_MS) for value in values]
    kafka_io.write_records(project.broker.bootstrap, project.source, records)
    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    assert "1 malformed record sent to the dead letters" in done.stderr
    rows = kafka_io.read(project.broker.bootstrap, project.target)
    expected = [(n, n / 2, n % 3) for n in range(100) if n not in (10, 20)]
    found = [SMALL.FromString(row.value) for row in rows if row.value]
    assert [(each.id, each.gross, each.kind) for each in found] == expected
    (gone,) = (row for row in rows if row.value is None)
    assert gone.key == KEY(id=0).SerializeToString()  # of a null: the docs warn of it
    assert sorted(row.key for row in rows if row.value) == sorted(
        KEY(id=n).SerializeToString() for n, *_ in expected
    )
    whole = kafka_io.read(project.broker.bootstrap, f"{project.target}.whole")
    assert [row.value for row in whole] == [order(n) for n, *_ in expected]
    (dead,) = kafka_io.read_records(project.broker.bootstrap, f"{project.target}.dlq")
    assert (dead.key, dead.value) == (b"\x08\x07", b"no order")
    assert dead.told["eos.error"] == "the value is no Protobuf message `shop.Order`"
