"""The simulated broker and a real one give the same answers, step by step.

A script is a list of requests. It runs on both through the port that the product uses; every
answer is written down with producer ids numbered by their first appearance. Answers that only ask
to come again (markers are still being written, a coordinator loads) are repeated on both sides.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient

from eos.deadline import Backoff, Deadline
from eos.kafka.api import (
    NO_IDENTITY,
    Api,
    CommittedOffset,
    Identity,
    TopicPartition,
    TransactionPort,
    TransactionProfile,
)
from eos.kafka.client import KafkaClient
from eos.kafka.settings import KafkaSettings
from support.kafka.kafka_io import stable_offsets
from support.simulated_broker import SimulatedBroker, SimulatedPort
from support.simulated_broker.kit import record_batch

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

    def __init__(self, client: KafkaClient, scripts: int) -> None:
        # The kit's records are of 2023: retention would delete them under a script's feet.
        kept, deadline = {"retention.ms": "-1"}, Deadline.after_ms(300_000)
        for topic, partitions in ((TARGETS, 3 * scripts), (SOURCE, 2)):
            client.create_topic(topic, partitions, 1, kept, deadline)
            every = [TopicPartition(topic, number) for number in range(partitions)]
            client.list_offsets(every, "latest", committed=False, deadline=deadline)  # they are led
        self._first = iter(range(0, 3 * scripts, 3))
        self.bootstrap = client.settings.bootstrap[0]
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
    def __init__(self, client: KafkaClient, readers: Readers) -> None:
        super().__init__(client)
        self.client = client
        self.readers = readers
        self.read, self.offset = readers.read, readers.offset
        self.first = readers.first_unused()

    def closed(self, at, after_ms=0):
        deadline, backoff = Deadline.after_ms(300_000 + after_ms), Backoff()
        while any(
            state.transaction_start_offset >= 0
            for state in self.client.describe_producers([at], deadline)[at]
        ):
            assert not deadline.has_passed
            backoff.sleep(deadline)


@contextmanager
def reading(bootstrap: str, scripts: int) -> Iterator[Readers]:
    client = KafkaClient(KafkaSettings((bootstrap,)))
    made = Readers(client, scripts)
    yield made
    made.close()
    client.close()


def _values(blob: bytes, records: int) -> list[bytes]:
    """Of a record batch from the kit: short values, so each length is one byte."""
    at, values = 61, []
    for _ in range(records):
        length = blob[at] >> 1
        size = blob[at + 5] >> 1
        values.append(blob[at + 6 : at + 6 + size])
        at += 1 + length
    return values


AGAIN = {14, 15, 16, 19, 51}
BOTH = tuple(TransactionProfile)
GONE = "conformance-gone"


class Script:
    """What scripts are written with. `trace` holds the answers in the order of the requests."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.trace: list[tuple] = []
        self._ids: dict[int, int] = {-1: -1}

    @property
    def profile(self) -> TransactionProfile:
        return self.world.port.profile

    def target(self, partition: int = 0) -> TopicPartition:
        return TopicPartition(TARGETS, self.world.first + partition)

    def source(self, partition: int = 0) -> TopicPartition:
        return TopicPartition(SOURCE, partition)

    def gone(self) -> TopicPartition:
        return TopicPartition(GONE, 0)

    def init(self, identity=NO_IDENTITY, name="id", timeout_ms=60_000) -> Identity:
        answer = self._ask(
            lambda until: self.world.port.init_producer_id(
                self.world.name(name), timeout_ms, identity, until
            )
        )
        return self._note(Api.INIT_PRODUCER_ID, answer)

    def add(self, identity, *partitions, name="id"):
        answers = self._ask(
            lambda until: self.world.port.add_partitions(
                self.world.name(name), identity, frozenset(partitions), until
            )
        )
        self.trace.append((Api.ADD_PARTITIONS, [answers[at].error for at in partitions]))

    def write(self, identity, sequence, *values, at=None, name="id", adds=None, damaged=False):
        """A record batch; TV1 adds the partition before it, unless told not to."""
        at = at or self.target()
        if self.profile is TransactionProfile.TV1 if adds is None else adds:
            self.add(identity, at, name=name)
        blob = record_batch(identity, sequence, [value.encode() for value in values])
        blob = blob[:-1] + b"!" if damaged else blob
        answer = self._ask(
            lambda until: self.world.port.produce(self.world.name(name), {at: blob}, until)
        )[at]
        self.trace.append((Api.PRODUCE, answer.error, answer.offset if not answer.error else -1))

    def add_offsets(self, identity, name="id", group="group"):
        answer = self._ask(
            lambda until: self.world.port.add_offsets(
                self.world.name(name), identity, self.world.name(group), until
            )
        )
        self.trace.append((Api.ADD_OFFSETS, answer.error))

    def offsets(self, identity, offsets, name="id", group="group", adds=None):
        if self.profile is TransactionProfile.TV1 if adds is None else adds:
            self.add_offsets(identity, name, group)
        offsets = {
            at: offset if isinstance(offset, CommittedOffset) else CommittedOffset(offset)
            for at, offset in offsets.items()
        }
        answers = self._ask(
            lambda until: self.world.port.commit_offsets(
                self.world.name(name), identity, self.world.name(group), offsets, until
            )
        )
        self.trace.append((Api.TXN_OFFSET_COMMIT, [answers[at].error for at in offsets]))

    def end(self, identity, *, commit, name="id") -> Identity:
        answer = self._ask(
            lambda until: self.world.port.end_txn(self.world.name(name), identity, commit, until)
        )
        return self._note(Api.END_TXN, answer)

    def state(self, name="id"):
        """What the coordinator knows, once it has finished what it is at."""
        deadline, backoff = Deadline.after_ms(120_000), Backoff()
        name = self.world.name(name)
        found = self.world.port.transaction_state(name, deadline)
        while found.phase.startswith("Prepare") and not deadline.has_passed:
            backoff.sleep(deadline)
            found = self.world.port.transaction_state(name, deadline)
        self.trace.append(("state", found.phase, *self._numbered(found.identity)))

    def look(self, group="group"):
        """Reads everything back, once the markers are written."""
        partitions = [self.target(number) for number in range(3)]
        for at in partitions:
            self.closed(at)
        for committed in (False, True):
            seen = self.world.read(partitions, committed=committed)
            self.trace.append(("read", committed, [seen[at] for at in partitions]))
        group = self.world.name(group)
        self.trace.append(("offset", self.world.offset(group, self.source())))

    def closed(self, at=None, after_ms=0):
        """Until its marker is written a partition takes late record batches as part of the
        transaction that was ended, on the real broker: a race that a script must not run into."""
        self.world.closed(at or self.target(), after_ms)

    def next(self, identity) -> Identity:
        """The next attempt's identity: TV1 has to ask for it."""
        return self.init(identity) if self.profile is TransactionProfile.TV1 else identity

    def _note(self, api, answer) -> Identity:
        if answer.error:
            self.trace.append((api, answer.error))
            return NO_IDENTITY
        self.trace.append((api, 0, *self._numbered(answer.identity)))
        return answer.identity

    def _numbered(self, identity) -> tuple[int, int]:
        return self._ids.setdefault(identity.producer_id, len(self._ids)), identity.epoch

    def _ask(self, request: Callable[[Deadline], object]):
        deadline, backoff = Deadline.after_ms(120_000), Backoff()
        answer = request(deadline)
        while _codes(answer) & AGAIN and not deadline.has_passed:
            backoff.sleep(deadline)
            answer = request(deadline)
        return answer


def _codes(answer) -> set[int]:
    if isinstance(answer, Mapping):
        return {one.error for one in answer.values()}
    return {answer.error}


class On(NamedTuple):
    """A client's profile, on a cluster: the fixture of its broker, and its transaction version."""

    profile: TransactionProfile
    broker: str
    server: TransactionProfile


# TV1 stays right on a cluster that is upgraded while a client runs.
NEWER, UPGRADED = (
    On(profile, "broker", TransactionProfile.TV2)
    for profile in (TransactionProfile.TV2, TransactionProfile.TV1)
)
OLDER = On(TransactionProfile.TV1, "older_broker", TransactionProfile.TV1)


class Scripts:
    """The scripts of one test file, each with the profiles that it runs under, and where."""

    def __init__(self) -> None:
        self._cases: list[Any] = []

    def __call__(
        self, *profiles: TransactionProfile, where: Collection[On] = (NEWER, UPGRADED, OLDER)
    ):
        def register(function):
            self._cases.extend(_case(function, on) for on in where if on.profile in profiles)
            return function

        return register

    @property
    def each(self) -> pytest.MarkDecorator:
        """Parametrizes a test; what is registered after it runs too, since the list is shared."""
        return pytest.mark.parametrize(("function", "on"), self._cases, ids=_name)


def _case(function: Callable[[Script], None], on: On) -> Any:
    """Return a parameter set. The older version is long."""
    return pytest.param(function, on, marks=pytest.mark.long if on is OLDER else ())


def _name(of: Callable[[Script], None] | On) -> str:
    return f"{of.profile.name}-{of.broker}" if isinstance(of, On) else of.__name__


def compare(function: Callable[[Script], None], on: On, clients, readers: Readers) -> None:
    """The same script on both, step by step."""
    real = answers(RealWorld(clients(on.profile, readers.bootstrap), readers), function)
    assert answers(SimulatedWorld(on.profile, on.server), function) == real


def answers(world: World, function: Callable[[Script], None]) -> list[tuple]:
    run = Script(world)
    function(run)
    assert run.trace
    return run.trace
