"""Did the pipeline write each record exactly once, as seen from outside (`eos verify`)?

A verification has these steps:

1. Read the ledger in pages. Compare each page with the audit table, and the target records of its
   attempts with their receipts.
2. Read group offsets, checkpoint, coordinator and open transactions. Then read the ledger's newer
   records.
3. Read the target records after those of the last verified attempt.
4. Read the source, and prove dropped records.
5. Compare the values of step 2 with the ledger.

Memory holds one page of attempts with receipts, two fetch responses, and a few numbers for each
partition. A verification writes nothing to Kafka and may run while the pipeline runs. The next
verification checks the attempts that commit meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timezone

from eos.deadline import Backoff, Deadline
from eos.dedup.state_versions import hash_of_rules
from eos.errors import UsageError
from eos.finding import Finding, FindingKind, Witness
from eos.inspect.cluster_view import ClusterView
from eos.kafka.api import TopicPartition
from eos.ledger.receipt import Receipt
from eos.ledger.record import LedgerRecord
from eos.verify import position_copies
from eos.verify.audit_table import LedgerRows
from eos.verify.chain import CommitChain
from eos.verify.dead_letters import DeadLetterReader
from eos.verify.dropped_records import DropCheck
from eos.verify.findings import Findings
from eos.verify.history import CommittedAttempt
from eos.verify.ledger import LedgerLog, Page
from eos.verify.log_reader import Reader
from eos.verify.progress import Point
from eos.verify.source_logs import SourceLogs
from eos.verify.table_proofs import TableProofs
from eos.verify.target import LogBounds, Target
from eos.verify.verification import Progress, Subject, VerificationResult

# Enough time for a run to update its audit table (1 s), or a broker to write a transaction marker.
_SETTLE_MS = 20_000


class Verification:
    def __init__(
        self,
        subject: Subject,
        reader: Reader,
        ledger_id: str,
        point: Point | None,
        progress: Progress,
        cluster: ClusterView,
        sources: Reader,
    ) -> None:
        self._subject, self._reader, self._progress = subject, reader, progress
        self._cluster, self._ledger_id = cluster, ledger_id
        self._findings = Findings()
        self._chain = CommitChain()
        names, dedup = subject.names, subject.dedup
        self._sources = SourceLogs(sources, self._findings, progress, dedup)
        self._letters = DeadLetterReader(reader, names.pipeline, subject.dead_letters)
        self._dropped = DropCheck(
            self._findings,
            self._sources.stamps if dedup is not None else None,
            "" if dedup is None else hash_of_rules(dedup.reading, dedup.policy),
            is_spread=dedup is not None and not dedup.policy.rules.is_ordered,
            letters=self._letters.read,
            each=subject.names_dropped,
        )
        self._tables = TableProofs(subject.tables, self._findings)
        self._ledger = LedgerLog(reader, names.pipeline, names.ledger)
        self._rows: LedgerRows | None = None
        if subject.table is not None:
            self._rows = LedgerRows(subject.table, names.pipeline, names.ledger, ledger_id)
        self._targets: dict[TopicPartition, Target] = {}
        self._topics: set[str] = set()
        self._stuck: set[TopicPartition] = set()  # waiting for their open transaction was futile
        self._is_table_same = True
        self._newest: LedgerRecord | None = None  # that was verified
        self._point = point
        self._first = 0

    def run(self) -> VerificationResult:
        at = self._ledger.at
        log_start = self._reader.bounds([at])[at].start
        end = self._ledger.settled_end()
        if self._point is not None:
            self._resume(self._point, log_start)
        self._tables.begin(self._point)
        self._know_topics(self._subject.sink_topics)
        has = self._rows.until() if self._rows else -1
        start = position = max(self._first, self._verify_trimmed(self._first, log_start))
        while position < end:
            page = self._ledger.page(position, end)
            self._findings.add_all(page.findings)
            self._compare(page.records, min(has, page.end - 1), page)
            self._verify_attempts(page.committed)
            if page.records:
                self._newest = page.records[-1]
            # A running pipeline may trim the ledger now. The audit table has the trimmed records.
            position = self._verify_trimmed(page.end, self._reader.bounds([at])[at].start)
        if self._newest is None:
            return self._without_ledger()
        self._catch_up(max(start, has + 1), end)
        return self._finish(self._newest, end)

    def _without_ledger(self) -> VerificationResult:
        """Return the result of a verification that found no ledger record.

        Report lost records if the audit table or the last verification had some. Raise UsageError
        if nothing shows that the ledger ever had records.
        """
        at, was_known = self._ledger.at, self._chain.current is not None
        message = f"the ledger {at.topic!r} has no records"
        if not was_known and not self._findings.counts:
            raise UsageError(
                "pipeline_never_ran",
                f"{self._subject.names.pipeline}: there is nothing to verify: {message}",
                hint="did the pipeline ever run on this cluster, with this profile?",
            )
        if was_known:
            message += ", but the audit table or the last verification had some"
            self._findings.add(Finding("ledger_lost", message, at, 0))
        self._findings.close()
        return VerificationResult(self._findings, self._chain, self._first, self._first - 1)

    # --- first offsets to verify --------------------------------------------------------------

    def _resume(self, point: Point, ledger_start: int) -> None:
        """Resume where the last verification ended. Report a lost ledger record at that point."""
        self._first = point.ledger_offset + 1
        chain, at = self._chain, self._ledger.at
        chain.position, chain.current = dict(point.position), point.identity
        complete = {tp: [(0, end)] for tp, end in point.position.items()}
        self._dropped.covered = {
            **complete,
            **{tp: list(each) for tp, each in point.covered.items()},
        }
        self._dropped.forgotten, self._dropped.is_cut = set(point.forgotten), point.is_cut
        own = point.targets.items()
        self._letters.ends = {tp: n for tp, n in own if tp.topic == self._letters.topic}
        for producer_id in point.producer_ids:
            chain.owners.know(producer_id)
        bounds = self._reader.bounds(list(point.targets))
        for tp, offset in point.targets.items():
            self._targets[tp] = self._target(tp, offset)
            self._progress.expects(max(0, bounds[tp].stable - offset))
        if ledger_start > point.ledger_offset:
            return  # the record was trimmed since, so newer records exist
        pages = self._ledger.pages(point.ledger_offset, point.ledger_offset + 1)
        found = [record for page in pages for record in page.records]
        if found:
            self._newest = found[0]
            chain.last = self._newest.witness
        if found and found[0].identity == point.identity:
            return
        message = (
            f"{at} offset {point.ledger_offset}: the record of {point.identity}, at "
            "which the last verification ended, is gone"
        )
        witness = Witness(point.ledger_offset, "verified", -1, None, point.identity)
        self._findings.add(Finding("ledger_lost", message, at, point.ledger_offset, witness))

    def _verify_trimmed(self, position: int, log_start: int) -> int:
        """Verify the transactions of trimmed ledger records by their rows in the audit table.

        Report records that the table lacks, too, as out of reach. Return the ledger offset from
        which to read the ledger itself.
        """
        if log_start <= position:
            return position
        known = self._rows.first() if self._rows else None
        if self._rows is None or known is None or known >= log_start:
            self._forget_trimmed(position, log_start)
            return log_start
        if known > position:
            self._forget_trimmed(position, known)
        for committed in self._rows.older(max(known, position), log_start):
            self._verify_attempts(committed)
        return log_start

    def _forget_trimmed(self, start: int, end: int) -> None:
        """Report ledger records that nothing has any more. What they would explain is no damage."""
        self._findings.add_unreachable("ledger_trimmed", self._ledger.at, start, end - 1)
        self._chain.forget_trimmed()
        self._dropped.is_cut = True

    def _know_topics(self, topics: Collection[str]) -> None:
        """Verify all partitions of these target topics. Those that the pipeline did not write to
        may have records of other producers."""
        new = [topic for topic in topics if topic not in self._topics]
        counts = self._reader.partitions(new)
        tps = [TopicPartition(topic, p) for topic in new for p in range(counts[topic])]
        bounds = self._reader.bounds([tp for tp in tps if tp not in self._targets])
        for tp, found in bounds.items():
            self._targets[tp] = self._target(tp, found.start)
            self._progress.expects(found.stable - found.start)
        self._topics.update(new)

    def _target(self, tp: TopicPartition, position: int) -> Target:
        has_begun = self._point is not None and tp in self._point.targets
        return Target(tp, self._chain.owners, self._findings, position, has_begun=has_begun)

    # --- attempts, page by page ---------------------------------------------------------------

    def _verify_attempts(self, committed: Sequence[CommittedAttempt]) -> None:
        self._tables.see(committed)
        expected: dict[TopicPartition, list[tuple[Witness, Receipt]]] = {}
        for each in committed:
            self._findings.add_all(self._chain.see(each))
            self._letters.see(each)
            self._dropped.see(each)
            for receipt in each.receipts:
                at = TopicPartition(receipt.topic, receipt.partition)
                expected.setdefault(at, []).append((each.witness, receipt))
        self._know_topics({tp.topic for tp in expected})
        bounds = self._reader.bounds(list(expected))
        for tp, receipts in sorted(expected.items()):
            # A partition that no longer exists has no target yet: `_know_topics` skips it.
            target = self._targets.setdefault(tp, self._target(tp, 0))
            self._verify(target, receipts, bounds[tp])

    def _verify(
        self, target: Target, receipts: Sequence[tuple[Witness, Receipt]], bounds: LogBounds
    ) -> None:
        target.expect(receipts)
        end = max(receipt.offset_last for _, receipt in receipts) + 1
        if bounds.stable < end <= bounds.end:
            bounds = self._await_markers(target.at, end, bounds)
        size = sum(receipt.bytes for _, receipt in receipts)
        target.position = max(target.position, bounds.start)
        self._reader.target(target, min(end, bounds.stable), size)
        retention = self._reader.retention(target.at.topic)
        if retention.can_expire:  # retention may delete records during the read
            bounds = bounds._replace(start=self._reader.bounds([target.at])[target.at].start)
        target.settle(bounds, retention)

    def _await_markers(self, tp: TopicPartition, end: int, bounds: LogBounds) -> LogBounds:
        """Wait until the partition's transaction markers are written; return its new bounds."""
        deadline, backoff = Deadline.after_ms(_SETTLE_MS), Backoff()
        while bounds.stable < end and tp not in self._stuck:
            if deadline.has_passed:
                self._stuck.add(tp)
            found = self._cluster.open_transactions(self._cluster.producers([tp]), wait_ms=0)
            # The pipeline's own transaction has ended. Its marker may be late, so wait for it.
            own = self._cluster.transactional_id
            if any(each.hangs and each.owner != own for each in found):
                self._stuck.add(tp)  # no coordinator will end it
            backoff.sleep(deadline)
            bounds = self._reader.bounds([tp])[tp]
        return bounds

    # --- audit table --------------------------------------------------------------------------

    def _compare(self, records: Sequence[LedgerRecord], until: int, page: Page) -> None:
        """Compare ledger records with the audit table's rows up to ledger offset `until`."""
        known = [record for record in records if record.offset <= until]
        if self._rows is not None and until >= page.start:
            forged = frozenset(finding.offset for finding in page.findings)
            found = list(self._rows.compare(known, page.start, until + 1, forged))
            self._is_table_same = self._is_table_same and not found
            self._findings.add_all(found)

    def _catch_up(self, start: int, end: int) -> None:
        """Wait for the rows that the audit table lacked at the beginning, and compare them."""
        last = self._chain.last.ledger_offset if self._chain.last else -1
        if self._rows is None:
            if self._subject.table_reason:
                self._findings.add(
                    Finding("table_unread", self._subject.table_reason, kind=FindingKind.GONE)
                )
            return
        deadline, backoff = Deadline.after_ms(_SETTLE_MS), Backoff()
        while (has := self._rows.until()) < last and not deadline.has_passed:
            backoff.sleep(deadline)
        for page in self._ledger.pages(start, min(end, has + 1)):
            self._compare(page.records, min(has, page.end - 1), page)
        if has < last:
            message = f"the audit table has the ledger up to offset {has}, not yet up to {last}"
            self._is_table_same = False
            self._findings.add(Finding("table_behind", message, kind=FindingKind.GONE))

    # --- at the end ---------------------------------------------------------------------------

    def _finish(self, low: LedgerRecord, end: int) -> VerificationResult:
        chain = self._chain
        positions = {tp: each.position for tp, each in self._targets.items() if each.has_begun}
        # The order matters: a record that is visible now is committed, so a later read of the
        # ledger has its transaction.
        bounds = self._reader.bounds(list(self._targets))
        found = position_copies.read_copies(
            self._cluster, self._subject, low.position.ends, list(self._targets)
        )
        self._tables.look()
        newer = list(self._ledger.pages(end, self._ledger.settled_end()))
        for page in newer:
            self._findings.add_all(page.findings)
        committed = [each for page in newer for each in page.committed]
        self._tables.finish(committed)
        identities = {each.witness.identity for each in committed}
        for tp, target in sorted(self._targets.items()):
            target.newer = identities
            self._tail(target, bounds[tp])
        sources = self._sources.check(chain.covered, low.position.topic_ids)
        self._dropped.prove()
        records = [record for page in newer for record in page.records]
        high = records[-1] if records else low
        same = ["transactions"] if self._rows is not None and self._is_table_same else []
        for name, findings in found.compare(low, high, chain.owners, self._tables.owed()):
            self._findings.add_all(findings)
            if not findings:
                same.append(name)
        self._findings.close()
        last = low.offset
        targets, point = list(self._targets.values()), self._new_point(last, positions)
        return VerificationResult(
            *(self._findings, chain, self._first, last, targets, sources, same, point),
            self._dropped,
            self._tables.proofs,
        )

    def _new_point(self, last: int, positions: Mapping[TopicPartition, int]) -> Point:
        """Return the point at which the next verification can resume."""
        chain = self._chain
        assert chain.current is not None, "a record was verified"
        return Point(
            self._subject.names.pipeline,
            self._ledger_id,
            last,
            datetime.now(timezone.utc).isoformat(timespec="seconds"),
            dict(chain.position),
            positions,
            chain.current,
            chain.owners.producer_ids,
            covered=self._dropped.covered,
            tables=self._tables.points(),
            forgotten=tuple(sorted(self._dropped.forgotten)),
            is_cut=self._dropped.is_cut,
        )

    def _tail(self, target: Target, bounds: LogBounds) -> None:
        """Check that only attempts newer than the verified ones wrote the remaining records."""
        if bounds.end < target.position:
            message = (
                f"{target.name} ends at {bounds.end}, but was verified up to {target.position}"
            )
            self._findings.add(Finding("truncated", message, target.at, bounds.end))
        target.position = max(target.position, bounds.start)
        self._reader.target(target, bounds.stable)
        target.finish()
