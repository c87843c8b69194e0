"""The ledger on a real broker: what it remembers, what it steps over, what it refuses."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from support.errors import raises
from support.kafka import kafka_io

from eos.deadline import Deadline
from eos.errors import PromiseBrokenError, UnavailableError
from eos.kafka.api import Identity, TopicPartition
from eos.kafka.client import KafkaClient
from eos.kafka.compression_type import Codec
from eos.kafka.records.batch_headers import batches
from eos.ledger import ledger as module
from eos.ledger.ledger import Ledger
from eos.ledger.receipt import Receipt
from eos.ledger.record import AttemptRecord, Position, advanced, stamped
from eos.local.embedded_kafka import EmbeddedKafka
from eos.transaction.coordinator import Conclusion, Coordinator

OWNER = {"deployment": "here", "host": "h", "process": 1, "version": "0"}
START = Position(
    ends={TopicPartition("orders", 0): 5, TopicPartition("orders", 11): 7},
    topic_ids={"orders": "an-id"},
)
RECEIPT = Receipt("target", 0, records=3, offset_first=1, offset_last=3, bytes=90, digest=2**32 - 1)


def soon() -> Deadline:
    return Deadline.after_ms(300_000)


@pytest.fixture
def ledger(client: KafkaClient, name: str) -> Ledger:
    made = Ledger(client, f"{name}.ledger", "orders", OWNER)
    made.ensure_topic(1, soon())
    return made


@pytest.fixture
def owner(client: KafkaClient, name: str) -> Coordinator:
    """Fenced: it may write to the ledger."""
    made = Coordinator(client, name, name, 60_000)
    made.fence(soon())
    return made


def commit(owner: Coordinator, ledger: Ledger, make: Callable[[Identity], bytes]) -> None:
    identity = owner.begin(soon())
    owner.produce({ledger.partition: stamped(make(identity), identity)}, soon())
    assert owner.commit(soon()) is Conclusion.COMMITTED


def abort(owner: Coordinator, ledger: Ledger, record: bytes) -> None:
    identity = owner.begin(soon())
    owner.produce({ledger.partition: stamped(record, identity)}, soon())
    owner.abort(soon())


def attempt(ledger: Ledger, position: Position, number: int = 1) -> Callable[[Identity], bytes]:
    return lambda identity: ledger.record(
        "attempt", position, AttemptRecord(number, identity, START.ends, [RECEIPT])
    )


def test_what_was_committed_is_read_back(ledger, owner, client):
    assert ledger.read_last(soon()) is None
    commit(owner, ledger, lambda _: ledger.record("start", START))
    assert ledger.read_last(soon()).position == START
    ends = {TopicPartition("orders", 11): 9, TopicPartition("orders", 12): 4}
    after = advanced(START, ends, "query", 3, {"orders": "an-id"})
    assert after.ends == {TopicPartition("orders", 0): 5, **ends}
    commit(owner, ledger, attempt(ledger, after, number=2))
    assert ledger.read_last(soon()).position == after

    _, last = client.read_records(ledger.partition, 0, 4, committed=True, deadline=soon())
    body = json.loads(last.value)
    assert last.key == b"orders"
    assert (body["kind"], body["owner"], body["attempt"]["number"]) == ("attempt", OWNER, 2)
    assert (body["attempt"]["producer_id"], body["attempt"]["epoch"]) == (
        last.producer_id,
        last.epoch,
    )
    assert body["attempt"]["starts"] == {"orders": {"0": 5, "11": 7}}
    assert body["attempt"]["receipts"] == [RECEIPT.as_json()]


def test_the_topic_is_created_so_that_it_never_forgets_and_found_again(ledger, client, name):
    for setting in ("retention.ms", "retention.bytes"):
        assert client.topic_config(f"{name}.ledger", setting, soon()) == "-1"
    ledger.ensure_topic(1, soon())


@pytest.fixture
def compresses(broker: EmbeddedKafka) -> Iterator[None]:
    """The broker compresses by snappy whatever does not say otherwise."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def set_to(operation: AlterConfigOpType, value: str) -> None:
        entry = ConfigEntry("compression.type", value, incremental_operation=operation)
        broker_1 = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        for done in admin.incremental_alter_configs([broker_1]).values():
            done.result(300)

    set_to(AlterConfigOpType.SET, "snappy")
    yield
    set_to(AlterConfigOpType.DELETE, "snappy")


@pytest.mark.usefixtures("compresses")
def test_a_brokers_default_compression_is_not_the_ledgers(client, name):
    ask, deadline = partial(client.topic_config, name="compression.type"), soon()
    client.create_topic(f"{name}.other", 1, 1, {}, soon())
    while ask(f"{name}.other", deadline=soon()) != "snappy":  # the broker applies it a bit later
        assert not deadline.has_passed
    Ledger(client, f"{name}.ledger", "orders", OWNER).ensure_topic(1, soon())
    assert ask(f"{name}.ledger", deadline=soon()) == "producer"


def test_a_ledger_that_brokers_compress_by_snappy_is_read(owner, client, name):
    """Of an older release, on a cluster with that default."""
    topic = f"{name}.snappy"
    config = {**module.CONFIG, "compression.type": "snappy"}
    client.create_topic(topic, 1, 1, config, soon())
    ledger = Ledger(client, topic, "orders", OWNER)
    ledger.ensure_topic(1, soon())
    commit(owner, ledger, lambda _: ledger.record("start", START))
    codecs = [
        each.codec for each in batches(client.fetch(ledger.partition, 0, soon(), 1 << 20).blob)
    ]
    assert codecs == [Codec.SNAPPY.value, Codec.NONE.value]  # the record, the marker
    assert ledger.read_last(soon()).position == START


def test_aborted_attempts_are_stepped_over(ledger, owner):
    commit(owner, ledger, lambda _: ledger.record("start", START))
    other = advanced(START, {TopicPartition("orders", 0): 99}, "query", 0, {})
    for _ in range(3):
        abort(owner, ledger, ledger.record("start", other))
    assert ledger.read_last(soon()).position == START


def test_it_looks_back_as_far_as_it_takes(ledger, owner, client):
    commit(owner, ledger, lambda _: ledger.record("start", START))
    after = advanced(START, {}, "query", 0, {})
    commit(owner, ledger, attempt(ledger, after))
    record = ledger.record("start", START)
    for _ in range(160):  # a record and a marker each
        abort(owner, ledger, record)
    assert ledger.read_last(soon()).position == after  # and waits for the last marker
    end = client.list_offsets([ledger.partition], "latest", committed=True, deadline=soon())
    assert end[ledger.partition] == 2 * 162


def test_a_ledger_of_aborted_attempts_only_is_empty(ledger, owner):
    for _ in range(130):
        abort(owner, ledger, ledger.record("start", START))
    assert ledger.read_last(soon()) is None


def test_an_open_transaction_of_somebody_else_is_waited_for_and_then_named(
    ledger, owner, clients, monkeypatch
):
    commit(owner, ledger, lambda _: ledger.record("start", START))
    stranger = f"stranger-{uuid.uuid4().hex}"
    other = Coordinator(clients(), stranger, stranger, 60_000)
    identity = other.fence(soon())
    assert identity == other.begin(soon())
    other.produce({ledger.partition: stamped(ledger.record("start", START), identity)}, soon())
    with raises("ledger_unsettled", UnavailableError) as unsettled:
        ledger.read_last(Deadline.after_ms(4_000))
    assert "2 of 3 offsets are decided" in unsettled.value.message
    monkeypatch.setattr(module, "_SURE_AFTER_MS", 1_000)
    with raises("ledger_open", PromiseBrokenError) as caught:
        ledger.read_last(Deadline.after_ms(4_000))
    assert f"open on the ledger '{ledger.partition.topic}' from offset 2" in caught.value.message
    other.abort(soon())
    assert ledger.read_last(soon()).position == START


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("retention.ms", "604800000"),
        ("retention.bytes", "1000000"),
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
    ],
)
def test_a_topic_that_would_forget_is_refused(client, name, setting, value):
    client.create_topic(name, 1, 1, {"retention.ms": "-1", setting: value}, soon())
    with raises("ledger_forgets", PromiseBrokenError) as caught:
        Ledger(client, name, "orders", OWNER).ensure_topic(1, soon())
    assert f"{setting}={value}" in caught.value.message
    assert f"set {setting}=" in caught.value.hint


def test_a_record_of_something_else_is_refused(ledger, client, name, make_batch):
    owner = Coordinator(client, name, name, 60_000)
    owner.fence(soon())
    for value in (b"", b"hello", b"[1]", b'{"format": 99}', b"\xff"):
        identity = owner.begin(soon())
        owner.produce({ledger.partition: make_batch(identity, 0, value)}, soon())
        assert owner.commit(soon()) is Conclusion.COMMITTED
        with raises("ledger_unknown", PromiseBrokenError):
            ledger.read_last(soon())


def test_the_ledger_of_another_pipeline_is_refused(ledger, owner, client):
    other = Ledger(client, ledger.partition.topic, "customers", OWNER)
    commit(owner, ledger, lambda _: ledger.record("start", START))
    with raises("ledger_unknown", PromiseBrokenError) as caught:
        other.read_last(soon())
    assert "the pipeline 'customers' (pipeline is 'orders')" in caught.value.message


def test_trimmed_it_keeps_the_last_records_and_always_the_very_last(ledger, owner, client):
    commit(owner, ledger, lambda _: ledger.record("start", START))
    for number in range(20):
        after = advanced(START, {}, "query", number, {})
        commit(owner, ledger, attempt(ledger, after))
    assert not ledger.trim(21, soon())
    assert ledger.trim(5, soon())
    kept = ledger.history(100, soon())
    assert [record.position.batch_id for record in kept] == [19, 18, 17, 16, 15]
    assert ledger.read_last(soon()) == kept[0]

    for _ in range(40):  # nothing but aborted attempts behind the last one that counts
        abort(owner, ledger, ledger.record("start", START))
    assert ledger.trim(5, soon())
    first = client.list_offsets([ledger.partition], "earliest", committed=False, deadline=soon())
    assert first[ledger.partition] == kept[0].offset
    assert ledger.peek(soon()) == ledger.read_last(soon()) == kept[0]


def test_a_look_sees_what_is_committed_and_waits_for_nobody(ledger, owner):
    assert ledger.peek(soon()) is None
    commit(owner, ledger, lambda _: ledger.record("start", START))
    identity = owner.begin(soon())
    open_one = stamped(ledger.record("stop", START), identity)
    owner.produce({ledger.partition: open_one}, soon())
    seen = ledger.peek(soon())
    assert (seen.kind, seen.owner, seen.position) == ("start", OWNER, START)
    assert owner.commit(soon()) is Conclusion.COMMITTED
    last = ledger.read_last(soon())
    assert (last.kind, last.identity) == ("stop", identity)


@pytest.mark.long
def test_a_ledger_that_is_deleted_while_the_pipeline_runs_is_named_with_a_remedy(
    ledger, owner, broker
):
    commit(owner, ledger, lambda identity: ledger.record("start", START, identity=identity))
    kafka_io.delete_topics(broker.bootstrap, ledger.partition.topic)
    identity = owner.begin(soon())
    record = ledger.record("refresh", START, identity=identity)

    def appended():
        ledger.append(owner.produce, record, identity, soon())

    for ask in (appended, lambda: ledger.peek(soon()), lambda: ledger.read_last(soon())):
        with raises("ledger_gone", PromiseBrokenError) as stop:
            ask()
        assert stop.value.fields["topic"] == ledger.partition.topic
        assert "`eos recover orders`" in stop.value.hint
