"""State of a pipeline's producers at leaders and coordinator, replayed from the ledger.

This replays the ledger through the broker's rules (`eos.producers`), one record at a time. Each
acknowledged record batch gets the verdict that the leader must have reached from the state before
it. The leader did append it, so any other verdict than `appended` is a finding. Pure.

The ledger lists aborted attempts without their receipts. Such an attempt may have written to any
partition, so all entries with an epoch that is not newer are unknown. An entry is known again once
a later epoch writes to its partition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from eos.finding import Finding, Witness
from eos.kafka.api import Identity, TopicPartition
from eos.kafka.records.parser import Marker
from eos.kafka.transaction_states import TransactionPhase
from eos.ledger.receipt import BATCHES_MAX, AppendedBatch
from eos.ledger.record import LedgerRecord
from eos.producers.broker import BrokerVerdict, acknowledged, broker_verdict
from eos.producers.state import IDLE_MS, SEQUENCES, ProducerState, SequenceEvent, is_expired, marked

TRANSACTIONAL_ID_IDLE_MS = 7 * 86_400_000  # Kafka's transactional.id.expiration.ms
FINDINGS_MAX = 20
PRODUCERS_MAX = 64  # producer ids of one pipeline; one lasts for 32,766 attempts
# A leader looks for expired producers from time to time. An entry is kept until that is certain.
_KEPT_IDLE = 2


class EntryKey(NamedTuple):
    """One producer id on one partition. An entry is what the leader knows of it."""

    partition: TopicPartition
    producer_id: int


class Entry(NamedTuple):
    """The state of a producer id on a partition.

    - `state`: as the leader has it. Under TV2 a marker opens the next epoch, so no range is left.
    - `batches`: the last record batches that were written, in the epoch `batches_epoch`.
    - `coordinator_epoch`: from the last marker; -1 if unknown.
    - `ledger_offset`: the record that changed it last.
    - `verdict`: of its record batches: `appended`, or the first one that differed.
    """

    state: ProducerState
    batches: tuple[AppendedBatch, ...]
    batches_epoch: int
    coordinator_epoch: int
    ledger_offset: int
    verdict: BrokerVerdict

    @property
    def sequence_last(self) -> int:
        """Return the last sequence that the leader has; -1 without a record batch."""
        return self.state.ranges[-1].last if self.state.ranges else -1


class CoordinatorEntry(NamedTuple):
    """The coordinator's state of the transactional id, as of a ledger record."""

    identity: Identity
    phase: TransactionPhase
    at_ms: int
    coordinator_epoch: int
    ledger_offset: int

    def phase_at(self, now_ms: int, idle_ms: int) -> TransactionPhase:
        """Return the phase at a time: a transactional id expires after it was idle for long."""
        return TransactionPhase.DEAD if now_ms - self.at_ms >= idle_ms else self.phase


@dataclass(slots=True)
class ProducerStates:
    """All entries of one pipeline, as of a ledger record.

    - `aborted`: by producer id, the highest epoch that an aborted transaction may have used.
    - `ledger_from`: the first ledger offset that was read. Earlier records were deleted.
    - `findings`: the newest differences; `findings_count` counts all.
    """

    ledger: TopicPartition
    entries: dict[EntryKey, Entry] = field(default_factory=dict)
    aborted: dict[int, int] = field(default_factory=dict)
    coordinator: CoordinatorEntry | None = None
    ledger_from: int = 0
    findings: deque[Finding] = field(default_factory=lambda: deque(maxlen=FINDINGS_MAX))
    findings_count: int = 0
    producer_idle_ms: int = IDLE_MS
    transactional_id_idle_ms: int = TRANSACTIONAL_ID_IDLE_MS

    def copy(self) -> ProducerStates:
        return ProducerStates(
            self.ledger,
            dict(self.entries),
            dict(self.aborted),
            self.coordinator,
            self.ledger_from,
            deque(self.findings, maxlen=FINDINGS_MAX),
            self.findings_count,
            self.producer_idle_ms,
            self.transactional_id_idle_ms,
        )

    def is_known(self, key: EntryKey) -> bool:
        """Return whether no aborted transaction may have changed the leader's entry since."""
        return self.entries[key].state.epoch > self.aborted.get(key.producer_id, -1)

    def apply(self, record: LedgerRecord, marker: Marker | None) -> list[Finding]:
        """Apply the record batches of a committed transaction to the producer states.

        `marker` is the transaction's commit marker in the ledger's partition. The broker has
        acknowledged all of these record batches. Return a finding for each one that would not be
        accepted by these states.
        """
        found = list(self._fenced(record, marker))
        self._note_aborted(record)
        written = list(_written(record, self.ledger))
        for partition, of_partition in written:
            found += self._append(record, partition, of_partition)
        self._mark(record, marker, [partition for partition, _ in written])
        self.findings.extend(found)
        self.findings_count += len(found)
        return found

    def expire(self) -> None:
        """Drop entries that no leader keeps any more, as of the newest ledger record."""
        if self.coordinator is None:
            return
        now_ms, idle_ms = self.coordinator.at_ms, _KEPT_IDLE * self.producer_idle_ms
        for key in [
            k for k, each in self.entries.items() if is_expired(each.state, now_ms, idle_ms)
        ]:
            del self.entries[key]
        newest: dict[int, int] = {}
        for key, entry in self.entries.items():
            known = newest.get(key.producer_id, -1)
            newest[key.producer_id] = max(known, entry.ledger_offset)
        dropped = set(sorted(newest, key=lambda each: newest[each])[:-PRODUCERS_MAX])
        for key in [k for k in self.entries if k.producer_id in dropped]:
            del self.entries[key]
        current = self.coordinator.identity.producer_id
        for producer_id in [p for p in self.aborted if p not in newest or p in dropped]:
            if producer_id != current:
                del self.aborted[producer_id]

    def _fenced(self, record: LedgerRecord, marker: Marker | None) -> Iterator[Finding]:
        """Yield a finding if the coordinator must have rejected the transaction."""
        own = self.entries.get(EntryKey(self.ledger, record.identity.producer_id))
        newest = self.coordinator
        if own is None or newest is None:
            return
        is_replaced = newest.identity.producer_id != record.identity.producer_id
        if is_replaced or record.identity.epoch < own.state.epoch:
            yield _finding(
                record,
                f"the transaction of producer {record.identity} committed, but is "
                f"{BrokerVerdict.FENCED.value} by producer {newest.identity}",
            )
        if marker is not None and marker.coordinator_epoch < own.coordinator_epoch:
            yield _finding(
                record,
                f"its marker has coordinator epoch {marker.coordinator_epoch}, but is "
                f"{BrokerVerdict.FENCED.value} by coordinator epoch {own.coordinator_epoch}",
            )

    def _note_aborted(self, record: LedgerRecord) -> None:
        """Note epochs that aborted attempts used, or may have used without a record of them.

        A marker of TV2 opens the next epoch. A startup gets the epoch after it, and if it also
        ended an open transaction, a later one. Under TV1 each attempt gets the next epoch.
        """
        for each in record.failed:
            self._raise_aborted(int(each["producer_id"]), int(each["epoch"]))
        producer_id, epoch = record.identity
        own = self.entries.get(EntryKey(self.ledger, producer_id))
        if own is None:
            gap = epoch
        else:
            is_tv2 = own.batches_epoch < own.state.epoch
            is_init = record.kind in {"start", "recovery"} or not is_tv2
            gap = epoch - own.state.epoch - is_init
        if gap > 0:
            self._raise_aborted(producer_id, epoch - 1)

    def _raise_aborted(self, producer_id: int, epoch: int) -> None:
        self.aborted[producer_id] = max(epoch, self.aborted.get(producer_id, -1))

    def _append(
        self, record: LedgerRecord, partition: TopicPartition, written: _Written
    ) -> Iterator[Finding]:
        """Replay the record batches of one partition."""
        key = EntryKey(partition, record.identity.producer_id)
        before = self.entries.get(key)
        state = before.state if before is not None else None
        if state is not None and is_expired(state, record.at_ms, self.producer_idle_ms):
            state = None
        differing: BrokerVerdict | None = None
        for event in written.events(record.identity.epoch):
            verdict = broker_verdict(state, event)
            if verdict is not BrokerVerdict.APPENDED:
                differing = differing or verdict
                yield _finding(
                    record,
                    f"{partition}: sequences {event.first} to {event.last} were acknowledged, but "
                    f"the verdict is {verdict.value} after {_text(state)}",
                )
            state = acknowledged(state, event, verdict)
        for problem in written.problems():
            yield _finding(record, f"{partition}: {problem}", "receipt")
        if state is not None:
            self.entries[key] = Entry(
                state,
                written.batches,
                record.identity.epoch,
                before.coordinator_epoch if before is not None else -1,
                record.offset,
                differing or BrokerVerdict.APPENDED,
            )

    def _mark(
        self, record: LedgerRecord, marker: Marker | None, partitions: Sequence[TopicPartition]
    ) -> None:
        """Replay the marker on each partition of the transaction."""
        producer_id, epoch = record.identity
        if marker is None:  # deleted with the log: its epoch is unknown
            self._raise_aborted(producer_id, epoch)
            marker = Marker(-1, record.identity, True, -1, record.at_ms)
        for partition in partitions:
            key = EntryKey(partition, producer_id)
            entry = self.entries.get(key)
            if entry is not None:
                self.entries[key] = entry._replace(
                    state=marked(entry.state, marker.identity.epoch, marker.at_ms),
                    coordinator_epoch=max(marker.coordinator_epoch, entry.coordinator_epoch),
                )
        self.coordinator = CoordinatorEntry(
            marker.identity,
            TransactionPhase.COMPLETE_COMMIT,
            max(marker.at_ms, record.at_ms),
            marker.coordinator_epoch,
            record.offset,
        )


@dataclass(frozen=True, slots=True)
class _Written:
    """The record batches of one partition that a receipt reports."""

    receipt: Mapping[str, Any]
    batches: tuple[AppendedBatch, ...]

    def events(self, epoch: int) -> Iterator[SequenceEvent]:
        """Yield the record batches. Those before the last five are one event."""
        first = self.batches[0].sequence_first
        if first and len(self.batches) == BATCHES_MAX:
            yield SequenceEvent(epoch, 0, first - 1, self.batches[0].at_ms)
        for each in self.batches:
            yield SequenceEvent(epoch, each.sequence_first, each.sequence_last, each.at_ms)

    def problems(self) -> Iterator[str]:
        """Yield what contradicts itself in the receipt. Older releases have only the sums."""
        if "batches" not in self.receipt:
            return
        first, end = self.batches[0], self.receipt["offset_first"]
        if first.sequence_first == 0 and first.offset_first != end:
            yield f"its first record batch is at offset {first.offset_first}, not {end}"
        for each in self.batches:
            count = (each.sequence_last - each.sequence_first) % SEQUENCES + 1
            if each.offset_last - each.offset_first + 1 != count or each.offset_first < end:
                yield (
                    f"a record batch has sequences {each.sequence_first} to {each.sequence_last} "
                    f"at offsets {each.offset_first} to {each.offset_last}, after offset {end - 1}"
                )
            end = each.offset_last + 1
        last = self.batches[-1]
        receipt = self.receipt["sequence_last"], self.receipt["offset_last"]
        if (last.sequence_last, last.offset_last) != receipt:
            yield (
                f"the last record batch ends at sequence {last.sequence_last} and offset "
                f"{last.offset_last}, but the receipt at sequence {receipt[0]} and offset "
                f"{receipt[1]}"
            )


def _written(
    record: LedgerRecord, ledger: TopicPartition
) -> Iterator[tuple[TopicPartition, _Written]]:
    """Yield what the transaction wrote: its receipts, and the ledger record itself."""
    attempt = record.attempt or {}
    for each in attempt.get("receipts", ()):
        if each["records"] > 0:
            partition = TopicPartition(each["topic"], each["partition"])
            yield partition, _Written(each, _batches(each, record.at_ms))
    own = AppendedBatch(0, 0, record.offset, record.offset, record.at_ms)
    receipt = {"sequence_last": 0, "offset_first": record.offset, "offset_last": record.offset}
    yield ledger, _Written(receipt, (own,))


def _batches(receipt: Mapping[str, Any], at_ms: int) -> tuple[AppendedBatch, ...]:
    """Return the record batches. The receipt of an older release is taken as one."""
    if receipt.get("batches"):
        return tuple(AppendedBatch(*each) for each in receipt["batches"])
    offsets = receipt["offset_first"], receipt["offset_last"]
    last = receipt["sequence_last"] % SEQUENCES
    return (AppendedBatch(0, last, *offsets, at_ms),)


def _text(state: ProducerState | None) -> str:
    if state is None:
        return "no state of this producer"
    last = f"sequence {state.ranges[-1].last}" if state.ranges else "no sequence"
    return f"epoch {state.epoch}, {last}"


def _finding(record: LedgerRecord, message: str, case: str = "verdict") -> Finding:
    number = (record.attempt or {}).get("number")
    batch_id = record.position.batch_id
    witness = Witness(record.offset, record.kind, batch_id, number, record.identity)
    return Finding(case, message, witness=witness)
