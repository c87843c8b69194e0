"""Debezium's change events on a real Spark: both forms of JSON, Avro, and what is no event."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from support.spark.spark_session import local_spark

from eos.config.source import ParsedFormat, Source
from eos.plan.plan import decode
from eos.read.decode import Decode

pytestmark = pytest.mark.spark

KAFKA = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
ROW = "id BIGINT NOT NULL, state STRING, `a b` STRUCT<c: INT>"
AT_MS = 1795255200123
AT = datetime.fromtimestamp(AT_MS / 1000, timezone.utc).replace(microsecond=123_000)
AVRO = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {
            "name": "before",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Value",
                    "fields": [{"name": "id", "type": "long"}, {"name": "state", "type": "string"}],
                },
            ],
        },
        {"name": "after", "type": ["null", "Value"]},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [{"name": "ts_ms", "type": "long"}],
            },
        },
        {"name": "op", "type": "string"},
    ],
}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("debezium") as session:
        session.conf.set("spark.sql.session.timeZone", "UTC")
        yield session


def decoding(**debezium: Any) -> Decode:
    value = ParsedFormat.model_validate({"debezium": debezium})
    kafka = {"topic": "shop.orders"}
    return decode(
        Source.model_validate({"kafka": kafka, "value": value, "on_error": "dead_letter"})
    )


def records(spark: SparkSession, values: list[bytes | None]) -> DataFrame:
    rows = [(b"k", value, "in", 0, offset, None) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, KAFKA)


def event(op: str, before: Any, after: Any, **more: Any) -> dict[str, Any]:
    source = {"version": "3.0", "connector": "postgresql", "ts_ms": AT_MS, "table": "orders"}
    whole = {"before": before, "after": after, "op": op, "source": source, "ts_ms": AT_MS + 5}
    return {**whole, **more}


def row(number: int, state: str | None = None, nested: int | None = None) -> dict[str, Any]:
    return {"id": number, "state": state, "a b": None if nested is None else {"c": nested}}


@pytest.mark.parametrize("has_schema", [False, True])
def test_an_event_is_the_same_with_its_schema_and_without(spark, has_schema):
    def written(made: dict[str, Any]) -> bytes:
        return json.dumps(
            {"schema": {"type": "struct"}, "payload": made} if has_schema else made
        ).encode()

    changes = [
        event("c", None, row(1, "new", 7)),
        event("u", row(1, "new"), row(1, "paid"), transaction={"id": "571"}),
        event("d", {"id": 1}, None),
        event("r", None, row(2)),
        event("t", None, None),
    ]
    frame = records(spark, [*map(written, changes), None])
    coding = decoding(json=ROW)
    out = coding.apply(frame)
    found = [each.asDict(recursive=True) for each in out.collect()]
    assert coding.found(out, len(found), frame) == ()
    assert list(found[0])[-4:] == ["before", "after", "op", "source_ts"]
    assert [each["op"] for each in found] == ["c", "u", "d", "r", "t", None]
    assert [each["after"] for each in found] == [
        row(1, "new", 7),
        row(1, "paid"),
        None,
        row(2),
        None,
        None,
    ]
    assert [each["before"] for each in found][:3] == [None, row(1, "new"), row(1)]
    times = [each.s for each in out.selectExpr("unix_millis(source_ts) AS s").collect()]
    assert times == [AT_MS] * 5 + [None]


def test_what_is_no_event_is_malformed(spark):
    good = event("c", None, row(1))
    odd: dict[str, Any] = {
        "`op` is none of": {"id": 1, "state": "x"},  # a row that something unwrapped
        "it has no `after`": event("u", row(1), None),
        "lacks the column `id` in `after`": event("c", None, {"state": "x"}),
        "does not fit its schema": event("c", None, {"id": "x"}),
        "is no Debezium event": event("z", None, row(1)),
        "no Debezium event": {"schema": {}, "payload": None},
        "not fit its schema": 3,
        "has a `source.ts_ms` that is no timestamp": event(
            "c", None, row(1), source={"ts_ms": 2**63 - 1}
        ),
    }
    values = [json.dumps(each).encode() for each in (good, *odd.values())]
    coding, frame = decoding(json=ROW), records(spark, values)
    out = coding.apply(frame)
    assert [each.offset for each in out.collect()] == [0]
    (rejected,) = coding.found(out, 1, frame)
    assert (rejected.records, rejected.offset) == (len(odd), 1)
    dead = {each.offset: each["__eos_error"] for each in coding.dead_letters(frame).collect()}
    for offset, text in enumerate(odd, 1):
        assert text in dead[offset]


def test_avro_events_are_read_by_their_schema(spark):
    text = json.dumps(AVRO)
    made = spark.createDataFrame(
        [
            (0, None, (1, "new"), (AT_MS,), "c"),
            (1, (1, "new"), None, (AT_MS,), "d"),
            (2, None, None, (AT_MS,), "u"),
            (3, None, (2, "new"), (-(2**63),), "c"),
        ],
        "n INT, before STRUCT<id: BIGINT, state: STRING>, after STRUCT<id: BIGINT, state: STRING>, "
        "source STRUCT<ts_ms: BIGINT>, op STRING",
    )
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    encoded = made.orderBy("n").selectExpr(
        f"to_avro(struct(before, after, source, op), '{quoted}') AS value"
    )
    values = [bytes(each.value) for each in encoded.collect()]
    coding, frame = decoding(avro=text), records(spark, [*values, b"\x07", None])
    out = coding.apply(frame)
    found = [each.asDict(recursive=True) for each in out.collect()]
    assert [each["op"] for each in found] == ["c", "d", None]
    assert [each["after"] for each in found] == [{"id": 1, "state": "new"}, None, None]
    assert found[1]["before"] == {"id": 1, "state": "new"}
    assert found[0]["source_ts"].replace(tzinfo=timezone.utc) == AT
    dead = [each["__eos_error"] for each in coding.dead_letters(frame).collect()]
    assert dead == [
        "the value is no whole Debezium event: it has no `after`",
        "the value has a `source.ts_ms` that is no timestamp",
        "the value is no Avro record of its schema",
    ]
