"""Was each record that dedup dropped accepted before, or fenced by its producer's newer epoch?

The proof of a ledger record's claim comes from the source alone: `eos verify` reads it again from
its beginning, and compares the records' stamps (producer id, epoch, sequence). The claims of many
attempts are collected and proven together. A record that dedup rejected as a dead letter was read
but not accepted, so it is no earlier copy. With `scope: producer`, it may still fence older epochs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from eos.finding import Finding, FindingKind, Witness
from eos.kafka.api import TopicPartition
from eos.verify.dead_letters import Refused
from eos.verify.drop_claims import REASONS, DropClaim, ProducerSpan, claim_of
from eos.verify.findings import Findings
from eos.verify.history import CommittedAttempt
from eos.verify.proofs import Proofs, TooManyError, has_epoch, proofs, with_epochs
from eos.verify.record_order import Order, RecordPosition
from eos.verify.source_logs import Log, SourceRange
from eos.verify.stamps import Stamps, hash_of, joined

# Collected claims are proven once they are of this many attempts, or name this many producers.
ATTEMPTS_MAX, PRODUCERS_MAX = 20_000, 200_000
SHOWN_MAX = 100  # dropped records that are listed with their proof


class ProvenDrop(NamedTuple):
    """A record that dedup dropped, and the position of the record that proves the reason."""

    at: TopicPartition
    offset: int
    reason: str
    proof: RecordPosition

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.at.topic,
            "partition": self.at.partition,
            "offset": self.offset,
            "reason": self.reason,
            "proof": {
                "topic": self.proof.at.topic,
                "partition": self.proof.at.partition,
                "offset": self.proof.offset,
            },
        }


def _place(tp: TopicPartition, proof: int, order: Order | None) -> RecordPosition:
    return RecordPosition(tp, proof) if order is None else order.where(proof)


def _proven_drops(
    tp: TopicPartition, claim: DropClaim, part: Proofs, reasons: Sequence[str], order: Order | None
) -> Iterator[ProvenDrop]:
    """Yield each dropped record of one attempt and partition that is proven.

    If a record is both a duplicate and fenced, its reason is "fenced", as in dedup.
    """
    for offset, before, newer in zip(part.offset, part.before, part.newer, strict=True):
        proven = {"duplicate": int(before), "fenced": int(newer)}
        for reason in reversed(reasons):
            if proven[reason] >= 0 and claim.dropped.get(reason):
                yield ProvenDrop(tp, int(offset), reason, _place(tp, proven[reason], order))
                break


Proven = dict[tuple[int, TopicPartition, ProducerSpan], Counter[str]]


@dataclass(slots=True)
class DropCheck:
    """Check of dropped records. Call `see` with each transaction in the ledger's order.

    `log` returns the stamps of a source partition. It is None if the pipeline file no longer
    defines stamps. `rules` is the hash of the file's settings that define them.

    Dedup's states outlive a topic that an operator made the pipeline forget (`forgotten`). So a
    record of a new topic may be a duplicate of a record that was in the old one.
    """

    findings: Findings
    log: Callable[[SourceRange], Log] | None
    rules: str = ""
    is_spread: bool = False  # with `scope: producer`, the proof may be in another partition
    # Returns the records that dedup rejected in the transactions passed to `see` so far.
    letters: Callable[[], Refused] = dict
    # Called for every proven drop, not only the listed ones, with the transaction of its claim.
    each: Callable[[ProvenDrop, Witness], None] | None = None
    covered: dict[TopicPartition, list[tuple[int, int]]] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)
    is_cut: bool = False  # transactions are not known, which may have read the first copies
    records: Counter[str] = field(default_factory=Counter)
    proven: int = 0
    shown: list[ProvenDrop] = field(default_factory=list)
    _claims: list[DropClaim] = field(default_factory=list)
    _spans: int = 0
    _refused: Refused = field(default_factory=dict)

    def see(self, each: CommittedAttempt) -> None:
        if each.witness.kind == "recovery":
            # The position may move back, so that records are read twice. Prove the claims so far.
            gone = each.removed(self.covered)
            self.forgotten |= {tp.topic for tp in gone}
            self.prove()
            # Transactions of a copied ledger read the records that dedup's states know.
            self.is_cut |= each.is_copied and bool(each.producers)
            for tp in gone:  # an operator removed the topic; a new one has other offsets
                del self.covered[tp]
        if not each.is_attempt:
            return
        for tp, (start, end) in each.ranges.items():
            covered = self.covered.setdefault(tp, [])
            is_adjacent = bool(covered) and covered[-1][1] == start
            first = covered.pop()[0] if is_adjacent else start
            if first < end:
                covered.append((first, end))
        claim = claim_of(each)
        if claim is None:
            return
        self._spans += sum(map(len, claim.spans.values()))
        self.records.update(claim.dropped)
        self._claims.append(claim)
        if len(self._claims) >= ATTEMPTS_MAX or self._spans >= PRODUCERS_MAX:
            self.prove()

    def prove(self) -> None:
        """Search for the proofs of all collected claims, and report claims without proof."""
        claims, self._claims, self._spans = self._claims, [], 0
        if not claims:
            return
        if self.log is None:
            self._report_unread(
                claims, "the pipeline file no longer declares how records are stamped"
            )
            return
        same = [claim for claim in claims if claim.rules in ("", self.rules)]
        if len(same) < len(claims):
            others = [claim for claim in claims if claim.rules not in ("", self.rules)]
            self._report_unread(others, "`dedup.producer` or `dedup.scope` was changed since")
        if same:
            self._prove_same(same)

    def _prove_same(self, claims: Sequence[DropClaim]) -> None:
        """Prove claims of attempts that read stamps as the pipeline file says now."""
        logs = self._logs(claims)
        proven: list[Proven] = []
        try:
            self._refused = self.letters()
            if self.is_spread:
                proven.append(self._prove_together(logs, claims))
            accepted = self._accepted_epochs(logs, claims)
            proven += [self._prove(tp, log, claims, accepted) for tp, log in logs.items()]
        except TooManyError as error:
            self._report_unread(claims, f"there are {error}")
            return
        cut = {tp for tp, log in logs.items() if tp.topic in self.forgotten or log.is_cut()}
        is_cut = self.is_cut or bool(cut) or (self.is_spread and bool(self.forgotten))
        for (number, tp, span), known in (pair for each in proven for pair in each.items()):
            # Can only records of the same partition be the proof?
            is_own = not self.is_spread or (span.reason == "fenced" and accepted is None)
            may_be_gone = self.is_cut or tp in cut if is_own else is_cut
            self._report(tp, claims[number], span, known, is_cut=may_be_gone)
        for claim in claims:
            self._settle(claim, is_cut)

    def _logs(self, claims: Sequence[DropClaim]) -> Mapping[TopicPartition, Log]:
        assert self.log is not None, "claims are proven by logs"
        ends: dict[TopicPartition, int] = {}
        topic_ids: dict[str, str] = {}  # only a recovery record changes them
        for claim in claims:
            topic_ids |= claim.topic_ids
            for tp, (_, end) in claim.ranges.items():
                ends[tp] = max(end, ends.get(tp, 0))
        found = {}
        for tp, end in sorted(ends.items()):
            begin = min((start for start, _ in self.covered[tp]), default=end)
            found[tp] = self.log(SourceRange(tp, begin, end, topic_ids.get(tp.topic, "")))
        return found

    def _accepted_epochs(
        self, logs: Mapping[TopicPartition, Log], claims: Sequence[DropClaim]
    ) -> Stamps | None:
        """Return the first accepted record of each producer and epoch, in any partition.

        With `scope: producer` a rejected record fences older epochs if dedup knows its epoch.
        Return None if no rejected record can have fenced one.
        """
        if not (self.is_spread and self._refused and any("fenced" in c.dropped for c in claims)):
            return None
        known = joined([])
        for tp, log in logs.items():
            for each in map(self._examine(tp, claims), log.stamps()):
                known = with_epochs(known, each)
        return known

    def _prove(
        self,
        tp: TopicPartition,
        log: Log,
        claims: Sequence[DropClaim],
        fencing: Stamps | None,
    ) -> Proven:
        """Prove dropped records of one partition by earlier records of the same partition."""
        reasons = REASONS[1:] if self.is_spread else REASONS
        proven: Proven = {}
        examined = self._examine(tp, claims, fencing)
        for found in proofs(lambda: map(examined, log.stamps())):
            for number, claim in enumerate(claims):
                if tp in claim.ranges:
                    part = found.between(*claim.ranges[tp])
                    self._add(tp, (number, claim), part, proven, reasons)
        return proven

    def _prove_together(
        self, logs: Mapping[TopicPartition, Log], claims: Sequence[DropClaim]
    ) -> Proven:
        """Prove duplicates of producers that write to several partitions."""
        order = Order([claim.ranges for claim in claims], list(logs))
        proven: Proven = {}

        def chunks() -> Iterator[Stamps]:
            for tp, log in logs.items():
                examined = self._examine(tp, claims)
                yield from (order.placed(tp, examined(each)) for each in log.stamps())

        for found in proofs(chunks):
            for number, claim in enumerate(claims):
                for tp, span in claim.ranges.items():
                    part = order.within(found, number, tp, span)
                    self._add(tp, (number, claim), part, proven, REASONS[:1], order)
        return proven

    def _add(
        self,
        tp: TopicPartition,
        of: tuple[int, DropClaim],
        part: Proofs,
        proven: Proven,
        reasons: Sequence[str],
        order: Order | None = None,
    ) -> None:
        """Add the proofs of one attempt's records in one partition."""
        number, claim = of
        claim.add(tp, part, reasons)
        if self.each is not None:
            for one in _proven_drops(tp, claim, part, reasons, order):
                self.each(one, claim.witness)
        for span in claim.spans.get(tp, ()):
            if span.reason in reasons:
                known = proven.setdefault((number, tp, span), Counter())
                self._account(tp, span, part, known, order)

    def _examine(
        self, tp: TopicPartition, claims: Iterable[DropClaim], fencing: Stamps | None = None
    ) -> Callable[[Stamps], Stamps]:
        """Return a function that removes the stamps of records that can't be a proof.

        These are records that no transaction read, and records that dedup rejected each time they
        were read. If the ledger names all producers with dropped records, it also removes the
        stamps of other producers.
        """
        covered = sorted(self.covered.get(tp, ()))
        refused = self._refused.get(tp, np.zeros(0, np.int64))
        producers: set[int] | None = set()
        for claim in claims:
            named = sum(span.records for spans in claim.spans.values() for span in spans)
            if producers is None or named < sum(claim.dropped.values()):
                producers = None
                break
            here = claim.spans.values() if self.is_spread else [claim.spans.get(tp, ())]
            producers.update(hash_of(span.producer) for spans in here for span in spans)
        ids = None if producers is None else np.array(sorted(producers), np.int64)

        def examined(stamps: Stamps) -> Stamps:
            times = np.zeros(len(stamps), np.int64)
            for start, end in covered:  # ranges overlap if an operator moved the position back
                low, high = np.searchsorted(stamps.offset, [start, end])
                times[low:high] += 1
            is_read = times > 0
            times -= np.searchsorted(refused, stamps.offset, side="right")
            times += np.searchsorted(refused, stamps.offset)
            is_accepted = times > 0
            if fencing is not None:
                is_accepted |= is_read & has_epoch(fencing, stamps)
            if ids is not None:
                is_accepted &= np.isin(stamps.producer, ids)
            return stamps.where(is_accepted)

        return examined

    def _account(
        self,
        tp: TopicPartition,
        span: ProducerSpan,
        part: Proofs,
        known: Counter[str],
        order: Order | None,
    ) -> None:
        own = part.of(hash_of(span.producer)).between(span.first, span.last + 1)
        by = own.before if span.reason == "duplicate" else own.newer
        known["records"] += int((by >= 0).sum())
        for name, offset in (("first", span.first), ("last", span.last)):
            at = np.flatnonzero((own.offset == offset) & (by >= 0))
            known[name] += len(at)
            if len(at) and name == "first" and len(self.shown) < SHOWN_MAX:
                place = _place(tp, int(by[at[0]]), order)
                self.shown.append(ProvenDrop(tp, offset, span.reason, place))

    def _report(
        self,
        tp: TopicPartition,
        claim: DropClaim,
        span: ProducerSpan,
        known: Counter[str],
        *,
        is_cut: bool,
    ) -> None:
        missing = max(span.records - known["records"], 1 - known["first"], 1 - known["last"])
        if missing <= 0:
            return
        claim.has_witness = True
        offset = span.last if known["first"] and not known["last"] else span.first
        place = f"{tp} offset {offset}"
        if known["first"] and known["last"]:
            place = f"{tp} offsets {span.first} to {span.last}"
        subject = (
            "an earlier copy"
            if span.reason == "duplicate"
            else "an earlier record of a newer epoch"
        )
        self.findings.add(
            Finding(
                "unproven",
                f"{place}: dedup dropped {span.records} records of producer {span.producer!r} as "
                f"{span.reason}; for {missing} of them {subject} was not found, at {claim.witness}",
                tp,
                offset,
                claim.witness,
                FindingKind.GONE if is_cut else FindingKind.WRONG,
            )
        )

    def _settle(self, claim: DropClaim, is_cut: bool) -> None:
        """Compare the number of dropped records of one attempt with the number of proven ones.

        The ledger names only the producers with the most dropped records, so checking these
        producers alone is not enough.
        """
        expected = {**claim.dropped, "all": sum(claim.dropped.values())}
        missing = max(count - claim.proven[name] for name, count in expected.items())
        self.proven += expected["all"] - max(0, missing)
        if missing <= 0 or claim.has_witness:
            return
        counts = ", ".join(f"{count} {name}" for name, count in claim.dropped.items())
        self.findings.add(
            Finding(
                "unproven",
                f"dedup dropped {counts}; for {missing} of them no proof was found, at "
                f"{claim.witness}",
                None,
                -1,
                claim.witness,
                FindingKind.GONE if is_cut else FindingKind.WRONG,
            )
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "records": dict(self.records),
            "proven": self.proven,
            "shown": [each.as_json() for each in self.shown],
        }

    def _report_unread(self, claims: Sequence[DropClaim], reason: str) -> None:
        count = sum(sum(claim.dropped.values()) for claim in claims)
        message = f"{count:,} records that dedup dropped were not verified: {reason}"
        self.findings.add(
            Finding("dropped_unread", message, None, -1, claims[0].witness, FindingKind.GONE)
        )
