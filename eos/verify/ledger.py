"""The ledger's records, and those among them that another producer wrote.

The ledger is the pipeline's own topic. `eos verify` reads it like any other topic, without a fence,
so a running pipeline is not disturbed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eos.deadline import Backoff, Deadline
from eos.errors import PromiseBrokenError
from eos.finding import Finding, FindingKind, Witness
from eos.kafka.api import Identity, TopicPartition
from eos.kafka.record_reader import StoredRecord
from eos.ledger.decoder import decoded
from eos.ledger.ledger import Ledger
from eos.ledger.record import LedgerRecord
from eos.verify.history import CommittedAttempt, attempt_of
from eos.verify.log_reader import Reader, short_deadline

RECORDS_MAX = 500  # in one page, because the records of a page must fit into memory
_SETTLE_MS = 30_000


@dataclass(frozen=True, slots=True)
class Page:
    """Ledger records from offset `start` to `end` (exclusive), and findings on foreign ones."""

    records: Sequence[LedgerRecord]
    committed: Sequence[CommittedAttempt]
    findings: Sequence[Finding]
    start: int
    end: int


class LedgerLog:
    def __init__(self, reader: Reader, pipeline: str, topic: str) -> None:
        self.at = TopicPartition(topic, 0)
        self._reader = reader
        self._pipeline = pipeline
        self._decided_until = 0  # offset up to which `eos recover` handled foreign records
        self._is_undecided = False  # the last foreign record was not handled by `eos recover`

    def settled_end(self) -> int:
        """Wait until all records that exist now are committed or aborted. Return the last stable
        offset.

        After a timeout, return it anyway: the open transaction is reported separately.
        """
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
        """Return the page of the records with start <= offset < end, at most `RECORDS_MAX`.

        The next page starts at the returned page's `end`.
        """
        stored = self._reader.client.read_records(
            self.at, start, end, committed=True, deadline=short_deadline(), records_max=RECORDS_MAX
        )
        after = stored[-1].offset + 1 if len(stored) == RECORDS_MAX else end
        return self._page(stored, start, after)

    def _page(self, stored: Sequence[StoredRecord], start: int, end: int) -> Page:
        records: list[LedgerRecord] = []
        findings: list[Finding] = []
        for each in stored:
            try:
                records.append(decoded(self._pipeline, self.at.topic, each))
            except PromiseBrokenError as error:
                if error.code == "ledger_newer":
                    raise
                findings.append(self._foreign_record(each, error.message))
        return Page(records, [attempt_of(each) for each in records], findings, start, end)

    def _foreign_record(self, stored: StoredRecord, reason: str) -> Finding:
        """Return the finding for a ledger record that another producer wrote.

        It is a disagreement (WRONG), unless an operator accepted the record with `eos recover`."""
        if stored.offset >= self._decided_until and not self._is_undecided:
            own = Ledger(self._reader.client, self.at.topic, self._pipeline, {}, skips_foreign=True)
            self._decided_until = own.decided_until(stored.offset, short_deadline())
            self._is_undecided = not self._decided_until
        is_decided = stored.offset < self._decided_until
        identity = Identity(stored.producer_id, stored.epoch)
        return Finding(
            "forged",
            reason + ("; an operator accepted it with `eos recover`" if is_decided else ""),
            self.at,
            stored.offset,
            Witness(stored.offset, "unknown", -1, None, identity),
            FindingKind.FOREIGN if is_decided else FindingKind.WRONG,
        )
