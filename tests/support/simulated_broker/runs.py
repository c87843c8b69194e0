"""Runs on the simulated broker: of a whole pipeline, and of one writer's attempt.

A pipeline starts as a process starts, and runs as Spark runs it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from copy import copy
from functools import cache
from itertools import accumulate, count
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest

from eos.deadline import Backoff
from eos.errors import AttemptFailedError, NoAnswerError, UnavailableError
from eos.faults import CrashPlan, Points
from eos.kafka.api import (
    NO_IDENTITY,
    Answer,
    CommittedOffset,
    Identity,
    ProduceAnswer,
    TopicPartition,
    TransactionProfile,
)
from eos.kafka.compression_type import Codec
from eos.kafka.records.record_batch import Columns, EncodedBatch, encode, last_ms
from eos.kafka.target_partitions import Targets
from eos.ledger.ledger import Ledger
from eos.ledger.ranges import PlannedBatch
from eos.ledger.receipt import AppendedBatch, Receipt
from eos.ledger.record import Ends, Position
from eos.transaction import writer as writer_module
from eos.transaction.coordinator import Coordinator
from eos.transaction.micro_batch import MicroBatches
from eos.transaction.writer import Writer
from support.doubles import Execute, Work
from support.errors import make_error
from support.simulated_broker import SimulatedBroker, SimulatedPort
from support.simulated_broker.kit import Tries, record_batch
from support.simulated_broker.log import parse
from support.simulated_broker.wire import LedgerWire, NoPause, Patience, SimulatedWire, stored

LEDGER, SOURCE, TARGET = (TopicPartition(name, 0) for name in ("ledger", "source", "target"))
SIZE = 10  # records of a micro-batch
TRIES = 4
TIMEOUT_MS = 60_000
# A client's profile on a cluster's: TV2 needs a cluster that has it, TV1 is right on both.
EVERYWHERE = (
    (TransactionProfile.TV2, TransactionProfile.TV2),
    (TransactionProfile.TV1, TransactionProfile.TV2),
    (TransactionProfile.TV1, TransactionProfile.TV1),
)
ALL = pytest.mark.parametrize("where", EVERYWHERE, ids=["TV2", "TV1-upgraded", "TV1"])


class NoWait(Backoff):
    def sleep(self, deadline):
        assert deadline.left_ms == 0


class FewTries:
    """In the place of `Deadline`: no clock."""

    @staticmethod
    def after_ms(_timeout_ms: float) -> Tries:
        return Tries(TRIES)


class Interrupt:
    """In the place of `CrashPlan`: raises at the planned point, once, instead of killing."""

    def __init__(self, point: str = "", error: type[BaseException] = KeyboardInterrupt) -> None:
        self.point = point
        self.error = error

    def reached(self, point: str) -> None:
        if point == self.point:
            self.point = ""
            raise make_error(self.error, f"at {point}")


class Emitted(list):
    emit = list.append


class Cluster:
    """What `run.source.LiveSource` asks of a cluster, of the simulated one."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self.broker = broker
        self.ids = {"source": "topic-id"}
        self.first: dict[TopicPartition, int] = {}

    def topic_ids(self, topics):
        return {topic: self.ids[topic] for topic in topics}

    def earliest(self, partitions):
        return {tp: self.first.get(tp, 0) for tp in partitions}

    def group_offsets(self, partitions, _deadline=None):
        found = self.broker.committed_offsets("group")
        return {tp: found[tp].offset for tp in partitions if tp in found}


def step(number: int, query: str = "q") -> PlannedBatch:
    return PlannedBatch(query, number, {SOURCE: number * SIZE}, {SOURCE: (number + 1) * SIZE})


class World:
    """One pipeline: started as a process starts, run as Spark runs it. `server` is the cluster's
    own transaction version."""

    def __init__(
        self,
        profile: TransactionProfile = TransactionProfile.TV2,
        server: TransactionProfile = TransactionProfile.TV2,
    ) -> None:
        self.profile = profile
        self.broker = SimulatedBroker({"ledger": 1, "source": 1, "target": 1}, server)
        self.identities: list[Identity] = []
        self.crash = Interrupt()
        self.timeouts = count(TIMEOUT_MS, -1)  # no two owners ask for the same
        self.start()

    def start(self) -> None:
        """A new process: fence, then read how far the ledger has come."""
        self.port = SimulatedPort(self.broker, self.profile)
        self.points = Points(self)
        self.coordinator = Coordinator(
            self.port,
            "id",
            "group",
            next(self.timeouts),
            self.points.reached,
            backoff=NoWait,
        )
        self.ledger_wire = LedgerWire(self.broker)
        # The same for all: two containers may have one host name and process id.
        owner = {"deployment": "d", "host": "here", "process": 1}
        self.ledger = Ledger(self.ledger_wire, "ledger", "p", owner)
        self.coordinator.fence(Tries(9))
        last = self.ledger.read_last(Tries(9))
        self.emitted = Emitted()
        self.cluster = Cluster(self.broker)
        self.batches = MicroBatches(
            "p",
            self.coordinator,
            self.ledger,
            last.position if last else Position({SOURCE: 0}, {"source": "topic-id"}),
            self.emitted,
            self.points,
            self.cluster,
            last,
        )
        if last is None:
            self.batches.note("start")

    def reached(self, point: str) -> None:
        self.crash.reached(point)

    def run(self, number: int, execute: Execute | None = None, **more: Any) -> None:
        self.batches.run(step(number), Work(execute or self.writes(number), **more))

    def writes(self, number: int, *errors: BaseException | None):
        """A job: writes its record, then raises the next of the errors, if one is left."""
        left = list(errors)

        def execute(identity: Identity, floors: Ends) -> Sequence[Receipt]:
            self.floors = floors
            assert identity not in self.identities, "one epoch, one attempt"
            self.identities.append(identity)
            blob = record_batch(identity, 0, [b"%d" % number])
            answer = self._written(identity, blob)
            if answer.error:
                raise AttemptFailedError("example", f"answered {answer.error}")
            error = left.pop(0) if left else None
            if error is not None:
                raise error
            return [Receipt("target", 0, 1, answer.offset, answer.offset, len(blob), 7)]

        return execute

    def _written(self, identity: Identity, blob: bytes) -> Answer | ProduceAnswer:
        """What a writer does: TV1 adds the partition first."""
        for _ in range(TRIES):
            try:
                if self.profile is TransactionProfile.TV1:
                    only = frozenset({TARGET})
                    added = self.port.add_partitions("id", identity, only, Tries(1))[TARGET]
                    if added.error:
                        return added
                return self.port.produce("id", {TARGET: blob}, Tries(1))[TARGET]
            except NoAnswerError:
                continue
        raise UnavailableError("example", "the leader does not answer")

    def another(self) -> Coordinator:
        """A second copy of the pipeline, as far as it has come when it has fenced this one."""
        port = SimulatedPort(self.broker, self.profile)
        other = Coordinator(port, "id", "group", next(self.timeouts), backoff=NoWait)
        other.fence(Tries(9))
        return other

    def beside(self) -> World:
        """A second process of the pipeline, on the same broker, that has started."""
        other = copy(self)
        other.identities, other.crash = [], Interrupt()
        other.start()
        other.batches.note("start")
        return other

    def visible(self) -> list[int]:
        entries = self.broker.read_committed(TARGET)
        return [int(record.value) for entry in entries for record in stored(entry)]

    def ledger_body(self) -> dict:
        return json.loads(stored(self.broker.read_committed(LEDGER)[-1])[0].value)

    def check(self, count: int) -> None:
        assert self.visible() == list(range(count))
        body = self.ledger_body()
        assert (body["batch_id"], body["ends"]) == (count - 1, {"source": {"0": count * SIZE}})
        committed = self.broker.committed_offsets("group")[SOURCE]
        assert committed == CommittedOffset(count * SIZE)

    def of_kind(self, kind: type) -> list:
        return [event for event in self.emitted if isinstance(event, kind)]


TARGETS = Targets.of({"a": (3, 1_000), "b": (1, 1_000)})
HEADER_BYTES = 61


@cache
def make_batch(number: int, records: int) -> EncodedBatch:
    values = pa.array([b"%d.%d" % (number, each) for each in range(records)], pa.binary())
    return encode(Columns(key=values, value=values), Codec.NONE)


class WriterRun:
    """One attempt: a writer, what was added to it, and what the log then says."""

    def __init__(
        self,
        *script: object,
        eager=(),
        pauses_max: int = 500,
        profile=TransactionProfile.TV2,
        max_request_bytes=1_000,
        adds=(),
    ):
        self.broker = SimulatedBroker({"a": 3, "b": 1}, profile)
        self.identity: Identity = self.broker.transactions.init("id", 60_000, NO_IDENTITY).identity
        self.client = SimulatedWire(
            self.broker, iter(script), iter(eager), profile, max_request_bytes, iter(adds)
        )
        self.writer = Writer(
            self.client,
            "id",
            self.identity,
            TARGETS,
            Patience(pauses_max),
            CrashPlan(),
            backoff=NoPause,
        )
        self.added: dict[TopicPartition, list[EncodedBatch]] = defaultdict(list)

    def add(self, target: int, records: int = 1) -> None:
        at = TARGETS.partitions[target]
        batch = make_batch(len(self.added[at]), records)
        self.added[at].append(batch)
        self.writer.add(target, batch.blob, batch.records, batch.digest)
        kept = sum(len(item.blob) for lane in self.writer._queues.values() for item in lane.items)
        assert self.writer._buffered == kept <= writer_module.BUFFER_BYTES_MAX

    def begin(self, *targets: int) -> None:
        """The first record batch of a partition goes alone; the rest of a test is about later."""
        script, self.client.script = self.client.script, iter(())
        for target in targets:
            self.add(target)
        self.writer.finish()
        self.client.script = script
        self.client.sent.clear()
        self.client.unanswered_most = 0

    def check_log(self) -> int:
        """What was appended is a prefix of what was added, in order, once. Returns its length."""
        found = 0
        for at, log in self.broker.logs.items():
            sequence = 0
            for entry, batch in zip(log.read_uncommitted(), self.added[at], strict=False):
                header = parse(entry.blob)
                assert header == (self.identity, sequence, batch.records)
                assert entry.blob[HEADER_BYTES:] == batch.blob[HEADER_BYTES:]
                sequence += batch.records
            assert len(log.read_uncommitted()) <= len(self.added[at])
            found += len(log.read_uncommitted())
        return found

    def check_receipts(self, receipts) -> None:
        assert self.check_log() == sum(map(len, self.added.values()))
        assert {TARGETS.partitions[target] for target in receipts} == {
            at for at, batches in self.added.items() if batches
        }
        for target, receipt in receipts.items():
            at = TARGETS.partitions[target]
            entries, digest = self.broker.logs[at].read_uncommitted(), 0
            for batch in self.added[at]:
                digest = google_crc32c.extend(digest, batch.digest.to_bytes(4, "big"))
            assert (receipt.topic, receipt.partition) == at
            assert receipt.records == sum(entry.records for entry in entries)
            assert receipt.bytes == sum(len(entry.blob) for entry in entries)
            assert receipt.offset_first == entries[0].offset
            assert receipt.offset_last == entries[-1].offset + entries[-1].records - 1
            assert receipt.digest == digest
            ends = list(accumulate(entry.records for entry in entries))
            assert receipt.batches == tuple(
                AppendedBatch(
                    end - entry.records,
                    end - 1,
                    entry.offset,
                    entry.offset + entry.records - 1,
                    last_ms(entry.blob),
                )
                for entry, end in list(zip(entries, ends, strict=True))[-5:]
            )
