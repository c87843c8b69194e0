"""The parts of `Wire` that a writer and a ledger use, over the simulated broker.

A writer sees two leaders, with a connection each. Requests wait in their connection's queue until
the writer waits for an answer, or until the script serves them: so five can be unanswered at once.
Each request that a leader takes from its queue consumes one event of the script; after the last
one every request succeeds. Each is checked for what a leader relies on and does not check itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kafka.record import MemoryRecords

from eos.deadline import Backoff, Deadline
from eos.errors import NoAnswerError, UnavailableError
from eos.kafka.api import (
    Answer,
    DescribedProducer,
    Identity,
    ProduceAnswer,
    TopicPartition,
    TransactionProfile,
)
from eos.kafka.records.batch_headers import Batch, batches
from eos.kafka.records.parser import StoredRecord, stored_records
from eos.kafka.settings import KafkaSettings
from support.simulated_broker import Entry, SimulatedBroker
from support.simulated_broker.log import parse

UNANSWERED_MAX = 5
_NOT_LEADER = 6


@dataclass(frozen=True)
class Refuse:
    """Some partitions of the request are answered with `code`, carried out or not."""

    code: int
    partitions: int = -1  # a bit for each, in the request's order
    is_appended: bool = False


@dataclass(frozen=True)
class Break:
    """The connection breaks: nothing on it is answered any more. The leader had read `read`
    requests; it carries them out now or, if `is_late`, some time later."""

    read: int = 0
    is_late: bool = False


@dataclass(frozen=True)
class Move:
    """Before this request another leader took over one of its partitions."""

    partition: int = 0


@dataclass(frozen=True)
class Lose:
    """A request that is asked and answered alone: it, or its answer, is lost."""

    is_carried_out: bool = False


Happening = Refuse | Break | Move | None


class Patience(Deadline):
    """Passes after so many pauses: no clock, so runs repeat exactly."""

    def __init__(self, pauses_max: int) -> None:
        super().__init__(0.0)
        object.__setattr__(self, "pauses", [])
        object.__setattr__(self, "pauses_max", pauses_max)

    @property
    def left_ms(self) -> int:
        return 60_000

    @property
    def has_passed(self) -> bool:
        return len(self.pauses) >= self.pauses_max


class NoPause(Backoff):
    pause_s = 0.0

    def next_s(self, deadline: Patience) -> float:
        deadline.pauses.append(1)
        return self.pause_s


class ShortPause(NoPause):
    pause_s = 0.0005


class Asked:
    """One Produce request."""

    def __init__(
        self,
        client: SimulatedWire,
        leader: int,
        record_batches: Mapping[TopicPartition, bytes],
        after: Asked | None,
    ) -> None:
        self.client, self.leader, self.after = client, leader, after
        self.record_batches = dict(record_batches)
        self.answers: dict[TopicPartition, ProduceAnswer] | None = None
        self.error: NoAnswerError | None = None

    @property
    def done(self) -> bool:
        return self.answers is not None or self.error is not None

    def wait(self, _deadline: Deadline) -> Mapping[TopicPartition, ProduceAnswer]:
        while not self.done:
            self.client.serve(self.leader)
        if self.error is not None:
            raise self.error
        return self.answers

    def lose(self, cause: str) -> None:
        self.error = NoAnswerError("example", cause)


@dataclass
class SimulatedWire:
    broker: SimulatedBroker
    script: Iterator[Happening] = field(default_factory=lambda: iter(()))
    eager: Iterator[int] = field(default_factory=lambda: iter(()))
    profile: TransactionProfile = TransactionProfile.TV2
    max_request_bytes: int = 1_000
    adds: Iterator[Refuse | Lose | None] = field(default_factory=lambda: iter(()))

    def __post_init__(self) -> None:
        self.settings = KafkaSettings(("simulated",), max_request_bytes=self.max_request_bytes)
        self.leaders_now = {at: number % 2 for number, at in enumerate(sorted(self.broker.logs))}
        self.leaders_heard: dict[TopicPartition, int] = {}
        self.queues: dict[int, list[Asked]] = {0: [], 1: []}
        self.late: list[Asked] = []
        self.sent: list[Asked] = []
        self.first_bytes: dict[tuple[TopicPartition, int], bytes] = {}
        self.unanswered_most = 0
        self.happened: list[Happening] = []
        self.codes: set[int] = set()  # that were answered
        self.asked_to_add: list[frozenset[TopicPartition]] = []
        self.added: set[TopicPartition] = set()

    # --- what the writer calls ------------------------------------------------------------------

    def leaders(
        self, partitions: Iterable[TopicPartition], _deadline: Deadline
    ) -> Mapping[TopicPartition, int]:
        """As last heard."""
        return {at: self.leaders_heard.setdefault(at, self.leaders_now[at]) for at in partitions}

    def refresh_metadata(self, topics: Iterable[str], deadline: Deadline) -> None:
        if deadline.has_passed:
            raise UnavailableError("example", "no broker answers: the time was up")
        for at, leader in self.leaders_now.items():
            if at.topic in topics:
                self.leaders_heard[at] = leader

    def describe_producers(
        self, partitions: Iterable[TopicPartition], _deadline: Deadline
    ) -> Mapping[TopicPartition, tuple[DescribedProducer, ...]]:
        return {at: tuple(self.broker.describe_producers(at).values()) for at in partitions}

    def add_partitions(
        self,
        transactional_id: str,
        identity: Identity,
        partitions: frozenset[TopicPartition],
        _deadline: Deadline,
    ) -> Mapping[TopicPartition, Answer]:
        assert self.profile is TransactionProfile.TV1, (
            "under TV2 the first record batch adds its partition"
        )
        assert not partitions & self.added, "once is enough"
        self.asked_to_add.append(partitions)
        happens = next(self.adds, None)
        if isinstance(happens, Refuse) and not happens.is_appended:
            return dict.fromkeys(partitions, Answer(happens.code))
        answers = None
        if not isinstance(happens, Lose) or happens.is_carried_out:
            answers = self.broker.add_partitions(transactional_id, identity, partitions)
        if isinstance(happens, Lose):
            raise NoAnswerError("example", "the connection broke")
        if isinstance(happens, Refuse):
            return dict.fromkeys(partitions, Answer(happens.code))
        assert answers is not None
        self.added |= {at for at, answer in answers.items() if answer.error == 0}
        return answers

    def send_produce(
        self,
        leader: int,
        transactional_id: str,
        record_batches: Mapping[TopicPartition, bytes],
        _timeout_ms: int,
        after: Asked | None = None,
    ) -> Asked:
        assert transactional_id == "id"
        assert self.profile is TransactionProfile.TV2 or record_batches.keys() <= self.added
        asked = Asked(self, leader, record_batches, after)
        self.sent.append(asked)
        if after is not None and after.error is not None:
            asked.lose("an earlier request on this connection was lost")
        else:
            self.queues[leader].append(asked)
        self._check(asked)
        for _ in range(next(self.eager, 0)):
            self.serve(leader)
        return asked

    # --- the cluster ----------------------------------------------------------------------------

    def serve(self, leader: int) -> None:
        """The leader takes one request from its queue, and something happens to it."""
        if not self.queues[leader]:
            return
        happens = next(self.script, None)
        self.happened.append(happens)
        if isinstance(happens, Break):
            self._break(leader, happens)
            return
        asked = self.queues[leader].pop(0)
        if isinstance(happens, Move):
            at = list(asked.record_batches)[happens.partition % len(asked.record_batches)]
            self.leaders_now[at] = 1 - leader
        asked.answers = self._carry_out(asked, happens if isinstance(happens, Refuse) else None)
        self.codes |= {answer.error for answer in asked.answers.values()}
        if len(self.late) > 1:
            self._carry_out(self.late.pop(0), None)

    def deliver_late(self) -> None:
        while self.late:
            self._carry_out(self.late.pop(0), None)

    def _break(self, leader: int, happens: Break) -> None:
        lost, self.queues[leader] = self.queues[leader], []
        for asked in lost:
            asked.lose("the connection broke")
        for asked in lost[: happens.read]:
            if happens.is_late:
                self.late.append(asked)
            else:
                self._carry_out(asked, None)

    def _carry_out(
        self, asked: Asked, refuse: Refuse | None
    ) -> dict[TopicPartition, ProduceAnswer]:
        answers = {}
        for number, (at, blob) in enumerate(asked.record_batches.items()):
            is_refused = refuse is not None and refuse.partitions >> number & 1
            if self.leaders_now[at] != asked.leader:
                answers[at] = ProduceAnswer(_NOT_LEADER)
                continue
            if is_refused and not refuse.is_appended:
                answers[at] = ProduceAnswer(refuse.code)
                continue
            answers[at] = self.broker.produce(self.profile, "id", {at: blob})[at]
            if is_refused:
                answers[at] = ProduceAnswer(refuse.code)
        return answers

    def _check(self, asked: Asked) -> None:
        open_here = [one for one in self.sent if not one.done and one.leader == asked.leader]
        assert len(open_here) <= UNANSWERED_MAX
        size = sum(map(len, asked.record_batches.values()))
        assert len(asked.record_batches) == 1 or size <= self.max_request_bytes
        for at, blob in asked.record_batches.items():
            assert int.from_bytes(blob[8:12], "big") + 12 == len(blob), "one record batch"
            header = parse(blob)
            assert header is not None
            first = self.first_bytes.setdefault((at, header.sequence), blob)
            assert first == blob, "a repeated record batch keeps its bytes"
            open_ = [one for one in self.sent if not one.done and at in one.record_batches]
            self.unanswered_most = max(self.unanswered_most, len(open_))
            assert len(open_) <= UNANSWERED_MAX
            assert len({one.leader for one in open_}) <= 1, "no order between two connections"


def stored(entry: Entry) -> list[StoredRecord]:
    return stored_at(entry.blob, entry.offset)


def stored_at(blob: bytes, offset: int) -> list[StoredRecord]:
    """The records of a record batch that lies at this offset of a log."""
    (batch,) = batches(struct.pack(">q", offset) + blob[8:])
    assert isinstance(batch, Batch)
    return stored_records(batch)


def values(blob: bytes) -> list[bytes]:
    return [record.value for record in MemoryRecords(blob).next_batch()]


class LedgerWire:
    def __init__(self, broker: SimulatedBroker) -> None:
        self.broker = broker
        self.config = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
        self.created: list[str] = []
        self.windows: list[tuple[int, int]] = []

    def list_offsets(
        self, partitions: Iterable[TopicPartition], at: str, *, committed: bool, deadline: Deadline
    ) -> Mapping[TopicPartition, int]:
        assert deadline is not None
        logs = {tp: self.broker.logs[tp] for tp in partitions}
        if at == "earliest":
            return dict.fromkeys(logs, 0)
        return {
            tp: log.last_stable_offset if committed else log.offset_end for tp, log in logs.items()
        }

    def read_records(
        self,
        partition: TopicPartition,
        offset_start: int,
        offset_end: int,
        *,
        committed: bool,
        deadline: Deadline,
    ) -> Sequence[StoredRecord]:
        assert deadline is not None
        self.windows.append((offset_start, offset_end))
        log = self.broker.logs[partition]
        entries = log.read_committed() if committed else log.read_uncommitted()
        records = [record for entry in entries for record in stored(entry)]
        return [record for record in records if offset_start <= record.offset < offset_end]

    def topic_config(self, _topic: str, name: str, _deadline: Deadline) -> str:
        return self.config[name]

    def create_topic(
        self,
        name: str,
        partitions: int,
        _replication: int,
        config: Mapping[str, str],
        _deadline: Deadline,
    ) -> None:
        assert partitions == 1
        assert self.config.keys() <= config.keys()
        self.created.append(name)
