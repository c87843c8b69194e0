"""Records of a source partition at the offsets that the pipeline's transactions read.

Each offset counts as a record, a record of an aborted transaction, a control record, or removed.
"""

from __future__ import annotations

from dataclasses import dataclass

from eos.finding import Finding
from eos.kafka.api import TopicPartition
from eos.kafka.records.batch_headers import BatchHeader, Old
from eos.verify.findings import Findings
from eos.verify.target import LogBounds, Retention


@dataclass(slots=True)
class SourcePartition:
    """Counts of the offsets `start` to `end` (exclusive), which the pipeline's transactions read.

    Call `see` with each record batch in log order."""

    at: TopicPartition
    start: int
    end: int
    retention: Retention
    findings: Findings
    records: int = 0
    aborted: int = 0
    control: int = 0
    removed: int = 0
    position: int = -1

    def begin(self, bounds: LogBounds) -> int:
        """Return the offset to read from. Report offsets that the log no longer has."""
        self.position = self.start
        self.begins_at(bounds.start)
        if bounds.end < self.end:
            self.findings.add(
                Finding(
                    "source_truncated",
                    f"the ledger covers source {self.at} up to offset {self.end - 1}, but it "
                    f"ends at {bounds.end}: the topic was recreated, or lost acknowledged records",
                    self.at,
                    bounds.end,
                )
            )
        return self.position

    def begins_at(self, offset: int) -> None:
        """Skip the offsets below the log's start, which may move while the partition is read."""
        end = min(offset, self.end)
        if end > self.position:
            self.findings.add_unreachable("source_retention", self.at, self.position, end - 1)
            self.removed += end - self.position
            self.position = end

    def see(self, header: BatchHeader | Old) -> None:
        if isinstance(header, Old):
            self._count(self.position, header.last_offset, None, "records")
            return
        batch = header.batch
        kind = "control" if batch.is_control else "records" if header.is_visible else "aborted"
        is_complete = batch.records == batch.last_offset - batch.offset + 1
        self._count(batch.offset, batch.last_offset, None if is_complete else batch.records, kind)

    def finish(self, until: int) -> None:
        """Report the offsets after the last record batch, up to `until`, as missing."""
        if self.position < min(self.end, until):
            self._hole(self.position, min(self.end, until) - 1)

    def _count(self, first: int, last: int, records: int | None, kind: str) -> None:
        if last < self.position or first >= self.end:
            return
        if first > self.position:
            self._hole(self.position, first - 1)
        low, high = max(first, self.position), min(last, self.end - 1)
        room = high - low + 1
        count = room if records is None else min(records, room)
        setattr(self, kind, getattr(self, kind) + count)
        if count < room:
            self._hole(low, high, room - count)
        self.position = high + 1

    def _hole(self, first: int, last: int, count: int = 0) -> None:
        count = count or last - first + 1
        self.removed += count
        if self.retention.is_compacted:
            self.findings.add_unreachable("source_compaction", self.at, first, last)
            return
        self.findings.add(
            Finding(
                "source_hole",
                f"source {self.at}: {count} of the offsets {first} to {last} are missing, although "
                "the topic is not compacted: the source lost records that were read",
                self.at,
                first,
            )
        )
