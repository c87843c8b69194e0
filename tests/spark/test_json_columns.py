"""JSON that Python tasks parse gives the rows and rejected records that Spark's parser gives."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from support import inputs
from support.spark.spark_session import local_spark

from eos.formats.expressions import Format, quoted
from eos.formats.json_columns import JsonParser
from eos.formats.json_schema import json_fields, left_of
from eos.read.decode import Decode, RecordRule
from eos.read.rejected_records import RejectedRecords
from eos.testing import require_same_rows

pytestmark = pytest.mark.spark

KAFKA = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("json columns") as session:
        session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        yield session


def rows_of(texts: list[bytes | None], name: str) -> pa.Table:
    count = len(texts)
    kept = pa.array(texts, pa.binary())
    of = {"key": pa.nulls(count, pa.binary()), "value": pa.nulls(count, pa.binary()), name: kept}
    columns = {
        **of,
        "topic": pa.array(["in"] * count),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count)),
    }
    return pa.table(columns)


def parser_of(name: str, declared: Format) -> JsonParser:
    schema = StructType.fromDDL(declared.schema)
    fields = json_fields(schema.fields, declared.required, has_old_times=False)
    assert not isinstance(fields, str), fields
    return JsonParser(name, fields)


def by_tasks(frame: DataFrame, parser: JsonParser) -> DataFrame:
    """The rows as the Arrow reader returns them."""

    def parse(batches):
        return map(parser.with_columns, batches)

    added = ", ".join(f"{column} {kind}" for column, kind in parser.columns.items())
    return frame.mapInArrow(parse, f"{KAFKA}, {added}")


Found = tuple[list[tuple], tuple[RejectedRecords, ...]]


def decoded(decode: Decode, frame: DataFrame) -> Found:
    """The columns exactly: times as numbers, since a time may not fit into Python's."""
    out = decode.apply(frame)
    exact = {"timestamp": "unix_micros({})", "date": "unix_date({})"}
    columns = [
        exact.get(each.dataType.simpleString(), "{}").format(quoted(each.name))
        for each in out.schema.fields
    ]
    made = out.selectExpr(*columns)
    rows = [tuple(map(repr, row)) for row in made.collect()]
    return rows, decode.found(made, len(rows), frame)


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 20))]


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_and_rejected_records_are_those_of_from_json(spark: SparkSession, seed: int) -> None:
    chance = random.Random(seed)
    name = chance.choice(["key", "value"])
    columns = inputs.json_schema(chance)
    required = tuple(each for each, _ in columns if chance.random() < 0.1)
    listed = [f"{quoted(each)} {kind}" + " NOT NULL" * (each in required) for each, kind in columns]
    declared = Format("json", ", ".join(listed), tuple(each for each, _ in columns), required)
    parser = parser_of(name, declared)
    formats = {name: declared}
    decode = Decode(
        **formats, on_error="drop", rules=(RecordRule("even", "offset % 2 = 0", "drop"),)
    )
    texts = [inputs.json_text(chance, columns) for _ in range(4000)]
    texts += [None, b"", b" ", b"{}", b"null", b"[]", b"\xef\xbb\xbf{}", b"3"]
    table = rows_of(texts, name)
    frame = spark.createDataFrame(table).repartition(2)
    ours, theirs = decoded(decode, by_tasks(frame, parser)), decoded(decode, frame)
    assert sorted(ours[0]) == sorted(theirs[0])
    assert ours[1] == theirs[1]
    left = parser.with_columns(table.combine_chunks().to_batches()[0]).column(left_of(name))
    # The library parsed a good part of them itself.
    parsed = len(texts) - (len(left) - left.null_count)
    assert parsed > len(texts) * 0.35


def test_dead_letters_of_parsed_rows_have_the_same_reasons(spark: SparkSession) -> None:
    declared = Format("json", "id INT NOT NULL, name STRING", ("id", "name"), ("id",))
    texts = [b'{"id": 1}', b'{"id": null}', b'{"name": "x"}', b"{", None, b'{"id": "x"}', b"\xff"]
    frame = spark.createDataFrame(rows_of(texts, "value"))
    rules = (RecordRule("named", "name <> ''", "dead_letter"),)
    decode = Decode(value=declared, on_error="dead_letter", rules=rules)
    parsed = by_tasks(frame, parser_of("value", declared))
    require_same_rows(decode.dead_letters(parsed), decode.dead_letters(frame))
    ours = decode.dead_letters(parsed).collect()
    assert len({row["__eos_error"] for row in ours}) > 3
    assert [row.value and bytes(row.value) for row in ours] == texts


def test_an_object_in_one_column_is_null_only_for_a_null(spark: SparkSession) -> None:
    declared = Format("json", "id INT", ("id",), column="order")
    frame = spark.createDataFrame(rows_of([b'{"id": 1}', b"{}", None, b'{"id": 1} x'], "value"))
    rows = Decode(value=declared).apply(by_tasks(frame, parser_of("value", declared)))
    assert [row.order and row.order.id for row in rows.collect()] == [1, None, None, 1]
    assert rows.where("`order` IS NULL").count() == 1
