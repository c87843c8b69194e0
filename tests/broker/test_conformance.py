"""The simulated broker and the real one give the same answers, step by step.

A script is a list of requests. It runs on both through the port that the product uses; every
answer is written down with producer ids numbered by their first appearance. Answers that only ask
to come again (markers are still being written, a coordinator loads) are repeated on both sides.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient

from eos.deadline import Backoff, Deadline
from eos.launch.embedded import EmbeddedKafka
from eos.testing.broker import SimulatedBroker, SimulatedPort
from eos.testing.broker.kit import record_batch
from eos.transaction.port import (
    NO_IDENTITY,
    Api,
    CommittedOffset,
    Identity,
    Profile,
    TopicPartition,
    TransactionPort,
)
from eos.transaction.settings import KafkaSettings
from eos.transaction.wire import Wire

AGAIN = {14, 15, 16, 19, 51}
BOTH = tuple(Profile)
TARGETS, SOURCE, GONE = "conformance-target", "conformance-source", "conformance-gone"
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
    def __init__(self, profile: Profile) -> None:
        self.broker = SimulatedBroker({TARGETS: 3, SOURCE: 2})
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

    def __init__(self, wire: Wire, scripts: int) -> None:
        # The kit's records are of 2023: retention would delete them under a script's feet.
        kept, deadline = {"retention.ms": "-1"}, Deadline.after_ms(60_000)
        for topic, partitions in ((TARGETS, 3 * scripts), (SOURCE, 2)):
            wire.create_topic(topic, partitions, 1, kept, deadline)
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
        deadline = Deadline.after_ms(20_000)
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
        return seen

    def offset(self, group: str, at: TopicPartition) -> int:
        asked = [ConsumerGroupTopicPartitions(group, [Position(*at)])]
        (future,) = self._admin.list_consumer_group_offsets(asked, require_stable=True).values()
        (found,) = future.result(20).topic_partitions
        return max(found.offset, -1)


class RealWorld(World):
    def __init__(self, wire: Wire, readers: Readers) -> None:
        super().__init__(wire)
        self.wire = wire
        self.readers = readers
        self.read, self.offset = readers.read, readers.offset
        self.first = readers.first_unused()

    def closed(self, at, after_ms=0):
        deadline, backoff = Deadline.after_ms(30_000 + after_ms), Backoff()
        while any(
            state.transaction_start_offset >= 0
            for state in self.wire.describe_producers([at], deadline)[at]
        ):
            assert not deadline.has_passed
            backoff.sleep(deadline)


def _values(blob: bytes, records: int) -> list[bytes]:
    """Of a record batch from the kit: short values, so each length is one byte."""
    at, values = 61, []
    for _ in range(records):
        length = blob[at] >> 1
        size = blob[at + 5] >> 1
        values.append(blob[at + 6 : at + 6 + size])
        at += 1 + length
    return values


class Script:
    """What scripts are written with. `trace` holds the answers in the order of the requests."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.trace: list[tuple] = []
        self._ids: dict[int, int] = {-1: -1}

    @property
    def profile(self) -> Profile:
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
        if self.profile is Profile.TV1 if adds is None else adds:
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
        if self.profile is Profile.TV1 if adds is None else adds:
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
        return self.init(identity) if self.profile is Profile.TV1 else identity

    def _note(self, api, answer) -> Identity:
        if answer.error:
            self.trace.append((api, answer.error))
            return NO_IDENTITY
        number = self._ids.setdefault(answer.identity.producer_id, len(self._ids))
        self.trace.append((api, 0, number, answer.identity.epoch))
        return answer.identity

    def _ask(self, request: Callable[[Deadline], object]):
        deadline, backoff = Deadline.after_ms(20_000), Backoff()
        answer = request(deadline)
        while _codes(answer) & AGAIN and not deadline.has_passed:
            backoff.sleep(deadline)
            answer = request(deadline)
        return answer


def _codes(answer) -> set[int]:
    if isinstance(answer, Mapping):
        return {one.error for one in answer.values()}
    return {answer.error}


# --- the scripts ----------------------------------------------------------------------------------

SCRIPTS: list[tuple[Callable[[Script], None], Profile]] = []


def script(*profiles: Profile):
    def register(function):
        SCRIPTS.extend((function, profile) for profile in profiles)
        return function

    return register


@script(*BOTH)
def a_commit_shows_everything(s: Script):
    identity = s.init()
    s.write(identity, 0, "a", "b")
    s.write(identity, 2, "c")
    s.write(identity, 0, "x", at=s.target(1))
    s.offsets(identity, {s.source(): 7, s.source(1): 9})
    identity = s.end(identity, commit=True)
    identity = s.next(identity)
    s.write(identity, 0, "open", at=s.target(2))
    s.end(identity, commit=True)
    s.next(identity)
    s.look()


@script(*BOTH)
def an_abort_shows_nothing(s: Script):
    identity = s.init()
    s.write(identity, 0, "a")
    s.offsets(identity, {s.source(): 7})
    identity = s.next(s.end(identity, commit=False))
    s.write(identity, 0, "b")
    s.offsets(identity, {s.source(): 8})
    s.next(s.end(identity, commit=True))
    s.look()


@script(*BOTH)
def an_end_may_be_repeated_but_not_changed(s: Script):
    identity = s.init()
    s.write(identity, 0, "a")
    s.end(identity, commit=True)
    s.end(identity, commit=True)
    s.end(identity, commit=False)
    identity = s.init(identity)
    s.write(identity, 0, "b")
    s.end(identity, commit=False)
    s.end(identity, commit=False)
    s.end(identity, commit=True)
    s.look()


@script(*BOTH)
def the_epoch_after_an_end_has_nothing_to_end(s: Script):
    identity = s.init()
    s.write(identity, 0, "a")
    after = s.end(identity, commit=True)
    s.end(after, commit=True)
    after = s.end(after, commit=False)
    s.end(after, commit=True)
    s.end(after, commit=False)
    s.look()


@script(*BOTH)
def an_empty_transaction(s: Script):
    identity = s.init()
    s.end(identity, commit=True)
    after = s.end(identity, commit=False)
    s.end(identity, commit=False)
    s.end(identity, commit=True)
    if s.profile is Profile.TV2:
        s.write(identity, 0, "late")
        s.write(after, 0, "a")
        s.end(after, commit=True)
    s.look()


@script(*BOTH)
def an_end_below_the_open_epoch_is_refused(s: Script):
    identity = s.init()
    s.write(identity, 0, "a")
    after = s.next(s.end(identity, commit=True))
    s.write(after, 0, "b")
    s.end(identity, commit=True)
    s.end(identity, commit=False)
    s.end(after, commit=True)
    s.look()


@script(*BOTH)
def a_remembered_range_is_acknowledged_whatever_its_bytes(s: Script):
    identity = s.init()
    s.write(identity, 0, "a", "b")
    s.write(identity, 0, "other", "bytes")
    s.write(identity, 0, "shorter")
    s.write(identity, 1, "inside")
    s.write(identity, 4, "hole")
    for number in range(2, 7):
        s.write(identity, number, f"{number}")
    s.write(identity, 0, "forgotten", "by now")
    s.write(identity, 2, "still remembered")
    s.end(identity, commit=True)
    s.next(identity) if s.profile is Profile.TV1 else None
    s.look()


@script(*BOTH)
def a_first_sequence_above_0(s: Script):
    identity = s.init()
    s.write(identity, 5, "f")
    s.write(identity, 0, "a")
    s.write(identity, 6, "g")
    s.end(identity, commit=True)
    s.init(identity)
    s.look()


@script(*BOTH)
def each_epoch_begins_at_0(s: Script):
    identity = s.init()
    s.write(identity, 0, "a")
    identity = s.next(s.end(identity, commit=True))
    s.write(identity, 1, "goes on")
    s.write(identity, 0, "b")
    s.write(identity, 1, "c")
    s.next(s.end(identity, commit=True))
    s.look()


@script(*BOTH)
def a_straggler_of_an_ended_attempt(s: Script):
    identity = s.init()
    s.write(identity, 0, "a")
    s.write(identity, 0, "x", at=s.target(1))
    after = s.end(identity, commit=False)
    s.closed()
    s.closed(s.target(1))
    s.write(identity, 1, "late", adds=False)
    s.write(identity, 1, "late", at=s.target(1), adds=False)
    s.write(identity, 0, "late", at=s.target(2), adds=False)
    after = s.next(after)
    s.write(identity, 1, "later", adds=False)
    s.write(after, 0, "b")
    s.write(identity, 1, "latest", adds=False)
    s.write(identity, 0, "latest", at=s.target(2), adds=False)
    s.end(after, commit=True)
    s.next(after) if s.profile is Profile.TV1 else None
    s.look()


@script(*BOTH)
def a_stale_epoch_is_refused_everywhere(s: Script):
    stale = s.init()
    current = s.init()
    s.write(stale, 0, "a", adds=False)
    s.add(stale, s.target())
    s.add_offsets(stale)
    s.offsets(stale, {s.source(): 1}, adds=False)
    s.end(stale, commit=True)
    s.end(stale, commit=False)
    s.init(stale)
    s.write(current, 0, "b")
    s.write(stale, 0, "a", adds=False)
    s.offsets(stale, {s.source(): 1}, adds=False)
    s.offsets(current, {s.source(): 2})
    s.offsets(stale, {s.source(): 3}, adds=False)
    s.end(stale, commit=True)
    s.end(current, commit=True)
    s.init(current)
    s.look()


@script(*BOTH)
def a_foreign_producer_id_is_refused_everywhere(s: Script):
    own, other = s.init(), s.init(name="other")
    s.write(other, 0, "a", adds=False)
    s.add(other, s.target())
    s.add_offsets(other)
    s.offsets(other, {s.source(): 1}, adds=False)
    s.end(other, commit=True)
    s.end(other, commit=False)
    s.init(other)
    s.write(own, 0, "b")
    s.end(own, commit=True)
    s.init(own)
    s.look()


@script(*BOTH)
def an_unknown_transactional_id(s: Script):
    other = s.init(name="other")
    s.write(other, 0, "a", name="nobody", adds=False)
    s.add(other, s.target(), name="nobody")
    s.add_offsets(other, name="nobody")
    s.offsets(other, {s.source(): 1}, name="nobody", adds=False)
    s.end(other, commit=True, name="nobody")
    s.init(other, name="nobody")
    s.init(other, name="nobody")


@script(*BOTH)
def inits_with_id_and_epoch(s: Script):
    first = s.init()
    second = s.init(first)
    s.init(first)
    s.init(first)
    third = s.init(second)
    s.init(first)
    s.init(second)
    taken = s.init()
    s.init(third)
    s.init(second)
    s.init(taken)
    s.init(Identity(taken.producer_id, taken.epoch + 5))


@script(*BOTH)
def inits_that_can_not_be_meant(s: Script):
    identity = s.init()
    s.init(name="")
    s.init(timeout_ms=900_001)
    s.init(timeout_ms=0)
    s.init(Identity(identity.producer_id, -1))
    s.init(Identity(-1, 0))


@script(*BOTH)
def our_own_init_ends_our_open_transaction(s: Script):
    identity = s.init()
    s.write(identity, 0, "a")
    s.offsets(identity, {s.source(): 1})
    after = s.init(identity)
    s.write(identity, 1, "late", adds=False)
    s.end(identity, commit=True)
    s.write(after, 0, "b")
    s.end(after, commit=True)
    s.init(after)
    s.look()


@script(*BOTH)
def a_takeover_ends_the_open_transaction(s: Script):
    former = s.init()
    s.write(former, 0, "a")
    s.offsets(former, {s.source(): 1})
    newer = s.init()
    s.write(former, 1, "late", adds=False)
    s.end(former, commit=True)
    s.end(former, commit=False)
    s.init(former)
    s.write(newer, 0, "b")
    s.end(newer, commit=True)
    s.init(newer)
    s.look()


@script(*BOTH)
def an_init_of_a_replaced_owner_while_the_newer_ones_transaction_is_open(s: Script):
    former = s.init()
    newer = s.init()
    s.write(newer, 0, "a")
    s.init(former)
    s.end(newer, commit=True)
    s.init(newer)
    s.look()


@script(*BOTH)
def unknown_topics(s: Script):
    identity = s.init()
    s.add(identity, s.target(), s.gone())
    s.add(identity, s.gone())
    s.offsets(identity, {s.source(): 1, s.gone(): 1})
    s.offsets(identity, {s.gone(): 1})
    s.end(identity, commit=True)
    s.init(identity)
    s.look()


@script(*BOTH)
def long_metadata(s: Script):
    identity = s.init()
    s.offsets(identity, {s.source(): CommittedOffset(1, "m" * 4096)})
    s.offsets(identity, {s.source(): CommittedOffset(2, "m" * 4097), s.source(1): 3})
    s.end(identity, commit=True)
    s.init(identity)
    s.look()


@script(*BOTH)
def offsets_replace_one_another_until_the_end(s: Script):
    identity = s.init()
    s.offsets(identity, {s.source(): 5})
    s.offsets(identity, {s.source(): 4})
    identity = s.next(s.end(identity, commit=True))
    s.offsets(identity, {s.source(): 6})
    s.init(s.end(identity, commit=False))
    s.look()


@script(Profile.TV1)
def tv1_wants_partitions_and_groups_added_first(s: Script):
    identity = s.init()
    s.write(identity, 0, "a", adds=False)
    s.offsets(identity, {s.source(): 1}, adds=False)
    s.write(identity, 0, "a")
    s.write(identity, 0, "x", at=s.target(1), adds=False)
    s.offsets(identity, {s.source(): 1}, adds=False)
    s.end(identity, commit=True)
    s.closed()
    s.write(identity, 1, "late", adds=False)
    s.offsets(identity, {s.source(): 1}, adds=False)
    s.init(identity)
    s.look()


@script(Profile.TV1)
def tv1_keeps_the_epoch_through_an_end(s: Script):
    identity = s.init()
    s.write(identity, 0, "a")
    s.end(identity, commit=True)
    s.write(identity, 1, "b")
    s.write(identity, 0, "a", adds=False)
    s.end(identity, commit=True)
    s.init(identity)
    s.look()


@script(Profile.TV2)
def tv2_allows_partitions_and_groups_to_be_added_first(s: Script):
    identity = s.init()
    s.add(identity, s.target(), s.target(1))
    s.add_offsets(identity)
    s.write(identity, 0, "a")
    s.offsets(identity, {s.source(): 4})
    identity = s.end(identity, commit=True)
    s.write(identity, 0, "b", at=s.target(1))
    s.init(s.end(identity, commit=True))
    s.look()


@script(Profile.TV1)
def sequences_wrap(s: Script):
    """Under TV1, since TV2 lets no producer begin near the end."""
    identity = s.init()
    s.write(identity, 2**31 - 3, "y")
    s.write(identity, 2**31 - 2, "z", "a", "b")
    s.write(identity, 2**31 - 2, "z", "a", "b")
    s.write(identity, 1, "b?")
    s.write(identity, 2, "c")
    s.write(identity, 2**31 - 2, "y", "z", at=s.target(1))
    s.write(identity, 0, "a", at=s.target(1))
    s.end(identity, commit=True)
    s.init(identity)
    s.look()


@script(*BOTH)
def a_damaged_record_batch(s: Script):
    identity = s.init()
    s.write(identity, 0, "a")
    s.write(identity, 1, "b", damaged=True)
    s.write(identity, 1, "b")
    s.init(s.end(identity, commit=True))
    s.look()


def a_timed_out_transaction(s: Script) -> None:
    """Its owner may go on with (id, epoch); TV1 requests of the old epoch are refused as fenced."""
    identity = s.init(timeout_ms=1000)
    s.write(identity, 0, "a")
    s.offsets(identity, {s.source(): 1})
    s.closed(after_ms=1000)
    s.write(identity, 1, "late", adds=False)
    s.add(identity, s.target())
    s.add_offsets(identity)
    s.offsets(identity, {s.source(): 2}, adds=False)
    s.end(identity, commit=True)
    s.end(identity, commit=False)
    after = s.init(identity)
    s.init(identity)
    s.write(after, 0, "b")
    s.init(s.end(after, commit=True))
    s.look()


def answers(world: World, function: Callable[[Script], None]) -> list[tuple]:
    run = Script(world)
    function(run)
    assert run.trace
    return run.trace


@contextmanager
def reading(bootstrap: str, scripts: int) -> Iterator[Readers]:
    wire = Wire(KafkaSettings((bootstrap,)))
    made = Readers(wire, scripts)
    yield made
    made.close()
    wire.close()


@pytest.fixture(scope="module")
def readers(broker: EmbeddedKafka) -> Iterator[Readers]:
    with reading(broker.bootstrap, len(SCRIPTS)) as made:
        yield made


@pytest.mark.parametrize(
    ("function", "profile"), SCRIPTS, ids=[f"{f.__name__}-{p.name}" for f, p in SCRIPTS]
)
def test_the_simulated_broker_answers_as_the_real_one(
    wires: Callable[..., Wire],
    readers: Readers,
    function: Callable[[Script], None],
    profile: Profile,
) -> None:
    real = answers(RealWorld(wires(profile), readers), function)
    assert answers(SimulatedWorld(profile), function) == real


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Readers]:
    """A broker that looks for timed-out transactions five times a second, not every ten."""
    looks = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    root = tmp_path_factory.mktemp("impatient")
    with EmbeddedKafka(root, config=looks) as kafka, reading(kafka.bootstrap, 2) as made:
        yield made


@pytest.mark.parametrize("profile", Profile)
def test_a_timeout_ends_a_transaction_as_it_does_for_real(
    wires: Callable[..., Wire], impatient: Readers, profile: Profile
) -> None:
    world = RealWorld(wires(profile, impatient.bootstrap), impatient)
    real = answers(world, a_timed_out_transaction)
    assert answers(SimulatedWorld(profile), a_timed_out_transaction) == real


def test_the_scripts_run_on_a_cluster_like_the_simulated_one(wire: Wire) -> None:
    """Its own transaction version decides how it ends what a client left open."""
    assert wire.transaction_version(Deadline.after_ms(20_000)) == 2
