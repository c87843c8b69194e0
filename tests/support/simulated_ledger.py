"""The part of `Wire` that a ledger uses, over the simulated broker. Nothing here can fail."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

from kafka.record import MemoryRecords

from eos.deadline import Deadline
from eos.kafka.api import TopicPartition
from eos.kafka.records.batch_headers import Batch, batches
from eos.kafka.records.parser import StoredRecord, stored_records
from support.simulated_broker import Entry, SimulatedBroker


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
    ) -> bool:
        assert partitions == 1
        assert self.config.keys() <= config.keys()
        self.created.append(name)
        return True
