"""The table `producers` and a real leader reach the same verdicts on the same random batches.

The states of all producers go through the Delta table between two steps. What a leader forgets,
the table forgets at the same time.
"""

from __future__ import annotations

import random
import struct
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import pytest
from kafka.protocol.admin import IncrementalAlterConfigsRequest
from support.kafka.brokers import abandon
from support.producer_answers import ERROR_CODES
from support.simulated_broker.kit import record_batch
from support.waiting import wait_until

from eos.audit import producer_rows
from eos.audit.producer_states import CoordinatorEntry, Entry, EntryKey, ProducerStates
from eos.audit.table import ProducersTable
from eos.deadline import Backoff, Deadline
from eos.kafka.api import Identity, TopicPartition, TransactionProfile
from eos.kafka.client import KafkaClient
from eos.kafka.settings import KafkaSettings
from eos.kafka.transaction_states import TransactionPhase
from eos.ledger.receipt import BATCHES_MAX, AppendedBatch
from eos.local.embedded_kafka import EmbeddedKafka
from eos.producers.broker import BrokerVerdict, acknowledged, broker_verdict
from eos.producers.state import SequenceEvent, is_expired

PARTITIONS, STEPS = 24, 40
CIRCLE = 2**31
LOADING = {3, 5, 6}
LEDGER = TopicPartition("ledger", 0)
# All but FENCED, which is a coordinator's answer.
OF_A_LEADER = set(BrokerVerdict) - {BrokerVerdict.FENCED}


def soon() -> Deadline:
    return Deadline.after_ms(120_000)


def raw(identity: Identity, event: SequenceEvent) -> bytes:
    """Return a record batch of an idempotent producer without transactions, which may have any
    producer id and epoch."""
    count = (event.last - event.first) % CIRCLE + 1
    blob = bytearray(record_batch(identity, event.first, [b"%d" % n for n in range(count)]))
    struct.pack_into(">h", blob, 21, 0)  # attributes
    struct.pack_into(">qq", blob, 27, event.at_ms, event.at_ms)
    struct.pack_into(">I", blob, 17, google_crc32c.value(bytes(blob[21:])))
    return bytes(blob)


class Driven:
    """A leader of many partitions and the table, driven by one producer for each partition."""

    def __init__(self, client: KafkaClient, topic: str, folder: Path) -> None:
        self.client = client
        self.table = ProducersTable(folder / "producers")
        self.states = ProducerStates(LEDGER)
        self.states.coordinator = CoordinatorEntry(
            Identity(1, 0), TransactionPhase.COMPLETE_COMMIT, 0, 0, 0
        )
        self.keys = [
            EntryKey(TopicPartition(topic, number), 2_000_000 + number)
            for number in range(PARTITIONS)
        ]
        self.choose = {key: random.Random(key.producer_id) for key in self.keys}
        self.sent: dict[EntryKey, list[SequenceEvent]] = {key: [] for key in self.keys}
        self.found: Counter[BrokerVerdict] = Counter()
        self.version = 0

    def step(self) -> None:
        """Send one record batch to each partition, and compare the answers."""
        events = {key: self._next(key) for key in self.keys}
        blobs = {
            key.partition: raw(Identity(key.producer_id, event.epoch), event)
            for key, event in events.items()
        }
        answers = self.client.produce(None, blobs, soon())
        deadline, backoff = soon(), Backoff()
        while busy := [at for at, answer in answers.items() if answer.error in LOADING]:
            assert not deadline.has_passed
            backoff.sleep(deadline)
            again = self.client.produce(None, {at: blobs[at] for at in busy}, soon())
            answers = {**answers, **again}
        for key, event in events.items():
            answer = answers[key.partition]
            self._check(key, event, answer.error, answer.offset)
        self._store()

    def _next(self, key: EntryKey) -> SequenceEvent:
        choose, entry = self.choose[key], self.states.entries.get(key)
        if entry is None:
            first = choose.choice([0, CIRCLE - 3, 4])  # one in three begins below the wrap
            return self._event(key, choose.randint(1, 3), first)
        following = (entry.state.ranges[-1].last + 1) % CIRCLE
        epoch, what = entry.state.epoch, choose.random()
        if what < 0.5:
            return self._event(key, epoch, following)
        if what < 0.75:  # an exact duplicate, within the last five or beyond
            again = choose.choice(self.sent[key][-8:])
            return again._replace(at_ms=now_ms())
        if what < 0.88:
            return self._event(key, max(0, epoch + choose.choice([-1, 1])), choose.choice([0, 9]))
        return self._event(key, epoch, (following + choose.randint(-16, 4)) % CIRCLE)

    def _event(self, key: EntryKey, epoch: int, first: int) -> SequenceEvent:
        last = (first + self.choose[key].randint(0, 3)) % CIRCLE
        return SequenceEvent(epoch, first, last, now_ms())

    def _check(self, key: EntryKey, event: SequenceEvent, error: int, offset: int) -> None:
        entry = self.states.entries.get(key)
        state = entry.state if entry is not None else None
        verdict = broker_verdict(state, event)
        self.found[verdict] += 1
        expected = {0} if verdict is BrokerVerdict.UNKNOWN_PRODUCER else ERROR_CODES[verdict]
        assert {error} == expected, (verdict, event, entry)
        if verdict is BrokerVerdict.DUPLICATE:
            assert entry is not None
            first = next(
                each
                for each in entry.batches
                if (each.sequence_first, each.sequence_last) == (event.first, event.last)
            )
            assert offset == first.offset_first, "the first copy's offset"
        if error or verdict is BrokerVerdict.DUPLICATE:
            return
        count = (event.last - event.first) % CIRCLE
        added = AppendedBatch(event.first, event.last, offset, offset + count, event.at_ms)
        is_same_epoch = entry is not None and entry.batches_epoch == event.epoch
        batches = (*(entry.batches if entry is not None and is_same_epoch else ()), added)
        self.sent[key].append(event)
        self.states.entries[key] = Entry(
            acknowledged(state, event, verdict), batches[-BATCHES_MAX:], event.epoch, -1, 0, verdict
        )

    def _store(self) -> None:
        """Replace the rows of the table, and go on with what it has."""
        assert self.table.known("p/lid") == self.version - 1
        made = producer_rows.table("p", "", "lid", self.states)
        self.table.replace(made, "p", "p/lid", self.version)
        self.table.known("p/lid")
        self.version += 1
        read = producer_rows.states_of(self.table.rows("p"), LEDGER, "lid")
        assert read == self.states
        self.states = read

    def known(self) -> set[EntryKey]:
        """The producers that the leaders know."""
        partitions = [key.partition for key in self.keys]
        return {
            EntryKey(at, each.identity.producer_id)
            for at, found in self.client.describe_producers(partitions, soon()).items()
            for each in found
        }


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.fixture(scope="module")
def watchful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A broker that looks for expired producers often."""
    looks = {"producer.id.expiration.check.interval.ms": "200"}
    with EmbeddedKafka(tmp_path_factory.mktemp("watchful"), config=looks) as kafka:
        yield kafka
        abandon(kafka)


def set_expiration(client: KafkaClient, value: int) -> None:
    """Set it for all brokers, while they run."""
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = kind.AlterableConfig(
        name="producer.id.expiration.ms", config_operation=0, value=str(value)
    )
    request = IncrementalAlterConfigsRequest(
        version=1,
        resources=[kind(resource_type=4, resource_name="", configs=[config])],
        validate_only=False,
    )
    response = client._cluster.query_any(lambda: request, soon())
    assert [each.error_code for each in response.responses] == [0], response


@pytest.mark.long
def test_the_leader_and_the_table_agree_also_on_what_expires(watchful, name, tmp_path):
    settings = KafkaSettings((watchful.bootstrap,))
    client = KafkaClient(settings, TransactionProfile.TV2)
    client.create_topic(name, PARTITIONS, 1, {}, soon())
    driven = Driven(client, name, tmp_path)
    for _ in range(STEPS):
        driven.step()
    assert set(driven.found) == OF_A_LEADER, "each verdict was met"
    assert driven.known() == set(driven.states.entries)

    set_expiration(client, 100)
    wait_until(lambda: not driven.known())
    idle_at = now_ms()
    assert all(is_expired(each.state, idle_at, 100) for each in driven.states.entries.values())
    set_expiration(client, 86_400_000)
    driven.states.entries.clear()
    driven.found.clear()
    for _ in range(STEPS // 4):
        driven.step()
    assert driven.found[BrokerVerdict.UNKNOWN_PRODUCER]
    assert driven.known() == set(driven.states.entries)
    client.close()
