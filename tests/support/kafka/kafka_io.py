"""Topics and groups as a client sees them that shares no code with `eos`: write, read, wait.

A broker deletes records that are older than a week, even if they were written a moment ago. It
looks half a minute after its start and then every five minutes. Tests write records with times from
`NOW_MS` or `DAY_MS` on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from eos.testing import outside
from eos.testing.outside import (
    IN_ORDER,
    NOT_COORDINATED,
    NOT_LED,
    READ_S_MAX,
    add_partitions,
    answered,
    create_topics,
    delete_topics,
    read,
    set_topic,
    topics,
)
from support.waiting import wait_until

__all__ = [
    "IN_ORDER",
    "add_partitions",
    "answered",
    "create_topics",
    "delete_topics",
    "read",
    "set_topic",
    "topics",
]

_ASK_S, _OPERATE_S = 180, 600
# Of what is committed, or aborted: its markers are on their way. Whatever else is open stays so.
MARKERS_S_MAX = 120


def producer(bootstrap: str, settings: Mapping[str, Any] | None = None) -> Producer:
    """Return a producer that keeps the records' order and logs only errors."""
    return Producer(
        {**IN_ORDER, "bootstrap.servers": bootstrap, "log_level": 3, **(settings or {})}
    )


def fill(
    bootstrap: str,
    topic: str,
    numbers: Iterable[int],
    keys: int = 97,
    headers: Sequence[tuple[str, bytes]] = (),
) -> int:
    """One record a number: value is the number, key is number modulo `keys`."""
    return outside.fill(
        bootstrap,
        topic,
        (
            {"key": b"k%d" % (n % keys), "value": b"%d" % n, "headers": list(headers) or None}
            for n in numbers
        ),
    )


def wait_closed(bootstrap: str, *names: str) -> None:
    """Until no transaction is open on the topics of these names, which may be patterns.

    A commit is answered before its markers are written: what it wrote is hidden for a moment, or
    for as long as the broker is held up.
    """
    wait_until(
        lambda: not _open(bootstrap, names),
        lambda: f"a transaction stays open on {_open(bootstrap, names)[:5]}",
        wait_s=MARKERS_S_MAX,
    )


def _open(bootstrap: str, names: Sequence[str]) -> list[str]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    told = answered(lambda: admin.list_topics(timeout=_ASK_S)).topics
    latest = {
        TopicPartition(topic, number): OffsetSpec.latest()
        for topic, known in told.items()
        if any(fnmatchcase(topic, name) for name in names)
        for number in known.partitions
    }

    def ends(isolation: IsolationLevel) -> dict[tuple[str, int], int]:
        asked = admin.list_offsets(latest, isolation_level=isolation)
        return {(tp.topic, tp.partition): done.result(_ASK_S).offset for tp, done in asked.items()}

    if not latest:
        return []
    # In this order: what is written in between does not pass for open.
    written = answered(lambda: ends(IsolationLevel.READ_UNCOMMITTED), NOT_LED)
    stable = answered(lambda: ends(IsolationLevel.READ_COMMITTED), NOT_LED)
    return [
        f"{topic}-{number}"
        for (topic, number), end in written.items()
        if stable[topic, number] < end
    ]


def committed_attempts(bootstrap: str, ledger: str) -> int:
    """The ledger's committed attempt records."""
    return sum(
        json.loads(row.value or b"{}")["kind"] == "attempt" for row in read(bootstrap, ledger)
    )


def group_offsets(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    """What any lag tool would show for the group, once what is committed is there: a transaction's
    offsets wait for its marker, and are left out until then if nobody asks for them by name."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    told = answered(lambda: admin.list_topics(topic, timeout=_ASK_S)).topics[topic]
    named = [TopicPartition(topic, number) for number in told.partitions]

    def settled() -> list[TopicPartition]:
        found = stable_offsets(admin, group, named)
        return [] if any(map(_is_pending, found)) else found

    found = wait_until(
        settled, f"a transaction with {group}'s offsets stays open", wait_s=MARKERS_S_MAX
    )
    return {tp.partition: tp.offset for tp in found if tp.topic == topic and tp.offset >= 0}


def stable_offsets(
    admin: AdminClient, group: str, wanted: Sequence[TopicPartition]
) -> list[TopicPartition]:
    """What the coordinator says, once there is one: of an answer that says that it is none, or none
    yet, librdkafka 2.16 dies (SIGSEGV). When it describes a group the same answer is an error."""
    asked = [ConsumerGroupTopicPartitions(group, list(wanted) or None)]

    def describe() -> None:
        try:
            admin.describe_consumer_groups([group])[group].result(_ASK_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise

    def ask() -> list[TopicPartition]:
        found = admin.list_consumer_group_offsets(asked, require_stable=True)
        return found[group].result(_ASK_S).topic_partitions

    answered(describe, NOT_COORDINATED)
    return answered(ask, NOT_COORDINATED)


def _is_pending(of: TopicPartition) -> bool:
    return of.error is not None and of.error.code() == KafkaError.UNSTABLE_OFFSET_COMMIT


def delete_records(admin: AdminClient, topic: str, partition: int, before: int) -> None:
    for future in admin.delete_records([TopicPartition(topic, partition, before)]).values():
        future.result(_OPERATE_S)


def move_group(admin: AdminClient, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    moved = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
    asked = [ConsumerGroupTopicPartitions(group, moved)]
    for future in admin.alter_consumer_group_offsets(asked).values():
        future.result(_OPERATE_S)


def delete_group(admin: AdminClient, group: str) -> None:
    for future in admin.delete_consumer_groups([group]).values():
        future.result(_OPERATE_S)


def groups(bootstrap: str) -> set[str]:
    """Asked for, and not for the offsets of one that may not be there: on a cluster that never had
    a group librdkafka 2.16 dies of the answer (SIGSEGV)."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = answered(lambda: admin.list_consumer_groups().result(_ASK_S))
    return {each.group_id for each in found.valid}


def ends(bootstrap: str, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "outside"})
    try:
        found = answered(lambda: consumer.list_topics(topic, timeout=_ASK_S))
        known = found.topics[topic].partitions
        return {number: answered(lambda at=number: _end(consumer, topic, at)) for number in known}
    finally:
        consumer.close()


def _end(consumer: Consumer, topic: str, number: int) -> int:
    return int(consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=_ASK_S)[1])


@contextmanager
def consuming(bootstrap: str, group: str, topic: str, **settings: str) -> Iterator[Consumer]:
    """A member that the group has given partitions to, and that has told so. At the end the group
    knows that it left."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **settings})
    assigned: list[TopicPartition] = []
    consumer.subscribe([topic], on_assign=lambda _, given: assigned.extend(given))
    give_up_at = time.monotonic() + READ_S_MAX
    try:
        while not (assigned and _is_stable(bootstrap, group)):
            assert time.monotonic() < give_up_at, "nothing was assigned"
            consumer.poll(0.1)
        yield consumer
    finally:
        consumer.close()
    wait_until(lambda: not _is_stable(bootstrap, group), "it did not leave", wait_s=READ_S_MAX)


def _is_stable(bootstrap: str, group: str) -> bool:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = answered(lambda: admin.list_consumer_groups().result(_ASK_S), NOT_COORDINATED).valid
    states = {each.group_id: each.state for each in found}
    return states.get(group) is ConsumerGroupState.STABLE


_DAY_MS = 86_400_000
NOW_MS = int(time.time() * 1000)
DAY_MS = (NOW_MS // _DAY_MS - 1) * _DAY_MS  # yesterday's midnight of UTC
DAY = datetime.fromtimestamp(DAY_MS / 1000, timezone.utc).date().isoformat()


Headers = tuple[tuple[str, "bytes | None"], ...]


@dataclass(frozen=True)
class Record:
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int

    @property
    def told(self) -> dict[str, str]:
        """What the headers of a dead letter say."""
        return {name: value.decode() for name, value in self.headers if name.startswith("eos.")}


def write_records(
    bootstrap: str, topic: str, records: Iterable[Record], codec: str = "none"
) -> None:
    writer = producer(bootstrap, {"compression.type": codec})
    for each in records:
        writer.produce(
            topic,
            each.value,
            each.key,
            each.partition,
            timestamp=each.timestamp_ms,
            headers=list(each.headers) or None,
        )
    assert writer.flush(300) == 0


def read_records(bootstrap: str, topic: str) -> list[Record]:
    """Return what `read` returns, with headers and timestamps."""
    rows = read(bootstrap, topic)
    settings = {"bootstrap.servers": bootstrap, "group.id": "outside"}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    found: list[Record] = []
    try:
        for partition in sorted({row.partition for row in rows}):
            count = sum(row.partition == partition for row in rows)
            consumer.assign([TopicPartition(topic, partition, 0)])
            while count:
                messages = consumer.consume(count, timeout=300)
                assert messages, f"{topic}-{partition}: {count} records did not come"
                for message in messages:
                    assert message.error() is None, message.error()
                    headers = tuple(message.headers() or ())
                    at = message.timestamp()[1]
                    found.append(Record(partition, message.key(), message.value(), headers, at))
                    count -= 1
    finally:
        consumer.close()
    return found


def fill_topic(
    bootstrap: str,
    topic: str,
    rows: tuple[Sequence[bytes], Sequence[bytes]],
    count: int,
    partitions: int = 4,
) -> None:
    """`count` records: keys and values of `rows`, again and again. lz4, by Kafka's partitioner."""
    create_topics(bootstrap, partitions, topic)
    writer = producer(
        bootstrap,
        {
            "compression.type": "lz4",
            "partitioner": "murmur2_random",
            "linger.ms": 50,
            "batch.size": 500_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 500_000,
        },
    )
    keys, values = rows
    for start in range(0, count, len(keys)):
        for key, value in zip(keys[: count - start], values, strict=False):
            writer.produce(topic, value, key)
        assert writer.flush(300) == 0
