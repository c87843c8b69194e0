"""The ledger as a stranger reads it: its records, and whether each can be the pipeline's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eos.deadline import Backoff, Deadline
from eos.errors import PromiseBrokenError
from eos.transaction.batches import Old, Seen
from eos.transaction.ledger_record import Record, decoded
from eos.transaction.port import Identity, TopicPartition
from eos.transaction.wire import StoredRecord
from eos.verify.findings import Attempt, Finding, named
from eos.verify.history import Committed, claimed_identity, of_record
from eos.verify.reader import Reader, soon

RECORDS_MAX = 500  # at a time: with their receipts they must fit into memory
_SETTLE_MS = 30_000


@dataclass(frozen=True, slots=True)
class Page:
    """Committed records, and what else was met among them, from `start` to `end` (exclusive)."""

    records: Sequence[Record]
    committed: Sequence[Committed]
    findings: Sequence[Finding]
    start: int
    end: int


class LedgerLog:
    def __init__(self, reader: Reader, pipeline: str, topic: str) -> None:
        self.at = TopicPartition(topic, 0)
        self._reader = reader
        self._pipeline = pipeline

    def settled_end(self) -> int:
        """Where readers stop, once nothing that is written by now is undecided; after a while
        where they stop all the same: what holds them up is told by itself."""
        deadline, backoff = Deadline.after_ms(_SETTLE_MS), Backoff()
        written = self._reader.bounds([self.at])[self.at].end
        while True:
            stable = self._reader.bounds([self.at])[self.at].stable
            if stable >= written or deadline.has_passed:
                return stable
            backoff.sleep(deadline)

    def pages(self, start: int, end: int) -> Iterator[Page]:
        while start < end:
            page = self.page(start, end)
            yield page
            start = page.end

    def page(self, start: int, end: int) -> Page:
        """The first records of this stretch."""
        stored = self._reader.wire.read_records(
            self.at, start, end, committed=True, deadline=soon(), records_max=RECORDS_MAX
        )
        after = stored[-1].offset + 1 if len(stored) == RECORDS_MAX else end
        return self._page(stored, start, after)

    def _page(self, stored: Sequence[StoredRecord], start: int, end: int) -> Page:
        strange = self._strange(start, end)
        records: list[Record] = []
        committed: list[Committed] = []
        findings: list[Finding] = []
        for each in stored:
            why = strange.get(each.offset, "")
            try:
                record = decoded(self._pipeline, self.at.topic, each)
                made = of_record(record)
                why = why or _contradiction(record)
            except (PromiseBrokenError, ValueError, KeyError, TypeError, AttributeError) as error:
                why = why or (
                    error.message if isinstance(error, PromiseBrokenError) else str(error)
                )
                told = Attempt(each.offset, "unknown", -1, None, _identity(each))
                findings.append(self._forged(told, why))
                continue
            if why:
                findings.append(self._forged(made.told, why))
                continue
            records.append(record)
            committed.append(made)
        return Page(records, committed, findings, start, end)

    def _strange(self, start: int, end: int) -> dict[int, str]:
        """What the pipeline never writes: it sends one record, alone, in a transaction."""
        found: dict[int, str] = {}
        for shown in self._reader.scan(self.at, start, end):
            for seen in shown:
                if isinstance(seen, Old):
                    found[seen.last_offset] = "it has the format of before Kafka 0.11"
                elif why := _odd(seen):
                    batch = seen.batch
                    for offset in range(batch.offset, min(batch.last_offset + 1, end)):
                        found[offset] = why
        return found

    def _forged(self, told: Attempt, why: str) -> Finding:
        message = (
            f"{self.at.topic}-0 offset {told.ledger_offset}: this record was not written by the "
            f"pipeline: {why}"
        )
        return Finding("forged", message, self.at, told.ledger_offset, told)


def _odd(seen: Seen) -> str:
    batch = seen.batch
    if batch.is_control:
        return ""
    if not batch.is_sound:
        return "its checksum is wrong"
    if not batch.is_transactional:
        return "it is not part of a transaction"
    if batch.sequence != 0 or batch.last_offset != batch.offset:
        return f"it is not alone in its transaction (sequence {batch.sequence})"
    return ""


def _contradiction(record: Record) -> str:
    claimed = claimed_identity(record)
    if claimed is None or claimed == record.identity:
        return ""
    return f"it tells of {named(claimed)}, but {named(record.identity)} wrote it"


def _identity(stored: StoredRecord) -> Identity:
    return Identity(stored.producer_id, stored.epoch)
