"""The quickstart's loader and check on a real broker; a plain transactional producer plays eos."""

import importlib
import json
import subprocess
import sys
import time
import uuid
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from support.kafka import kafka_io

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).parents[2] / "pipelines" / "quickstart" / "demo.py"
SOURCE, TARGET, LEDGER = "quickstart.orders", "quickstart.orders.out", "eos.ledger.quickstart"


def demo(verb: str, bootstrap: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), verb, "--bootstrap", bootstrap, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)


def numbers(bootstrap: str) -> tuple[int, dict[str, float]]:
    done = demo("report", bootstrap, "--json", "--seconds", "1.5")
    return done.returncode, json.loads(done.stdout)


def copied(bootstrap: str) -> list[bytes]:
    """What a correct pipeline would write: each source record with its coordinates."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    client = Consumer({"bootstrap.servers": bootstrap, "group.id": "x"})
    client.assign([TopicPartition(SOURCE, n, OFFSET_BEGINNING) for n in range(4)])
    found, deadline = [], time.monotonic() + 300
    while len(found) < 100_000 and time.monotonic() < deadline:
        for message in client.consume(10_000, timeout=0.5):
            assert message.error() is None
            value = json.loads(message.value())
            value["origin"] = {"partition": message.partition(), "offset": message.offset()}
            found.append(json.dumps(value).encode())
    client.close()
    return found


@pytest.fixture
def script(monkeypatch):
    """As a module: what it makes and sends."""
    monkeypatch.syspath_prepend(SCRIPT.parent)
    monkeypatch.delitem(sys.modules, "demo", raising=False)
    yield importlib.import_module("demo")
    sys.modules.pop("demo", None)


def test_a_topic_that_was_just_made_is_waited_for(broker, script, monkeypatch):
    """The broker that is asked hears of it later than the client that made it."""
    mine, counts, create = f"late-{uuid.uuid4().hex[:8]}", script.counts, script.create_topics
    asked = list[int]()

    def heard_of_later(bootstrap: str, topic: str) -> list[int]:
        found = counts(bootstrap, topic)
        create(bootstrap)
        asked.append(len(found))
        return found

    for name, value in {
        "SOURCE": mine,
        "TARGET": f"{mine}.out",
        "ORDERS": 100,
        "orders": partial(script.orders, 100),
        "create_topics": lambda _bootstrap: None,
        "counts": heard_of_later,
    }.items():
        monkeypatch.setattr(script, name, value)
    assert script.load(broker.bootstrap) == {"loaded": 100, "present": 100}
    assert (asked[0], asked[-1]) == (0, 4)
    monkeypatch.setattr(script, "PARTITIONS", 3)
    with pytest.raises(SystemExit, match="has 4 partitions instead of 3"):
        script.load(broker.bootstrap)


@pytest.mark.nightly
def test_the_demo_loads_completes_and_checks(broker, script):
    bootstrap = broker.bootstrap
    kafka_io.create_topics(bootstrap, 4, SOURCE)
    kafka_io.create_topics(bootstrap, 1, LEDGER)
    earlier = kafka_io.producer(bootstrap)
    # An earlier load that ended after seven records of one partition.
    of_one = (order for order in script.orders() if order.partition == 2)
    for _, order in zip(range(7), of_one, strict=False):
        earlier.produce(SOURCE, order.value, order.key, partition=2)
    assert earlier.flush(300) == 0

    assert json.loads(demo("load", bootstrap).stdout) == {"loaded": 99_993, "present": 100_000}
    assert json.loads(demo("load", bootstrap).stdout) == {"loaded": 0, "present": 100_000}

    code, found = numbers(bootstrap)
    assert (code, found["records_out"], found["lost"]) == (1, 0, 100_000)

    values = copied(bootstrap)
    assert len(values) == 100_000
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "plays-eos"})
    producer.init_transactions(300)

    def transaction(records: list[bytes], epoch: int, *, commit: bool) -> None:
        producer.begin_transaction()
        for value in records:
            producer.produce(TARGET, value)
            producer.poll(0)
        entry = {"kind": "attempt", "at_ms": int(time.time() * 1000)}
        entry["attempt"] = {"producer_id": 1, "epoch": epoch}
        producer.produce(LEDGER, json.dumps(entry).encode())
        producer.flush(300)  # an abort would forget what has not left yet
        producer.commit_transaction(300) if commit else producer.abort_transaction(300)
        kafka_io.wait_closed(bootstrap, TARGET, LEDGER)

    transaction(values[:50_000], 1, commit=True)
    transaction(values[50_000:], 2, commit=False)
    code, found = numbers(bootstrap)
    assert (code, found["lost"], found["transactions"]) == (1, 50_000, 1)

    transaction(values[50_000:], 3, commit=True)
    code, found = numbers(bootstrap)
    assert code == 0
    assert found == {
        "records_in": 100_000,
        "records_out": 100_000,
        "transactions": 2,
        "duplicates": 0,
        "lost": 0,
        "seconds": 1.5,
    }
    again = demo("report", bootstrap, "--seconds", "0", "--already", "100000")
    assert again.returncode == 0
    assert "nothing new: all 100,000 orders were already committed" in again.stderr
    ran = demo("report", bootstrap, "--seconds", "60", "--already", "100000")
    assert "nothing new" not in ran.stderr  # loaded earlier, but committed by this run

    transaction(values[:3], 4, commit=True)
    code, found = numbers(bootstrap)
    assert (code, found["duplicates"], found["lost"]) == (1, 3, 0)
    transaction([b"stranger"], 5, commit=True)
    assert "1 records of quickstart.orders.out are no orders" in demo("report", bootstrap).stderr
