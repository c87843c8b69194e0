"""Where conformance scripts run: the simulated broker, and a real one with strangers to read it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient

from eos.deadline import Backoff, Deadline
from eos.kafka.api import TopicPartition, TransactionPort, TransactionProfile
from eos.kafka.client import KafkaClient
from eos.kafka.settings import KafkaSettings
from support.outside import stable_offsets
from support.simulated_broker import SimulatedBroker, SimulatedPort

TARGETS, SOURCE = "conformance-target", "conformance-source"
Records = dict[TopicPartition, list[tuple[int, bytes]]]  # (offset, value) of each record


class World:
    """Where a script runs: a port, names that nobody else uses, and what can be read back."""

    def __init__(self, port: TransactionPort) -> None:
        self.port = port
        self.run = uuid.uuid4().hex[:8]
        self.first = 0  # of the three target partitions that are this script's own

    def name(self, short: str) -> str:
        """A transactional id or group that only this run uses."""
        return f"{short}-{self.run}" if short else ""

    def read(self, partitions: list[TopicPartition], *, committed: bool) -> Records:
        raise NotImplementedError

    def offset(self, group: str, at: TopicPartition) -> int:
        raise NotImplementedError

    def closed(self, at: TopicPartition, after_ms: int = 0) -> None:
        """Returns when no transaction is open on `at`: its marker was written."""
        raise NotImplementedError


class SimulatedWorld(World):
    def __init__(
        self, profile: TransactionProfile, server: TransactionProfile = TransactionProfile.TV2
    ) -> None:
        self.broker = SimulatedBroker({TARGETS: 3, SOURCE: 2}, server)
        super().__init__(SimulatedPort(self.broker, profile))

    def read(self, partitions, *, committed):
        seen = {}
        for at in partitions:
            log = self.broker.logs[at]
            entries = log.read_committed() if committed else log.read_uncommitted()
            seen[at] = [
                (entry.offset + number, value)
                for entry in entries
                for number, value in enumerate(_values(entry.blob, entry.records))
            ]
        return seen

    def offset(self, group, at):
        found = self.broker.committed_offsets(group).get(at)
        return -1 if found is None else found.offset

    def closed(self, at, after_ms=0):
        self.broker.advance(after_ms)
        assert self.broker.logs[at].last_stable_offset == self.broker.logs[at].offset_end


class Readers:
    """The topics, and librdkafka, which shares nothing with the code under test, to read them.

    Made once, since consumers start slowly and look up a new topic slowly: each script has three
    partitions of its own instead of a topic.
    """

    def __init__(self, wire: KafkaClient, scripts: int) -> None:
        # The kit's records are of 2023: retention would delete them under a script's feet.
        kept, deadline = {"retention.ms": "-1"}, Deadline.after_ms(300_000)
        for topic, partitions in ((TARGETS, 3 * scripts), (SOURCE, 2)):
            wire.create_topic(topic, partitions, 1, kept, deadline)
            every = [TopicPartition(topic, number) for number in range(partitions)]
            wire.list_offsets(every, "latest", committed=False, deadline=deadline)  # they are led
        self._first = iter(range(0, 3 * scripts, 3))
        self.bootstrap = wire.settings.bootstrap[0]
        self._consumers = {
            committed: Consumer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "group.id": "reader",
                    "enable.auto.commit": False,
                    "isolation.level": "read_committed" if committed else "read_uncommitted",
                    "enable.partition.eof": True,
                    "fetch.wait.max.ms": 5,
                    "fetch.error.backoff.ms": 20,
                    "topic.metadata.refresh.fast.interval.ms": 20,
                    "auto.offset.reset": "earliest",
                }
            )
            for committed in (False, True)
        }
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap})

    def first_unused(self) -> int:
        return next(self._first)

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()

    def read(self, partitions: list[TopicPartition], *, committed: bool) -> Records:
        consumer = self._consumers[committed]
        seen: Records = {at: [] for at in partitions}
        ends = set(partitions)
        deadline = Deadline.after_ms(120_000)
        consumer.assign([Position(at.topic, at.partition, 0) for at in partitions])
        while ends:
            assert not deadline.has_passed, f"{ends} have no end"
            message = consumer.poll(1.0)
            at = message and TopicPartition(message.topic(), message.partition())
            if at not in partitions:  # nothing, or a late word on what was assigned before
                continue
            if message.error() is None:
                seen[at].append((message.offset(), message.value()))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ends.discard(at)
        consumer.unassign()  # or it goes on fetching, every few ms, beside all other tests
        return seen

    def offset(self, group: str, at: TopicPartition) -> int:
        """Once no transaction holds it back."""
        deadline, backoff = Deadline.after_ms(120_000), Backoff()
        while True:
            (found,) = stable_offsets(self._admin, group, [Position(*at)])
            if found.error is None:
                return max(found.offset, -1)
            assert found.error.code() == KafkaError.UNSTABLE_OFFSET_COMMIT, found.error
            assert not deadline.has_passed, found.error
            backoff.sleep(deadline)


class RealWorld(World):
    def __init__(self, wire: KafkaClient, readers: Readers) -> None:
        super().__init__(wire)
        self.wire = wire
        self.readers = readers
        self.read, self.offset = readers.read, readers.offset
        self.first = readers.first_unused()

    def closed(self, at, after_ms=0):
        deadline, backoff = Deadline.after_ms(300_000 + after_ms), Backoff()
        while any(
            state.transaction_start_offset >= 0
            for state in self.wire.describe_producers([at], deadline)[at]
        ):
            assert not deadline.has_passed
            backoff.sleep(deadline)


@contextmanager
def reading(bootstrap: str, scripts: int) -> Iterator[Readers]:
    wire = KafkaClient(KafkaSettings((bootstrap,)))
    made = Readers(wire, scripts)
    yield made
    made.close()
    wire.close()


def _values(blob: bytes, records: int) -> list[bytes]:
    """Of a record batch from the kit: short values, so each length is one byte."""
    at, values = 61, []
    for _ in range(records):
        length = blob[at] >> 1
        size = blob[at + 5] >> 1
        values.append(blob[at + 6 : at + 6 + size])
        at += 1 + length
    return values
