"""A last step of some rows and encoding as one pass of Python, beside the two of Spark's plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from support.errors import in_turn
from support.spark.spark_session import local_spark

from eos.config.load import load_pipeline, load_profile
from eos.encode.stage import SPARK_SCHEMA, EncodeStage
from eos.errors import RecordRefusedError, TransformError
from eos.faults import CrashPlan
from eos.kafka.records.column_reader import SCHEMA
from eos.kafka.target_partitions import Targets
from eos.launch.java_compiler import is_surely_in_python
from eos.plan.plan import Plan, plan
from eos.seal import crossed
from eos.spark.arrow_source import SPARK_SCHEMA as SOURCE_SCHEMA
from eos.spark.fused_step import FusedStep, parsed
from eos.spark.python_plan import python_plan
from eos.spark.steps import encodable, mapped, projected
from eos.spark.tasks import EncodeTask
from eos.transform.functions import Function, apply

pytestmark = pytest.mark.spark

TEXT = """\
version: 1
name: orders
source: {{kafka: {{{topics}}}}}
sink:
  kafka:
    - {sink}
"""
ROWS = """
  SELECT CAST(IF(id % 5 = 0, NULL, concat('k', id)) AS BINARY) AS key, 'in' AS topic,
    CAST(IF(id % 7 = 0, NULL, repeat('v', CAST(id AS INT))) AS BINARY) AS value,
    IF(id % 2 = 0, array(named_struct('key', 'a', 'value', X'FF')), NULL) AS headers,
    CAST(id % 3 AS INT) AS partition, id AS offset, TIMESTAMP'2026-11-22' AS timestamp
  FROM range(50)
"""
COLUMNS = "id BIGINT, name STRING, target STRING, place INT"
KAFKAS = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("fused") as session:
        yield session


_VALUE_FIRST = pa.list_(pa.struct([("value", pa.binary()), ("key", pa.string())]))
SWAPPED = pa.array([[]] * 50, _VALUE_FIRST)


def in_arrow(rows: Any) -> Any:
    """All columns, and four more."""
    number = rows["offset"]
    rows = rows.append_column("id", number)
    rows = rows.append_column("name", pc.binary_join_element_wise("n", number.cast("string"), "-"))
    targets = pc.if_else(pc.greater(number, 20), "b", "a")
    return rows.append_column("target", targets).append_column("place", rows["partition"])


def in_pandas(rows: Any) -> Any:
    number = rows["offset"]
    target = ["b" if each > 20 else "a" for each in number]
    named = "n-" + number.astype(str)
    return rows.assign(id=number, name=named, target=target, place=rows["partition"])


def planned(
    folder: Path, sink: str, kind: str, returns: str, *, call: Any = None, topics: str = "topic: in"
) -> Plan:
    path = folder / "pipeline.yaml"
    path.write_text(TEXT.format(sink=sink, topics=topics))
    call = call or {"arrow": in_arrow, "pandas": in_pandas}[kind]
    step = Function(f"mine:{kind}", {}, call, (call.__module__,), "", kind, returns)
    return plan(load_pipeline(path, {}), load_profile(None, folder, {}), ("a:1",), (step,))


def encoded(rows: DataFrame | FusedStep, made: Plan, limit: int = 1 << 20) -> list[tuple[Any, ...]]:
    targets = Targets.of(dict.fromkeys(made.row_topics, (3, limit)))
    topics = made.source_topics
    stage = EncodeStage(
        made.sinks,
        targets,
        2,
        1_763_800_000_000,
        source_topic=topics[0] if len(topics) == 1 else "",
    )
    task = EncodeTask(stage, CrashPlan().of_tasks(0))
    try:
        found = mapped(rows.coalesce(1), task, SPARK_SCHEMA).collect()
    except Exception as error:
        told = crossed(str(error))
        raise (told or error) from error
    return [(*row[:-1], bytes(row.blob)) for row in found]


CASES = [
    ("topic: out", "*"),
    ("topic: out", KAFKAS),
    ("{topic: out, headers: {}}", "value BINARY"),
    ("{topic: out, key: ID, value: name}", f"{KAFKAS}, {COLUMNS}"),
    ("{topic: out, key: topic, value: place, headers: {}}", f"*, {COLUMNS}"),
    ("{topic: out, key: string, value: string, headers: {}}", f"*, {COLUMNS}"),
    (
        "{topic: {column: target, topics: [a, b]}, value: name, partition: place}",
        f"{KAFKAS}, {COLUMNS}",
    ),
]


@pytest.mark.parametrize(
    ("sink", "returns", "kind"),
    in_turn(
        ((*case, kind) for case, kind in product(CASES, ("arrow", "pandas"))), every=3, of_these=2
    ),
)
def test_what_comes_out_is_the_same(spark, tmp_path, kind, sink, returns):
    made = planned(tmp_path, sink, kind, returns)
    rows = spark.sql(ROWS)
    short = encodable(made, rows)
    has_headers = "*" in returns and "headers" not in sink
    assert isinstance(short, FusedStep) == (kind == "arrow" or not has_headers)
    found = encoded(short, made)
    assert found == encoded(projected(made, rows), made)
    assert sum(row[4] for row in found) == 50


@pytest.mark.parametrize("kind", ["arrow", "pandas"])
def test_rows_leave_the_jvm_once(spark, tmp_path, kind):
    """And twice where SQL stands between."""
    for sink, passes in (("topic: out", 1), ("{topic: out, value: json}", 2)):
        made = planned(tmp_path, sink, kind, f"{KAFKAS}, {COLUMNS}")
        out = mapped(encodable(made, spark.sql(ROWS)), lambda parts: parts, SPARK_SCHEMA)
        text = out._jdf.queryExecution().executedPlan().toString()
        assert text.count("MapInArrow") + text.count("MapInPandas") == passes, text


@pytest.mark.parametrize(
    ("sink", "returns"),
    [
        ("{topic: out, value: upper(name)}", COLUMNS),
        ("{topic: out, value: name, where: id > 3}", COLUMNS),
        ("{topic: out, value: name, headers: {a: name}}", COLUMNS),
        ("{topic: out, value: name, timestamp: timestamp}", f"timestamp TIMESTAMP, {COLUMNS}"),
        ("{topic: out, value: 'coalesce(name, null)'}", "name STRING"),
        ("topic: out", "Key BINARY, value BINARY"),
    ],
)
def test_what_sql_has_to_make_goes_the_long_way(spark, tmp_path, sink, returns):
    """Without running it."""
    made = planned(tmp_path, sink, "arrow", returns)
    assert not isinstance(encodable(made, spark.sql(ROWS)), FusedStep)


@pytest.mark.parametrize(
    ("returns", "words"),
    [
        ("key BIGINT, value BINARY", "column `key` has type bigint; a Kafka sink writes bytes"),
        ("KEY BINARY, key BINARY, value BINARY", "Reference `key` is ambiguous"),
        ("key BINARY", "the last transform returns no column `value` .it has key"),
    ],
)
def test_what_no_sink_can_write_is_refused_there(spark, tmp_path, returns, words):
    made = planned(tmp_path, "topic: out", "arrow", returns)
    with pytest.raises(TransformError, match=words):
        encodable(made, spark.sql(ROWS))


@pytest.mark.parametrize(
    ("sink", "returns"),
    [
        ("topic: out", "key BINARY NOT NULL, value BINARY"),
        ("{topic: out}\n  delta: {path: all}", "key BINARY, value BINARY"),
    ],
)
def test_what_spark_has_to_look_at_goes_the_long_way(spark, tmp_path, sink, returns):
    """For nulls where there may be none; at what a table reads, before anything is committed."""
    made = planned(tmp_path, sink, "arrow", returns)
    assert not isinstance(encodable(made, spark.sql(ROWS)), FusedStep)


@pytest.mark.parametrize("kind", ["arrow", pytest.param("pandas", marks=pytest.mark.long)])
def test_a_record_that_can_not_be_written_is_named_by_its_source(spark, tmp_path, kind):
    def one_large(rows: Any) -> Any:
        if kind == "pandas":
            return rows.assign(value=[b"%d" % n + b"x" * 20 * (n == 31) for n in rows["offset"]])
        made = [b"%d" % n + b"x" * 20 * (n == 31) for n in rows["offset"].to_pylist()]
        at = rows.column_names.index("value")
        return rows.set_column(at, "value", pa.array(made, pa.binary()))

    for topics in ("topic: in", "topics: [in, other]"):
        made = planned(tmp_path, "topic: out", kind, KAFKAS, call=one_large, topics=topics)
        with pytest.raises(RecordRefusedError) as caught:
            encoded(encodable(made, spark.sql(ROWS)), made, limit=90)
        assert "in-1" in caught.value.message
        assert "31" in caught.value.message


@pytest.mark.parametrize(
    ("kind", "call", "words"),
    [
        ("arrow", lambda _rows: None, "returned nothing"),
        ("arrow", lambda rows: rows.select(["key"]), "returned no column `value`"),
        (
            "arrow",
            lambda rows: rows.set_column(0, "key", rows["offset"]),
            "column `key` as int64, but its `returns` declares binary",
        ),
        (
            "arrow",
            lambda rows: rows.set_column(rows.column_names.index("headers"), "headers", SWAPPED),
            "column `headers` as list",
        ),
        pytest.param("pandas", lambda _rows: None, "returned nothing", marks=pytest.mark.long),
    ],
)
def test_what_a_function_returns_is_told(spark, tmp_path, kind, call, words):
    returns = "*" if "headers" in words else "key BINARY, value BINARY"
    made = planned(tmp_path, "topic: out", kind, returns, call=call)
    with pytest.raises(TransformError, match=words):
        encoded(encodable(made, spark.sql(ROWS)), made)


@pytest.mark.long
def test_numbers_are_cut_off_where_spark_is_told_so(spark, tmp_path):
    """As behind `mapInPandas`."""

    def halves(rows: Any) -> Any:
        return rows.assign(half=rows["offset"] + 0.5)

    returns = f"{KAFKAS}, half BIGINT"
    made = planned(tmp_path, "{topic: out, key: half}", "pandas", returns, call=halves)
    setting = "spark.sql.execution.pandas.convertToArrowArraySafely"
    spark.conf.set(setting, "false")
    try:
        rows = spark.sql(ROWS)
        assert encoded(encodable(made, rows), made) == encoded(projected(made, rows), made)
    finally:
        spark.conf.unset(setting)
    with pytest.raises(Exception, match="half"):
        encoded(encodable(made, spark.sql(ROWS)), made)


def test_an_arrow_step_gets_times_in_the_zone_of_the_session(spark, tmp_path):
    """Also where no JVM is between: midnight in Tokyo is 15:00 of the day before in UTC."""

    def hours(rows: Any) -> Any:
        return rows.append_column("id", pc.hour(rows["timestamp"]))

    made = planned(tmp_path, "{topic: out, key: id}", "arrow", f"{KAFKAS}, id BIGINT", call=hours)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        short = python_plan(made, spark, parsed(SOURCE_SCHEMA))
        from_spark = {row.id for row in apply(spark.sql(ROWS), made.transforms).collect()}
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    at = datetime(2026, 11, 21, 15, tzinfo=timezone.utc)
    row = {"key": b"k", "value": b"v", "topic": "in", "partition": 0, "offset": 7, "timestamp": at}
    batch = pa.RecordBatch.from_pylist([{**row, "timestampType": 0, "headers": None}], SCHEMA)
    (found,) = short.sink_rows(iter([batch]))
    assert from_spark == {0}
    assert found.column(0).to_pylist() == ["0"]


@pytest.mark.parametrize(
    "returns", [KAFKAS, "value BINARY", "*", "*, id INT", "value INT, HEADERS STRING"]
)
@pytest.mark.parametrize("kind", ["", "arrow", "pandas"])
def test_a_jvm_without_its_optimizing_compiler_gets_no_rows(spark, tmp_path, kind, returns):
    """The launcher decides that from the file alone, and never against `python_plan`."""
    made = planned(tmp_path, "topic: out", kind or "arrow", returns)
    path = tmp_path / "pipeline.yaml"
    if kind:
        step = f'{{{kind}: "mine:{kind}", returns: "{returns}"}}'
        path.write_text(path.read_text() + f"transform: [{step}]\n")
    else:
        made = replace(made, transforms=())
    if is_surely_in_python(load_pipeline(path, {})):
        assert python_plan(made, spark, parsed(SOURCE_SCHEMA)) is not None
    else:
        assert kind == "pandas" or "HEADERS" in returns
