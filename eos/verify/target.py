"""Does a target partition hold exactly the records that the pipeline's committed attempts wrote?

The input is the partition's record batches in log order, and the receipts in the ledger records of
some attempts at a time. A receipt has the first and last offset, the count and the digest of the
records that Kafka acknowledged. A record batch has its producer id, epoch and sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import google_crc32c

from eos.finding import Finding, FindingKind, Witness
from eos.kafka.api import Identity, TopicPartition
from eos.kafka.records.batch_headers import Batch, BatchHeader, Markers, Old
from eos.ledger.receipt import Receipt
from eos.verify.chain import Owners
from eos.verify.findings import Findings

_MISSING_MAX = 100  # limit of the holes to list per attempt


class LogBounds(NamedTuple):
    """A partition's start, last stable offset and end."""

    start: int
    stable: int
    end: int


class Retention(NamedTuple):
    """How a topic may lose records: by compaction, or by retention by time or size."""

    is_compacted: bool = False
    can_expire: bool = True


class Hole(NamedTuple):
    """Missing sequences of an attempt in a partition, and the offset where they were expected."""

    first: int
    last: int
    offset: int


@dataclass(slots=True)
class AttemptPart:
    """The records of one attempt that were found so far in one target partition."""

    witness: Witness
    receipt: Receipt
    next_sequence: int = 0
    records: int = 0
    digest: int = 0
    offset_first: int = -1
    offset_last: int = -1
    holes: list[Hole] = field(default_factory=list)
    hidden_at: int = -1
    is_reported: bool = False  # a finding was reported, so the digest is not compared

    def covers(self, offset: int) -> bool:
        return self.receipt.offset_first <= offset <= self.receipt.offset_last

    def add(self, batch: Batch, digest: int) -> str:
        """Add a record batch. Return "" if its sequences are new, else "order" or "duplicate"."""
        sequence, room = batch.sequence, batch.last_offset - batch.offset + 1
        problem = ""
        if sequence > self.next_sequence:
            at = max(self.offset_last + 1, self.receipt.offset_first)
            self._miss(Hole(self.next_sequence, sequence - 1, at))
        elif sequence < self.next_sequence:
            problem = self._fill_hole(sequence, sequence + room - 1)
            if problem == "duplicate":
                return problem
        if batch.records < room:
            self._miss(Hole(sequence, sequence + room - 1, batch.offset))
        self.next_sequence = max(self.next_sequence, sequence + room)
        self.records += batch.records
        self.digest = google_crc32c.extend(self.digest, digest.to_bytes(4, "big"))
        if self.offset_first < 0:
            self.offset_first = batch.offset
        self.offset_last = batch.last_offset
        return problem

    def _miss(self, hole: Hole) -> None:
        if len(self.holes) < _MISSING_MAX:
            self.holes.append(hole)

    def _fill_hole(self, first: int, last: int) -> str:
        """Return "order" (out of order) if a known hole has all these sequences, and fill it.
        Otherwise return "duplicate"."""
        for number, hole in enumerate(self.holes):
            if hole.first <= first and last <= hole.last:
                rest = (hole.first, first - 1), (last + 1, hole.last)
                left = [Hole(low, high, hole.offset) for low, high in rest if low <= high]
                self.holes[number : number + 1] = left
                return "order"
        return "duplicate"


class Target:
    """Check of one target partition.

    `position` is the next offset to read. `has_begun` is true once the pipeline's records were
    found. Foreign records after that are reported; earlier ones are only counted.
    """

    def __init__(
        self,
        at: TopicPartition,
        owners: Owners,
        findings: Findings,
        position: int = 0,
        *,
        has_begun: bool = False,
    ) -> None:
        self.at = at
        self.position = position
        self.receipts = 0
        self.records = 0
        self.foreign_before = 0
        self.has_begun = has_begun
        self.newer: set[Identity] = set()  # producers of later attempts than the verified ones
        self._owners = owners
        self._findings = findings
        self._markers = Markers()
        self._parts: dict[Identity, AttemptPart] = {}
        self._before: list[Finding] = []

    @property
    def name(self) -> str:
        return str(self.at)

    def expect(self, receipts: Sequence[tuple[Witness, Receipt]]) -> None:
        for attempt, receipt in receipts:
            self._parts[attempt.identity] = AttemptPart(attempt, receipt)

    def wants(self, header: BatchHeader) -> bool:
        """Return whether an expected attempt wrote the record batch, so its digest is needed."""
        batch = header.batch
        has_records = batch.records > 0  # compaction may leave an empty batch
        is_expected = batch.identity in self._parts
        return header.is_visible and batch.is_sound and has_records and is_expected

    def see(self, header: BatchHeader | Old, digest: int | None) -> None:
        """Check the next record batch of the log.

        `digest` is None unless `wants` returned true and the records could be decoded.
        """
        if isinstance(header, Old):
            self._report_foreign(header.last_offset, 1, "without a producer id")
            self.position = header.last_offset + 1
            return
        batch = header.batch
        self.position = batch.last_offset + 1
        marker = self._markers.see(header)
        if marker is not None:
            self._report_marker(*marker)
        if batch.is_control:
            return
        part = self._parts.get(batch.identity)
        if not batch.is_sound or (self.wants(header) and digest is None):
            self._report_damaged(batch, part)
        elif part is not None and batch.records:
            self._see_own(header, part, digest or 0)
        elif header.is_visible and batch.records:
            self._see_other(batch)

    def settle(self, bounds: LogBounds, retention: Retention) -> None:
        """Report what is missing or wrong in the expected attempts. Call this after all their
        records were read."""
        for part in self._parts.values():
            self.receipts += 1
            self.records += part.receipt.records
            self._settle(part, bounds, retention)
        self.has_begun = self.has_begun or bool(self._parts)
        self._parts.clear()

    def finish(self) -> None:
        """Count the foreign records before the pipeline's first record.

        If the pipeline never wrote to this partition, report them all instead.
        """
        if self.has_begun:
            self.foreign_before = len(self._before)
            return
        self._findings.add_all(self._before)

    def _see_own(self, header: BatchHeader, part: AttemptPart, digest: int) -> None:
        batch = header.batch
        if not header.is_visible:
            if part.covers(batch.offset) and part.hidden_at < 0:
                part.hidden_at = batch.offset
            return
        problem = part.add(batch, digest) if part.covers(batch.offset) else "duplicate"
        if problem:
            part.is_reported = True
            last = batch.sequence + batch.records - 1
            text = {
                "order": f"sequences {batch.sequence} to {last} are after later ones",
                "duplicate": f"sequences {batch.sequence} to {last} exist a second time, or "
                f"outside the acknowledged offsets {part.receipt.offset_first} to "
                f"{part.receipt.offset_last}",
            }
            self._add(problem, part, batch.offset, text[problem])

    def _see_other(self, batch: Batch) -> None:
        if batch.identity in self.newer:
            return
        if not self._owners.is_ours(batch.identity.producer_id):
            self._report_foreign(batch.offset, batch.records, f"of producer {batch.identity}")
            return
        place = f"{self.name} offset {batch.offset}: {batch.records} records of producer "
        if self._owners.committed(batch.identity):
            message = f"{batch.identity} that no receipt of its transaction covers"
            case = "duplicate"
        elif self._owners.may_be_trimmed(batch.identity):
            self._findings.add_unreachable(
                "ledger_trimmed", self.at, batch.offset, batch.last_offset
            )
            return
        else:
            message = f"{batch.identity} are visible without a committed transaction"
            case = "visible"
        after = self._after(batch.offset)
        self._findings.add(Finding(case, place + message, self.at, batch.offset, after))

    def _after(self, offset: int) -> Witness | None:
        """Return the first expected attempt that has records at or after this offset."""
        later = [part for part in self._parts.values() if part.receipt.offset_last >= offset]
        return later[0].witness if later else None

    def _report_foreign(self, offset: int, records: int, producer: str) -> None:
        after = self._after(offset)
        message = (
            f"{self.name} offset {offset}: {records} records {producer} are not this pipeline's"
        )
        finding = Finding("foreign", message, self.at, offset, after, FindingKind.FOREIGN)
        first = min((part.receipt.offset_first for part in self._parts.values()), default=None)
        if self.has_begun or (first is not None and offset > first):
            self._findings.add(finding)
        elif len(self._before) < _MISSING_MAX:
            self._before.append(finding)

    def _report_damaged(self, batch: Batch, part: AttemptPart | None) -> None:
        """Report a damaged record batch.

        If its header is damaged, its identity can't be trusted. So the offset determines which
        attempt wrote it.
        """
        for each in self._parts.values():
            if each is part or each.covers(batch.offset):
                each.is_reported = True
                part = each
        end = f"{self.name} offsets {batch.offset} to {batch.last_offset}"
        message = f"{end}: the record batch was changed: its checksum is wrong"
        if batch.is_sound:
            message = f"{end}: the records of the batch can't be read"
        witness = part.witness if part else None
        self._findings.add(Finding("changed", message, self.at, batch.offset, witness))

    def _report_marker(self, offset: int, identity: Identity, marker: str) -> None:
        shown = "visible" if marker == "ABORT" else "hidden"
        message = f"{self.name} from offset {offset} on: records of producer {identity} are "
        message += f"{shown} to readers, but the marker in the log is {marker}"
        part = self._parts.get(identity)
        witness = part.witness if part else None
        self._findings.add(Finding(shown, message, self.at, offset, witness))

    def _settle(self, part: AttemptPart, bounds: LogBounds, retention: Retention) -> None:
        receipt = part.receipt
        first, last = receipt.offset_first, receipt.offset_last
        if bounds.start > first and bounds.start <= bounds.end and bounds.end > last:
            self._report_removed(part, bounds, retention)
        elif bounds.end <= last:
            text = f"the log ends at {bounds.end}, but offsets {first} to {last} were acknowledged"
            self._add("truncated", part, max(first, bounds.end), text)
        elif bounds.stable <= last:
            text = f"an open transaction hides records from offset {bounds.stable} on"
            self._add("hidden", part, max(first, bounds.stable), text)
        elif part.hidden_at >= 0:
            self._add("hidden", part, part.hidden_at, "its records were aborted in this log")
        elif part.records < receipt.records or part.holes:
            if not part.is_reported or not part.records:
                self._report_lost(part, retention)
        elif not part.is_reported:
            self._compare(part)

    def _report_removed(self, part: AttemptPart, bounds: LogBounds, retention: Retention) -> None:
        receipt = part.receipt
        end = min(receipt.offset_last, bounds.start - 1)
        if retention.can_expire:
            self._findings.add_unreachable(
                "retention", self.at, receipt.offset_first, end, receipt.records
            )
            return
        text = f"the log begins at {bounds.start}, although the topic keeps all records: a client "
        text += f"deleted offsets {receipt.offset_first} to {end}"
        self._add("truncated", part, receipt.offset_first, text)

    def _report_lost(self, part: AttemptPart, retention: Retention) -> None:
        receipt, holes = part.receipt, part.holes
        if retention.is_compacted:
            self._findings.add_unreachable(
                "compaction",
                self.at,
                receipt.offset_first,
                receipt.offset_last,
                receipt.records,
            )
            return
        offset = holes[0].offset if holes else max(part.offset_last + 1, receipt.offset_first)
        text = f"{part.records} of {receipt.records} records exist"
        self._add("lost", part, offset, text)

    def _compare(self, part: AttemptPart) -> None:
        receipt = part.receipt
        is_placed = (part.offset_first, part.offset_last) == (
            receipt.offset_first,
            receipt.offset_last,
        )
        if part.records != receipt.records or not is_placed:
            text = (
                f"{part.records} records at offsets {part.offset_first} to {part.offset_last}, but "
                f"{receipt.records} at {receipt.offset_first} to {receipt.offset_last} in the "
                "receipt"
            )
            self._add("receipt", part, receipt.offset_first, text)
        elif part.digest != receipt.digest:
            text = (
                f"the {receipt.records} records at offsets {receipt.offset_first} to "
                f"{receipt.offset_last} have another digest: a record or the order was changed"
            )
            self._add("changed", part, receipt.offset_first, text)

    def _add(self, case: str, part: AttemptPart, offset: int, text: str) -> None:
        message = f"{self.name} offset {offset}: {text}, of {part.witness}"
        self._findings.add(Finding(case, message, self.at, offset, part.witness))
