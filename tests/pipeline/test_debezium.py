"""The pipeline of docs/debezium.md keeps a Delta table equal to a database table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from support.delta import lake
from support.docs import blocks
from support.kafka import kafka_io
from support.kafka.brokers import Kafka
from support.spark.project import Project, WarmDriver

pytestmark = pytest.mark.long

PLACED_US = 1795255200123456
AT_MS = 1795255300000


@pytest.fixture
def made(tmp_path: Path, broker: Kafka, with_delta: WarmDriver) -> Project:
    project = Project.made(tmp_path, broker, with_delta)
    kafka_io.create_topics(broker.bootstrap, lake.PARTITIONS, project.source)
    (block,) = [text for name, text in blocks("yaml") if name.startswith("debezium.md")]
    text = block.replace("shop_orders", "{name}").replace("shop.public.orders", "{source}")
    for bracket in ("{name}", "{source}"):
        assert bracket in text
    place = project.folder / "pipelines" / project.name
    place.mkdir(parents=True)
    text = text.replace("{name}", project.name).replace("{source}", project.source)
    text = text.replace("lake/orders", str(lake.table(project, "orders")))
    (place / "pipeline.yaml").write_text(f"{text}trigger: {{available_now: true}}\n")
    return project


def change(op: str, number: int, state: str = "", *, is_wrapped: bool = False) -> Any:
    row = {"id": number, "state": state, "amount": f"{number}.50", "placed": PLACED_US}
    event = {
        "before": None if op in "cr" else {"id": number},
        "after": None if op == "d" else row,
        "op": op,
        "source": {"ts_ms": AT_MS, "table": "orders"},
        "ts_ms": AT_MS + 10,
    }
    return {"schema": {"type": "struct"}, "payload": event} if is_wrapped else event


def send(project: Project, *changes: tuple[int | None, Any]) -> None:
    producer = kafka_io.producer(project.broker.bootstrap)
    for number, value in changes:
        producer.produce(
            project.source,
            None if value is None else json.dumps(value),
            None if number is None else json.dumps({"id": number}),
            partition=(number or 0) % lake.PARTITIONS,
        )
    assert producer.flush(300) == 0


def states(project: Project) -> dict[int, str]:
    return {row["id"]: row["state"] for row in lake.rows(lake.table(project, "orders"))}


def deleted(numbers: Iterable[int]) -> list[tuple[int, Any]]:
    """Return the two records of each deletion: the event and the tombstone."""
    return [(n, each) for n in numbers for each in (change("d", n), None)]


@pytest.mark.nightly
def test_a_table_follows_the_changes_of_a_database(made: Project) -> None:
    send(made, *((n, change("r", n, "old")) for n in range(6)))
    send(made, (1, change("u", 1, "paid", is_wrapped=True)), *deleted([2]))
    assert made.run_warm().returncode == 0
    assert states(made) == {0: "old", 1: "paid", 3: "old", 4: "old", 5: "old"}
    (row,) = (each for each in lake.rows(lake.table(made, "orders")) if each["id"] == 3)
    assert set(row) == {"id", "state", "amount", "placed", "source_ts"}
    assert row["amount"] == Decimal("3.50")
    assert round(row["placed"].timestamp() * 1_000_000) == PLACED_US
    assert round(row["source_ts"].timestamp() * 1000) == AT_MS

    # Changes of one key in one micro-batch: the last one counts. A truncation is ignored.
    truncated = {**change("d", 0), "op": "t", "before": None}
    send(
        made,
        *deleted([3, 4]),
        (3, change("c", 3, "again")),
        (None, truncated),
        (5, None),  # a tombstone alone
        (7, change("c", 7, "new")),
        *deleted([7]),
    )
    assert made.run_warm().returncode == 0
    assert states(made) == {0: "old", 1: "paid", 3: "again"}
    assert lake.verified(made)["findings"] == []
