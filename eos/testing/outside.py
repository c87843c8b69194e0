"""An independent Kafka client for tests, by librdkafka: it creates, fills and reads topics.

It shares no code with the rest of `eos`, so it can't have the same mistakes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
)
from confluent_kafka.cimpl import NewTopic

READ_S_MAX = 300  # generous limits, so that a test does not fail on a slow machine
_ASK_S = 180
_FLUSH_S = 300
_QUEUE_RECORDS = 50_000  # flush after so many records: librdkafka's queue holds 100,000
_POLL_S = 0.05
# Producer settings. Send one request at a time: otherwise records of a new topic may be lost:
# 1. A broker does not know the topic yet, and rejects the first record batch.
# 2. It accepts the second record batch with any sequence, since it knows no earlier one.
# 3. librdkafka retries the first record batch. The broker takes it for a duplicate and drops it,
#    and librdkafka counts that as a success.
#
# With idempotence, a record batch that is sent again after a late response is written once.
IN_ORDER = {"max.in.flight": 1, "enable.idempotence": True}
_QUIET = {"log_level": 3}  # only errors; by default librdkafka logs each retry
# Errors after which a request is sent again: the connection was lost or timed out. If brokers'
# addresses change, librdkafka drops its state of a broker, and the pending requests with it. Names
# with _ are public: they mark errors that the client itself detects.
_LOST = {
    KafkaError._DESTROY_BROKER,  # noqa: SLF001
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
}
NOT_LED = _LOST | {
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}
NOT_COORDINATED = _LOST | {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
_T = TypeVar("_T")


@dataclass(frozen=True)
class Record:
    """A record as stored in its topic."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = -1

    @property
    def json(self) -> Any:
        """Return the value, read as JSON; None for a tombstone."""
        return None if self.value is None else json.loads(self.value)


def answered(ask: Callable[[], _T], again: Container[int] = frozenset(_LOST)) -> _T:
    """Call `ask` until it succeeds, and return its result.

    Call it again, for three minutes at most, after an error whose code is in `again`. By default
    these are lost connections and timeouts."""
    give_up_at = time.monotonic() + _ASK_S
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in again or time.monotonic() > give_up_at:
                raise
            time.sleep(_POLL_S)


def topics(bootstrap: str) -> set[str]:
    return set(answered(lambda: _metadata(bootstrap)).topics)


def create_topics(bootstrap: str, partitions: int, *names: str, replication: int = 1) -> None:
    left = {name: NewTopic(name, partitions, replication) for name in names}
    there = topics(bootstrap)

    def create() -> None:
        admin = _admin(bootstrap)  # keep the reference: answers end with the client
        for name, future in admin.create_topics(list(left.values())).items():
            try:
                future.result(_ASK_S)
            except KafkaException as error:
                # "Topic exists" is a success for a topic that was missing before: the client
                # repeated a request whose response was lost.
                exists = error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
                if name in there or not exists:
                    raise
            del left[name]

    answered(create)
    for name in names:
        _wait_until_led(bootstrap, name, partitions)


def add_partitions(bootstrap: str, topic: str, total: int) -> None:
    """Raise the topic's number of partitions to `total`.

    Return once each broker knows the new partitions and their leaders."""
    admin = _admin(bootstrap)  # keep the reference: answers end with the client
    try:
        admin.create_partitions([NewPartitions(topic, total)])[topic].result(_ASK_S)
    except KafkaException as error:
        if error.args[0].code() not in _LOST:  # a lost response: the wait below shows the result
            raise
    _wait_until_led(bootstrap, topic, total)


def delete_topics(bootstrap: str, *names: str) -> None:
    """Delete those of the topics that exist. Return once topics of these names can be created."""
    there = set(names) & topics(bootstrap)
    if not there:
        return
    left = set(there)

    def delete() -> None:
        admin = _admin(bootstrap)  # keep the reference: answers end with the client
        for name, future in admin.delete_topics(list(left)).items():
            try:
                future.result(_ASK_S)
            except KafkaException as error:
                # The client repeated a request whose response was lost.
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
            left.discard(name)

    answered(delete)
    _wait_for_each_broker(
        bootstrap,
        lambda metadata: metadata.topics.keys().isdisjoint(there),
        f"{', '.join(sorted(there))}: deleted, but still listed",
    )


def set_topic(bootstrap: str, topic: str, **config: str) -> None:
    """Set configs of a topic, such as `retention_ms="1000"` for `retention.ms`.

    Return once the brokers report the new values."""
    wanted = {name.replace("_", "."): value for name, value in config.items()}
    operation = AlterConfigOpType.SET
    entries = [
        ConfigEntry(name, value, incremental_operation=operation) for name, value in wanted.items()
    ]
    change = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)

    def ask_to_set() -> None:
        admin = _admin(bootstrap)
        admin.incremental_alter_configs([change])[change].result(_ASK_S)

    def current() -> dict[str, str]:
        admin = _admin(bootstrap)
        found = admin.describe_configs([resource])[resource].result(_ASK_S)
        return {name: found[name].value for name in wanted}

    answered(ask_to_set)
    give_up_at = time.monotonic() + _ASK_S
    while (found := answered(current)) != wanted:
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"{topic}: {found}, expected {wanted}, after {_ASK_S} s")
        time.sleep(_POLL_S)


def _wait_until_led(bootstrap: str, topic: str, partitions: int) -> None:
    """Wait until each broker knows all partitions of the topic, and each partition has a leader.

    The response to a request to create them does not show that: it only means that the controller
    knows the partitions. Brokers learn of them later.
    """

    def has_leaders(metadata: ClusterMetadata) -> bool:
        found = metadata.topics.get(topic)
        return found is not None and (
            [found.partitions[number].leader >= 0 for number in sorted(found.partitions)]
            == [True] * partitions
        )

    _wait_for_each_broker(
        bootstrap, has_leaders, f"{topic}: {partitions} partitions do not all have a leader"
    )
    with _consumer(bootstrap, "read_committed") as consumer:
        for number in range(partitions):
            at = TopicPartition(topic, number)
            answered(partial(consumer.get_watermark_offsets, at, _ASK_S), again=NOT_LED)


def _wait_for_each_broker(
    bootstrap: str, is_so: Callable[[ClusterMetadata], bool], otherwise: str
) -> None:
    give_up_at = time.monotonic() + _ASK_S
    for broker in answered(lambda: _metadata(bootstrap)).brokers.values():
        address = f"{broker.host}:{broker.port}"
        while not is_so(answered(partial(_metadata, address))):
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"{otherwise}, according to {address}, after {_ASK_S} s")
            time.sleep(_POLL_S)


def _metadata(bootstrap: str) -> ClusterMetadata:
    return _admin(bootstrap).list_topics(timeout=_ASK_S)


def fill(bootstrap: str, topic: str, records: Iterable[Mapping[str, Any]]) -> int:
    """Write records to a topic, wait for their acknowledgement, and return their number.

    A record is a mapping with any of key, value, headers, partition and timestamp, as arguments of
    librdkafka's `produce`.
    """
    failed: list[KafkaError] = []
    producer = Producer(
        {
            **_QUIET,
            **IN_ORDER,
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
        }
    )

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failed.append(error)

    def flush() -> None:
        if producer.flush(_FLUSH_S) or failed:
            raise TimeoutError(
                f"{topic}: not all records were written: {failed[:1] or 'no answer'}"
            )

    count = 0
    for record in records:
        producer.produce(topic, on_delivery=delivered, **record)
        count += 1
        if count % _QUEUE_RECORDS == 0:
            flush()
    flush()
    return count


def read(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[Record]:
    """Return all records of a topic up to its present end, ordered by partition and offset."""
    records = map(_record, messages(bootstrap, topic, isolation))
    return sorted(records, key=lambda record: (record.partition, record.offset))


def messages(
    bootstrap: str,
    topic: str,
    isolation: str = "read_committed",
    partitions: Iterable[int] | None = None,
) -> Iterator[Message]:
    """Yield the records of a topic up to its present end, as librdkafka's messages.

    The messages of one partition are in the order of their offsets. None is kept in memory. With
    `partitions`, only theirs.
    """
    with _consumer(bootstrap, isolation) as consumer:
        found = answered(lambda: consumer.list_topics(topic, timeout=_ASK_S))
        open_partitions = set(found.topics[topic].partitions if partitions is None else partitions)
        consumer.assign([TopicPartition(topic, at, OFFSET_BEGINNING) for at in open_partitions])
        give_up_at = time.monotonic() + READ_S_MAX
        while open_partitions:
            if time.monotonic() > give_up_at:
                raise TimeoutError(
                    f"{topic}: partitions not read to the end: {sorted(open_partitions)}"
                )
            for message in consumer.consume(10_000, timeout=0.02):  # short: it waits for 10,000
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    open_partitions.discard(message.partition())
                else:
                    raise KafkaException(error)


def _record(message: Any) -> Record:
    return Record(
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
        message.timestamp()[1],
    )


@contextmanager
def _consumer(bootstrap: str, isolation: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            **_QUIET,
            "bootstrap.servers": bootstrap,
            "group.id": "outside",  # required, but unused: nothing is subscribed or committed
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20,  # short, because the end of a partition is reported after it
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({**_QUIET, "bootstrap.servers": bootstrap})


@dataclass(frozen=True)
class Kafka:
    """A Kafka cluster for tests, as the pytest fixture `kafka` returns it."""

    bootstrap: str

    def topics(self) -> set[str]:
        return topics(self.bootstrap)

    def create(self, topic: str, partitions: int = 2) -> None:
        create_topics(self.bootstrap, partitions, topic)

    def delete(self, *names: str) -> None:
        delete_topics(self.bootstrap, *names)

    def write(self, topic: str, records: Iterable[Mapping[str, Any]]) -> int:
        """Write records to a topic, and return their number once they are acknowledged.

        Each record is a mapping with any of key, value, headers, partition and timestamp.
        """
        return fill(self.bootstrap, topic, records)

    def read(self, topic: str, isolation: str = "read_committed") -> list[Record]:
        """Return all records of a topic up to its present end, ordered by partition and offset.

        Raise LookupError if the topic does not exist, since its name may be misspelled."""
        if topic not in self.topics():
            raise LookupError(f"the topic {topic!r} does not exist in the test's cluster")
        return read(self.bootstrap, topic, isolation)
