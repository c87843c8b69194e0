"""Steps that Python tasks run on Arrow columns leave the rows that Spark's own steps leave."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from support.errors import in_turn
from support.spark.spark_session import local_spark

from eos.config.load import load_pipeline, load_profile
from eos.errors import AttemptFailedError
from eos.native import library
from eos.plan.plan import Plan, plan
from eos.spark import python_rows
from eos.spark.arrow_plan import arrow_steps
from eos.spark.json_parsers import json_parsing
from eos.spark.python_rows import ArrowPlan, computed_first
from eos.spark.sink_columns import sink_columns
from eos.spark.steps import transformed
from eos.transform.arrow_steps import ArrowSteps
from eos.transform.functions import Function, Transform
from eos.transform.sql import Query

pytestmark = pytest.mark.spark

SCHEMA = (
    "id BIGINT, small INT, tiny TINYINT, ratio DOUBLE, name STRING, done BOOLEAN, "
    "price DECIMAL(8,2)"
)
PIPELINE = """\
version: 1
name: orders
source:
  kafka: {{topic: orders}}
  {source}
{rules}
sink:
  kafka:
{sinks}
"""
RULES = "expect: [{name: positive, rule: id > 0}]"
PLAIN = "    - {topic: out}\n"
JSON = "    - {topic: out, value: json}\n"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("arrow steps") as session:
        session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        yield session


def planned(
    folder: Path,
    sinks: str,
    *steps: Transform,
    source: str = f'value: {{json: "{SCHEMA}"}}',
    rules: str = "",
) -> Plan:
    path = folder / "pipeline.yaml"
    path.write_text(PIPELINE.format(source=source, rules=rules, sinks=sinks))
    return plan(load_pipeline(path, {}), load_profile(None, folder, {}), ("a:1",), steps)


def sql(text: str) -> Query:
    return Query(text, "step 1 (SQL)", "")


def python(step: Callable[[DataFrame], DataFrame]) -> Function:
    return Function("steps:step", {}, step, ())


TEXTS = [
    "",
    "a",
    "b",
    "open",
    "\u00f6",
    "x" * 20,
    'quo"te',
    "back\\slash",
    "tab\t",
    "\x01",
    "\U0001f600",
]
RATIOS = [0.0, -0.0, 1.5, -2.25, 1e-3, 9.99e-4, 1e7, 12345678.9, 1e300, -1e300, 0.1, 100.0]


def value(chance: random.Random) -> bytes | None:
    if chance.random() < 0.05:
        return None
    fields = {
        "id": chance.choice([0, 1, -1, 2**40, chance.randrange(-100, 100)]),
        "small": chance.randrange(-1000, 1000),
        "tiny": chance.randrange(-128, 128),
        "ratio": chance.choice(RATIOS),
        "name": chance.choice(TEXTS),
        "done": chance.random() < 0.5,
        "price": round(chance.randrange(10**6) / 100, 2),
    }
    kept = {name: each for name, each in fields.items() if chance.random() < 0.85}
    return json.dumps(kept, ensure_ascii=chance.random() < 0.5).encode()


def records(values: list[bytes | None], keys: list[bytes | None] | None = None) -> pa.Table:
    count = len(values)
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = [[{"key": "h", "value": b"%d" % n}] if n % 3 else None for n in range(count)]
    columns = {
        "key": pa.array(
            keys or [b"k%d" % (n % 7) if n % 5 else None for n in range(count)], pa.binary()
        ),
        "value": pa.array(values, pa.binary()),
        "headers": pa.array(headers, header),
        "topic": pa.array(["orders"] * count),
        "partition": pa.array([n % 4 for n in range(count)], pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        "timestamp": pa.array(
            [1_700_000_000_000_000 + n for n in range(count)], pa.timestamp("us", tz="UTC")
        ),
        "timestampType": pa.array([0] * count, pa.int32()),
    }
    return pa.table(columns)


def in_python(plan: Plan, spark: SparkSession, table: pa.Table) -> list[dict]:
    steps = arrow_steps(plan, spark, json_parsing(plan, spark))
    assert isinstance(steps, ArrowSteps), steps
    batches = table.combine_chunks().to_batches(max_chunksize=100)
    rows = ArrowPlan(steps).sink_rows(iter(batches))
    return [row for batch in rows for row in batch.to_pylist()]


def in_spark(plan: Plan, spark: SparkSession, table: pa.Table) -> list[dict]:
    rows = transformed(plan, spark.createDataFrame(table))
    return [row for batch in [sink_columns(rows, plan).toArrow()] for row in batch.to_pylist()]


def comparable(row: dict) -> str:
    """Each column's text. In JSON, numbers count, and not their digits."""
    return repr({name: _comparable(each) for name, each in sorted(row.items())})


def _comparable(found: object) -> object:
    if isinstance(found, str):
        found = found.encode()
    if isinstance(found, bytes) and found.startswith(b"{"):
        return json.dumps(json.loads(found))  # with its order
    if isinstance(found, float) and math.isnan(found):
        return "NaN"
    return found


def require_same(plan: Plan, spark: SparkSession, table: pa.Table) -> list[dict]:
    ours, theirs = in_python(plan, spark, table), in_spark(plan, spark, table)
    assert sorted(map(comparable, ours)) == sorted(map(comparable, theirs))
    return ours


CONDITIONS = [
    "name <> 'open'",
    "NOT (name = 'open')",
    "ratio > 1.19",
    "ratio * 2 - 1 >= small",
    "id IN (1, 2, -1)",
    "NOT (name IN ('a', NULL))",
    "name IS NULL OR done",
    "done AND small + tiny < 10 OR id <=> NULL",
    "ratio <=> 0.0",
    "CAST(key AS STRING) = 'k1'",
    "coalesce(name, 'none') <> 'none'",
    "tiny BETWEEN -3 AND 90",
    "name < 'b'",
    "value IS NOT NULL AND offset > 10",
    "ratio = 0",
    "true",
]
EXPRESSIONS = [
    "id",
    "id + small AS total",
    "ratio * 1.19 AS gross",
    "-ratio AS minus",
    "small * 2 - tiny AS twice",
    "concat(name, '-', CAST(id AS STRING)) AS label",
    "CASE WHEN ratio > 1 THEN 'much' WHEN ratio < 0 THEN 'less' END AS word",
    "IF(done, name, 'not') AS maybe",
    "coalesce(name, 'none') AS some",
    "done",
    "ratio / 4 AS part",
    "CAST(key AS STRING) AS of_key",
    "7 AS seven",
    "CAST(NULL AS STRING) AS nothing",
    "name = 'a' AS is_a",
    "CAST(small AS DOUBLE) AS wide",
    "tiny",
    "offset AS at",
]


@pytest.mark.parametrize("seed", in_turn(range(6), 1, every=3, of_these=2))
def test_random_steps(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    table = records([value(chance) for _ in range(500)])
    for _ in range(6):
        chosen = ", ".join(chance.sample(EXPRESSIONS, chance.randrange(1, 8)))
        condition = chance.choice(CONDITIONS)
        head = chance.choice(["key, ", "topic, partition, offset, key, headers, ", ""])
        step = sql(f"SELECT {head}{chosen} FROM input WHERE {condition}")
        if head.startswith("topic") and "offset AS at" in chosen:
            continue
        require_same(planned(tmp_path, JSON, step), spark, table)


def test_each_condition_and_expression(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(7)
    table = records([value(chance) for _ in range(300)])
    where = ", ".join(f"({each}) AS c{n}" for n, each in enumerate(CONDITIONS))
    listed = ", ".join(EXPRESSIONS)
    require_same(planned(tmp_path, JSON, sql(f"SELECT {where} FROM input")), spark, table)
    require_same(planned(tmp_path, JSON, sql(f"SELECT {listed} FROM input")), spark, table)
    for each in CONDITIONS:
        step = sql(f"SELECT key, value FROM input WHERE {each}")
        require_same(planned(tmp_path, PLAIN, step), spark, table)


def test_python_steps_one_after_the_other(spark: SparkSession, tmp_path: Path) -> None:
    def first(rows: DataFrame) -> DataFrame:
        return rows.withColumn("gross", f.col("ratio") * 1.19).filter(f.col("name") != "open")

    def second(rows: DataFrame) -> DataFrame:
        named = rows.withColumnRenamed("gross", "total").drop("ratio")
        return named.filter("total > 0").select("key", "name", "total", "headers")

    chance = random.Random(3)
    table = records([value(chance) for _ in range(400)])
    made = planned(tmp_path, JSON, python(first), python(second))
    found = require_same(made, spark, table)
    assert found
    assert {row["headers"] is None for row in found} == {False}


def test_several_sinks_with_conditions(spark: SparkSession, tmp_path: Path) -> None:
    sinks = (
        "    - {topic: a, value: {json: [id, name]}, key: CAST(id AS STRING), where: done}\n"
        "    - {topic: b, value: {json: [name]}, where: ratio > 0}\n"
    )
    chance = random.Random(4)
    table = records([value(chance) for _ in range(400)])
    require_same(planned(tmp_path, sinks), spark, table)


def test_texts_of_keys_and_values(spark: SparkSession, tmp_path: Path) -> None:
    made = planned(
        tmp_path,
        PLAIN,
        sql("SELECT key, concat(value, '!') AS value FROM input WHERE value > 'b'"),
        source="key: string\n  value: string",
    )
    require_same(made, spark, records([b"a", b"b", b"c", None, "\u00f6".encode()] * 10))


@pytest.mark.parametrize(
    ("step", "values"),
    [
        ("SELECT id + 1 AS id FROM input", [b'{"id": 9223372036854775807}']),
        ("SELECT 1 / ratio AS id FROM input", [b'{"ratio": 0.0}']),
        ("SELECT id FROM input", [b'{"id": 1}', b"{"]),
        ("SELECT id FROM input WHERE ratio * 1e300 - ratio * 1e300 > 1", [b'{"ratio": 1e300}']),
    ],
)
def test_what_only_spark_computes_needs_spark(
    spark: SparkSession, tmp_path: Path, step: str, values: list[bytes | None]
) -> None:
    made = planned(tmp_path, JSON, sql(step))
    with pytest.raises(AttemptFailedError) as raised:
        in_python(made, spark, records(values))
    assert raised.value.code == "steps_need_spark"


def test_a_key_that_is_no_text_needs_spark(spark: SparkSession, tmp_path: Path) -> None:
    made = planned(tmp_path, JSON, sql("SELECT CAST(key AS STRING) AS id FROM input"))
    with pytest.raises(AttemptFailedError) as raised:
        in_python(made, spark, records([b"{}"], [b"\xff"]))
    assert raised.value.code == "steps_need_spark"


def test_a_key_that_is_no_text_needs_spark_also_if_nothing_reads_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = planned(
        tmp_path,
        JSON,
        sql("SELECT id FROM input"),
        source=f'key: string\n  value: {{json: "{SCHEMA}"}}',
    )
    assert len(in_python(made, spark, records([b"{}"], [b"k"]))) == 1
    with pytest.raises(AttemptFailedError) as raised:
        in_python(made, spark, records([b"{}"], [b"\xff"]))
    assert raised.value.code == "steps_need_spark"


def test_json_on_a_machine_without_the_native_library_needs_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = planned(tmp_path, JSON, sql("SELECT value AS text FROM input"), source="value: string")
    assert len(in_python(made, spark, records([b"a"]))) == 1
    monkeypatch.setattr(library, "load", lambda: None)
    with pytest.raises(AttemptFailedError) as raised:
        in_python(made, spark, records([b"a"]))
    assert raised.value.code == "steps_need_spark"


def test_a_record_that_does_not_meet_a_rule_needs_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = planned(tmp_path, "    - {topic: out, value: {json: [id]}}", rules=RULES)
    assert len(in_python(made, spark, records([b'{"id": 1}', b'{"id": 2}']))) == 2
    with pytest.raises(AttemptFailedError) as raised:
        in_python(made, spark, records([b'{"id": 1}', b'{"name": "x"}']))
    assert raised.value.code == "steps_need_spark"


@pytest.mark.parametrize(
    "step",
    [
        "SELECT upper(name) AS name FROM input",
        "SELECT current_timestamp() AS now FROM input",
        "SELECT id, year(current_date()) AS year FROM input",
        "SELECT count(*) AS n FROM input",
        "SELECT a.id FROM input a JOIN input b ON a.id = b.id",
        "SELECT id FROM input ORDER BY id",
        "SELECT DISTINCT id FROM input",
        "SELECT id FROM input LIMIT 3",
        "SELECT id FROM input UNION ALL SELECT id FROM input",
        "SELECT price FROM input",
        "SELECT timestamp AS at FROM input",
        "SELECT rand() AS id FROM input",
        "SELECT CAST(ratio AS INT) AS id FROM input",
        "SELECT CAST(name AS INT) AS id FROM input",
        "SELECT id FROM input WHERE name COLLATE UNICODE_CI = 'OPEN'",
        "SELECT id FROM input WHERE CAST(name AS STRING COLLATE UTF8_LCASE) = 'OPEN'",
        "SELECT id FROM input WHERE id = (SELECT max(id) FROM input)",
        "SELECT explode(array(1, 2)) AS id FROM input",
        "SELECT id << 63 AS id FROM input",
        "SELECT id << small AS id FROM input",
        "SELECT 1 AS id",
        "SELECT id FROM input WHERE named_struct(concat('a', 'b'), id) IS NOT NULL",
        "SELECT id, row_number() OVER (ORDER BY id) AS n FROM input",
    ],
)
def test_what_is_left_to_spark(spark: SparkSession, tmp_path: Path, step: str) -> None:
    made = planned(tmp_path, JSON, sql(step))
    reason = arrow_steps(made, spark, json_parsing(made, spark))
    assert isinstance(reason, str)
    assert reason


def test_rows_are_computed_before_the_first_is_sent() -> None:
    computed: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(5):
            computed.append(number)
            yield pa.RecordBatch.from_pydict({"n": pa.array([number] * 100, pa.int64())})

    found = computed_first(batches(), 2_000)
    first = next(found)
    assert computed == [0, 1, 2]  # of 800 bytes each
    assert [first, *found] == list(batches())


def test_only_before_the_first_record_is_sent_can_spark_go_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One task sends as it reads. Others send what all of them have encoded."""
    made = planned(tmp_path, JSON, sql("SELECT id + 1 AS id FROM input"))
    steps = arrow_steps(made, spark, json_parsing(made, spark))
    assert isinstance(steps, ArrowSteps), steps
    values: list[bytes | None] = [b'{"id": 1}'] * 100 + [b'{"id": 9223372036854775807}']
    batches = records(values).combine_chunks().to_batches(max_chunksize=10)

    def is_nothing_sent(plan: ArrowPlan) -> bool:
        with pytest.raises(AttemptFailedError) as raised:
            list(plan.sink_rows(iter(batches)))
        assert raised.value.code == "steps_need_spark"
        return bool(raised.value.fields["is_nothing_sent"])

    assert is_nothing_sent(ArrowPlan(steps))
    assert is_nothing_sent(ArrowPlan(steps).in_one_task())
    monkeypatch.setattr(python_rows, "_HELD_BYTES_MAX", 100)
    assert is_nothing_sent(ArrowPlan(steps))
    assert not is_nothing_sent(ArrowPlan(steps).in_one_task())
