"""The machine's verdicts and the real leader's errors, for raw Produce requests."""

from __future__ import annotations

import random
import struct
from collections import Counter

import google_crc32c
from support.producer_answers import KAFKA_ANSWERS
from support.simulated_broker.kit import record_batch

from eos.deadline import Backoff
from eos.kafka.api import Identity, TopicPartition, TransactionProfile
from eos.producers.state import (
    ProducerState,
    Range,
    Rules,
    SequenceEvent,
    Verdict,
    after,
    decide,
    marked,
)

PARTITIONS, STEPS = 48, 40
TOP = 2**31 - 1
LOADING = {3, 5, 6}


def raw(identity: Identity, first: int, count: int) -> bytes:
    """Of an idempotent producer without transactions: nothing but sequences decides. Its id and
    epoch may be any."""
    blob = bytearray(record_batch(identity, first, [b"%d" % n for n in range(count)]))
    struct.pack_into(">h", blob, 21, 0)  # attributes
    struct.pack_into(">I", blob, 17, google_crc32c.value(bytes(blob[21:])))
    return bytes(blob)


class Producer:
    """Of one partition: what it sends next, and what the machine knows of it."""

    def __init__(self, at: TopicPartition, number: int) -> None:
        self.at = at
        self.random = random.Random(number)
        self.id = 1_000_000 + number
        self.state: ProducerState | None = None
        self.offsets: dict[Range, int] = {}
        self.starts = 0 if number % 3 else TOP - number % 20

    def next(self) -> SequenceEvent:
        state, choose = self.state, self.random
        if state is None:
            first = self.starts or choose.choice([0, 0, 4])
            return self._of(choose.randint(0, 2), first)
        following = (state.ranges[-1].last + 1) % (TOP + 1)
        what = choose.random()
        if what < 0.5:
            return self._of(state.epoch, following)
        if what < 0.62:
            kept = choose.choice(state.ranges)
            return SequenceEvent(state.epoch, *kept)
        if what < 0.72:
            return self._of(state.epoch + choose.choice([-1, 1, 1]), choose.choice([0, following]))
        return self._of(state.epoch, (following + choose.randint(-16, 4)) % (TOP + 1))

    def _of(self, epoch: int, first: int) -> SequenceEvent:
        count = self.random.randint(1, 4)
        return SequenceEvent(max(0, epoch), first, (first + count - 1) % (TOP + 1))

    def check(self, event: SequenceEvent, error: int, offset: int) -> Verdict:
        verdict = decide(self.state, event)
        said = Range(event.first, event.last)
        kept = self.state.ranges if self.state and self.state.epoch == event.epoch else ()
        expected = min(KAFKA_ANSWERS[verdict])
        if verdict is Verdict.DUPLICATE:
            expected = 0 if said in kept else 45
        assert error == expected, (verdict, event, self.state)
        if verdict is Verdict.DUPLICATE and not error:
            assert offset == self.offsets[said], "the first copy's offset"
        if Rules().writes(verdict):
            newer = self.state is None or event.epoch > self.state.epoch
            self.offsets = {} if newer else self.offsets
            self.offsets[said] = offset
        self.state = after(self.state, event, verdict)
        return verdict


def test_the_leader_answers_as_the_machine_says(client, name, within):
    """Many producers side by side: one request has a record batch of each."""
    client.create_topic(name, PARTITIONS, 1, {"retention.ms": "-1"}, within())  # of 2023
    producers = [Producer(TopicPartition(name, n), n) for n in range(PARTITIONS)]
    found: Counter[Verdict] = Counter()
    for step in range(STEPS):
        events = {each.at: each.next() for each in producers}
        blobs = {
            each.at: raw(
                Identity(each.id, (event := events[each.at]).epoch),
                event.first,
                (event.last - event.first) % (TOP + 1) + 1,
            )
            for each in producers
        }
        answers = client.produce(None, blobs, within())
        deadline, backoff = within(), Backoff()
        while step == 0 and {answer.error for answer in answers.values()} & LOADING:
            assert not deadline.has_passed
            backoff.sleep(deadline)
            busy = [at for at, answer in answers.items() if answer.error in LOADING]
            again = client.produce(None, {at: blobs[at] for at in busy}, within())
            answers = {**answers, **again}
        for each in producers:
            answer = answers[each.at]
            found[each.check(events[each.at], answer.error, answer.offset)] += 1
    assert set(found) == set(Verdict), "each verdict was met"


def transaction(client, name, at, within, settled, sends):
    """(error) of each record batch of one transaction; TV1 may begin anywhere."""
    identity = settled(
        lambda: client.init_producer_id(name, 60_000, Identity(-1, -1), within())
    ).identity
    if client.profile is TransactionProfile.TV1:
        settled(lambda: client.add_partitions(name, identity, frozenset({at}), within()))
    state, told = None, []
    for first, count in sends:
        blob = record_batch(identity, first, [b"x"] * count)
        answer = settled(lambda blob=blob: client.produce(name, {at: blob}, within()))[at]
        event = SequenceEvent(identity.epoch, first, first + count - 1)
        verdict = decide(state, event)
        told.append((verdict, answer.error))
        if not answer.error:
            state = after(state, event, verdict)
    return identity, state, told


def test_an_unknown_producer_begins_anywhere_under_tv1_and_at_0_under_tv2(
    clients, topic, name, within, settled
):
    sends = [(5, 2), (7, 1)]
    found = {}
    for number, profile in enumerate(TransactionProfile):
        at, client = TopicPartition(topic, number), clients(profile)
        _, _, told = transaction(client, f"{name}.{number}", at, within, settled, sends)
        found[profile] = told
    unknown, appended = Verdict.UNKNOWN_PRODUCER, Verdict.APPENDED
    assert found[TransactionProfile.TV1] == [(unknown, 0), (appended, 0)]
    assert found[TransactionProfile.TV2] == [(unknown, 45), (unknown, 45)]


def test_behind_a_marker_the_next_epoch_begins_at_0(client, topic, name, within, settled):
    at = TopicPartition(topic, 0)
    identity, state, told = transaction(client, name, at, within, settled, [(0, 2), (2, 1)])
    assert [error for _, error in told] == [0, 0]
    following = settled(lambda: client.end_txn(name, identity, True, within())).identity
    deadline, backoff = within(), Backoff()
    while client.describe_producers([at], within())[at][0].transaction_start_offset >= 0:
        assert not deadline.has_passed
        backoff.sleep(deadline)
    state = marked(state, following.epoch)
    for epoch, first in [(identity.epoch, 3), (following.epoch, 3), (following.epoch, 0)]:
        blob = record_batch(Identity(identity.producer_id, epoch), first, [b"y"])
        answer = settled(lambda blob=blob: client.produce(name, {at: blob}, within()))[at]
        verdict = decide(state, SequenceEvent(epoch, first, first))
        assert answer.error in KAFKA_ANSWERS[verdict]
        assert (verdict is Verdict.APPENDED) == (answer.error == 0)
