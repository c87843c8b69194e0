"""One attempt of one writer on the simulated cluster, and what its log must hold."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import google_crc32c
import pyarrow as pa

from eos.faults import CrashPlan
from eos.kafka.api import NO_IDENTITY, Identity, TopicPartition, TransactionProfile
from eos.kafka.compression_type import Codec
from eos.kafka.records.record_batch import Columns, EncodedBatch, encode
from eos.kafka.target_partitions import Targets
from eos.transaction import writer as writer_module
from eos.transaction.writer import Writer
from support.simulated_broker import SimulatedBroker
from support.simulated_broker.log import parse
from support.simulated_wire import NoPause, Patience, SimulatedWire

TARGETS = Targets.of({"a": (3, 1_000), "b": (1, 1_000)})
HEADER_BYTES = 61


@cache
def make(number: int, records: int) -> EncodedBatch:
    values = pa.array([b"%d.%d" % (number, each) for each in range(records)], pa.binary())
    return encode(Columns(key=values, value=values), Codec.NONE)


class Run:
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
        self.wire = SimulatedWire(
            self.broker, iter(script), iter(eager), profile, max_request_bytes, iter(adds)
        )
        self.writer = Writer(
            self.wire,
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
        batch = make(len(self.added[at]), records)
        self.added[at].append(batch)
        self.writer.add(target, batch.blob, batch.records, batch.digest)
        kept = sum(len(item.blob) for lane in self.writer._lanes.values() for item in lane.items)
        assert self.writer._buffered == kept <= writer_module.BUFFER_BYTES_MAX

    def begin(self, *targets: int) -> None:
        """The first record batch of a partition goes alone; the rest of a test is about later."""
        script, self.wire.script = self.wire.script, iter(())
        for target in targets:
            self.add(target)
        self.writer.finish()
        self.wire.script = script
        self.wire.sent.clear()
        self.wire.unanswered_most = 0

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
