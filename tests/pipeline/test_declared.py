"""The example pipelines/orders_enriched, end to end: JSON in; JSON, Avro and dead letters out."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
from support.kafka import kafka_io
from support.spark.project import Project

EXAMPLE = Path(__file__).parents[2] / "pipelines" / "orders_enriched"
TAX = {"DE": Decimal("1.19"), "JP": Decimal("1.10")}
FIELDS = ["order_id", "customer", "country", "amount", "gross", "ts"]


def declare(project: Project, **instead: str) -> None:
    """The example under the project's own names."""
    folder = project.folder / "pipelines" / project.name
    folder.mkdir(parents=True, exist_ok=True)
    for path in EXAMPLE.glob("*.*"):
        text = path.read_text()
        for word, other in {
            "orders.enriched": project.target,
            "orders.large": f"{project.target}.large",
            "orders.dlq": f"{project.target}.dlq",
            "topic: orders,": f"topic: {project.source},",
            "orders_enriched": project.name,
            **instead,
        }.items():
            text = text.replace(word, other)
        (folder / path.name).write_text(text)


def orders(count: int) -> list[dict[str, Any]]:
    return [
        {
            "order_id": number,
            "customer": f"name {number}" if number % 5 else None,
            "country": ("DE", "JP", "FR")[number % 3],
            "amount": number * 50,
            "ts": "2026-11-21T10:00:00.000001+01:00",
        }
        for number in range(count)
    ]


def enriched(order: dict[str, Any]) -> dict[str, Any]:
    amount = Decimal(order["amount"])
    return {
        **order,
        "customer": order["customer"] and f"{order['customer'][:2]}***",
        "amount": amount,
        "gross": amount * TAX.get(order["country"], Decimal(1)),
        "ts": "2026-11-21T09:00:00.000001Z",
    }


def produce(project: Project, *values: bytes | None, partition: int = 1) -> None:
    producer = kafka_io.producer(project.broker.bootstrap)
    for value in values:
        producer.produce(project.source, value, b"k", partition=partition)
    assert producer.flush(300) == 0


def of_json(value: bytes) -> dict[str, Any]:
    return json.loads(value, parse_float=Decimal)


def of_avro(value: bytes) -> dict[str, Any]:
    """By a library that shares no code with Spark's; the time becomes text, as in JSON."""
    schema = fastavro.parse_schema(json.loads((EXAMPLE / "large_order.avsc").read_text()))
    stream = io.BytesIO(value)
    found = fastavro.schemaless_reader(stream, schema, None)
    assert stream.read() == b""
    utc = found["ts"].astimezone(dt.timezone.utc).replace(tzinfo=None)
    return {**found, "ts": f"{utc.isoformat(timespec='microseconds')}Z"}


def read(
    project: Project, topic: str, decoded: Callable[[bytes], dict[str, Any]] = of_json
) -> dict[int, dict[str, Any]]:
    found = {}
    for row in kafka_io.read(project.broker.bootstrap, topic):
        value = decoded(row.value)
        assert list(value) == FIELDS
        assert row.key == b"%d" % value["order_id"]
        assert value["order_id"] not in found
        found[value["order_id"]] = value
    return found


def test_what_is_declared_is_what_is_written(project: Project) -> None:
    declare(project)
    kafka_io.create_topics(project.broker.bootstrap, 2, project.source)
    given = orders(300)
    produce(project, *(json.dumps(order).encode() for order in given), partition=0)
    odd = [b"no order", b'{"customer": "x"}', None, b'{"order_id": 9, "amount": "x"}']
    unpaid = b'{"order_id": 10, "amount": -1}'
    nowhere = b'{"order_id": 11, "amount": 1, "country": "Germany"}'
    produce(project, *odd, unpaid, nowhere)
    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    first = f"the first is {project.source}-1 at offset"
    assert f"3 malformed records sent to the dead letters, {first} 0" in done.stderr
    assert f"1 record sent to the dead letters by rule `not_negative`, {first} 4" in done.stderr
    assert f"1 record dropped by rule `known_country`, {first} 5" in done.stderr
    expected = {order["order_id"]: enriched(order) for order in given if order["amount"]}
    assert read(project, project.target) == expected
    large = {number: order for number, order in expected.items() if order["gross"] > 10000}
    assert 0 < len(large) < len(expected)
    assert read(project, f"{project.target}.large", of_avro) == large
    dead = kafka_io.read_records(project.broker.bootstrap, f"{project.target}.dlq")
    assert [(each.key, each.value) for each in dead] == [
        (b"k", value) for value in (odd[0], odd[1], odd[3], unpaid)
    ]
    assert [each.told["eos.rule"] for each in dead] == ["malformed"] * 3 + ["not_negative"]

    declare(project, **{"on_error: dead_letter #": "on_error: fail #"})
    produce(project, b'{"order_id": 1000, "amount": 1}', b"[]")
    failed = project.run_warm()
    assert failed.returncode == 4, failed.stderr
    assert "[record_malformed]" in failed.stderr
    assert f"the record {project.source}-1 at offset 7 " in failed.stderr
    assert read(project, project.target) == expected  # nothing of the micro-batch
    declare(project)
    corrected = project.run_warm()
    assert corrected.returncode == 0, corrected.stderr
    assert read(project, project.target).keys() == {*expected, 1000}
