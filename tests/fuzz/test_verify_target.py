"""What verify decides, without a broker: clean logs are clean, whatever was changed is found."""

from __future__ import annotations

from itertools import pairwise

import google_crc32c
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from eos.finding import Finding, FindingKind, Witness
from eos.kafka.api import Identity, TopicPartition
from eos.kafka.records.batch_headers import Batch, BatchHeader
from eos.ledger.receipt import Receipt
from eos.verify.chain import CommitChain, Owners
from eos.verify.findings import KEPT_MAX, Findings
from eos.verify.history import CommittedAttempt
from eos.verify.source import SourcePartition
from eos.verify.target import LogBounds, Retention, Target

OUT, IN = TopicPartition("out", 0), TopicPartition("in", 0)
NOTHING = np.zeros(0, np.uint8)
FOREVER = Retention(can_expire=False)
# Sizes of an attempt's record batches; whether an aborted one of the same size comes before it.
ATTEMPTS = st.lists(
    st.tuples(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.booleans()),
    min_size=1,
    max_size=5,
)
WINDOW = st.integers(1, 3)


def batch(offset, identity, sequence, records, marker="", visible=True):
    last = offset + records - 1
    return BatchHeader(
        Batch(offset, last, identity, sequence, records, 0, True, marker, NOTHING), visible
    )


class Log:
    """As a pipeline leaves it. `log`: what is seen, with its digest; `receipts` as it told them."""

    def __init__(self, attempts):
        self.log, self.receipts, epoch, digest = [], [], 0, 7
        for number, (sizes, has_aborted) in enumerate(attempts):
            for is_kept in (False, True) if has_aborted else (True,):
                identity, sequence, chain = Identity(9, epoch), 0, 0
                first = self.end
                for size in sizes:
                    digest = digest * 31 % 2**32
                    chain = google_crc32c.extend(chain, digest.to_bytes(4, "big"))
                    self.add(batch(self.end, identity, sequence, size, visible=is_kept), digest)
                    sequence += size
                if is_kept:
                    receipt = Receipt(*OUT, sequence, first, self.end - 1, 0, chain)
                    self.receipts.append((Witness(number, "attempt", number, 1, identity), receipt))
                marker = "COMMIT" if is_kept else "ABORT"
                self.add(batch(self.end, Identity(9, epoch + 1), -1, 1, marker, visible=False))
                epoch += 1

    @property
    def end(self):
        return self.log[-1][0].batch.last_offset + 1 if self.log else 0

    def add(self, seen, digest=None):
        self.log.append((seen, digest))

    def data(self):
        """The places of what may be changed: visible record batches."""
        return [place for place, (seen, _) in enumerate(self.log) if seen.is_visible]

    def whose(self, place):
        identity = self.log[place][0].batch.identity
        return next(each for each, _ in self.receipts if each.identity == identity)

    def verified(self, window=99, keeping=FOREVER, start=0):
        findings, owners = Findings(), Owners()
        target = Target(OUT, owners, findings)
        log = [pair for pair in self.log if pair[0].batch.offset >= start]
        bounds = LogBounds(start, self.end, self.end)
        for first in range(0, len(self.receipts), window):
            part = self.receipts[first : first + window]
            for attempt, _ in part:
                owners.add(attempt.identity)
            target.expect(part)
            while log and log[0][0].batch.offset <= part[-1][1].offset_last:
                target.see(*log.pop(0))
            target.settle(bounds, keeping)
        for pair in log:
            target.see(*pair)
        target.finish()
        findings.close()
        return findings


@settings(max_examples=50, deadline=None)
@given(ATTEMPTS, WINDOW)
def test_a_clean_log_is_clean(attempts, window):
    log = Log(attempts)
    found = log.verified(window)
    assert not found.counts, found.listed
    assert log.data()


@settings(max_examples=150, deadline=None)
@given(ATTEMPTS, WINDOW, st.data())
def test_whatever_is_changed_is_found_at_its_attempt(attempts, window, data):
    log = Log(attempts)
    place = data.draw(st.sampled_from(log.data()))
    seen, digest = log.log[place]
    kind = data.draw(st.sampled_from(["lost", "less", "changed", "damaged", "hidden", "twice"]))
    if kind == "lost":
        del log.log[place]
    elif kind == "less":
        fewer = seen.batch._replace(records=seen.batch.records - 1)
        log.log[place] = BatchHeader(fewer, is_visible=True), digest ^ 1
    elif kind == "changed":
        log.log[place] = seen, digest ^ 1
    elif kind == "damaged":
        log.log[place] = BatchHeader(seen.batch._replace(is_sound=False), is_visible=True), None
    elif kind == "hidden":
        log.log[place] = BatchHeader(seen.batch, is_visible=False), digest
    else:
        again = seen.batch._replace(offset=log.end, last_offset=log.end + seen.batch.records - 1)
        log.add(BatchHeader(again, is_visible=True), digest)
    whose = Log(attempts).whose(place)
    found = log.verified(window)
    assert found.counts[FindingKind.WRONG]
    first = found.listed[FindingKind.WRONG][0]
    if kind == "twice":
        assert (first.case, first.offset) == ("duplicate", again.offset)
    elif kind == "hidden":
        assert {each.case for each in found.listed[FindingKind.WRONG]} == {"hidden"}
        assert whose in [each.witness for each in found.listed[FindingKind.WRONG]]
    else:
        assert first.witness == whose
        cases = {"less": "lost", "damaged": "changed"}
        # Without its last record batch the log itself is shorter than what was acknowledged.
        assert first.case == cases.get(kind, kind), found.listed
        assert first.offset <= seen.batch.offset


@settings(max_examples=60, deadline=None)
@given(ATTEMPTS, WINDOW, st.data())
def test_an_order_that_is_swapped(attempts, window, data):
    log = Log(attempts)
    pairs = [
        (a, b) for a in log.data() for b in log.data() if a < b and log.whose(a) == log.whose(b)
    ]
    if not pairs:
        return
    first, second = data.draw(st.sampled_from(pairs))
    whose = log.whose(first)
    base = log.log[first][0].batch.offset
    log.log[first], log.log[second] = log.log[second], log.log[first]
    for place in range(first, second + 1):
        (seen, digest) = log.log[place]
        last = base + seen.batch.last_offset - seen.batch.offset
        moved = seen.batch._replace(offset=base, last_offset=last)
        log.log[place] = BatchHeader(moved, seen.is_visible), digest
        base = last + 1
    found = log.verified(window)
    assert {(each.case, each.witness) for each in found.listed[FindingKind.WRONG]} == {
        ("order", whose)
    }


@settings(max_examples=60, deadline=None)
@given(ATTEMPTS, st.data())
def test_what_is_removed_is_out_of_reach_and_never_fine(attempts, data):
    log = Log(attempts)
    start = data.draw(st.integers(0, log.end))
    gone = [r for _, r in log.receipts if r.offset_first < start]
    found = log.verified(keeping=Retention(), start=start)
    assert found.counts == ({FindingKind.GONE: 1} if gone else {})
    if gone:
        records = sum(receipt.records for receipt in gone)
        assert (
            f": {records:,} records of {len(gone):,} attempts"
            in found.listed[FindingKind.GONE][0].message
        )
    kept = log.verified(keeping=FOREVER, start=start)
    assert kept.counts == ({FindingKind.WRONG: len(gone)} if gone else {})
    assert {each.case for each in kept.listed[FindingKind.WRONG]} <= {"truncated"}
    place = data.draw(st.sampled_from(log.data()))
    seen, _ = log.log[place]
    emptied = BatchHeader(seen.batch._replace(records=0, payload=NOTHING), True)
    for left in ([(emptied, None)], []):  # compaction first keeps an empty batch
        log.log[place : place + 1] = left
        compacted = log.verified(keeping=Retention(is_compacted=True))
        assert compacted.counts[FindingKind.GONE] + compacted.counts[FindingKind.WRONG] == 1
        assert "changed" not in {each.case for each in compacted.listed[FindingKind.WRONG]}


def test_others_before_between_and_behind():
    log = Log([([2], False), ([3], False)])
    shift = 4
    for place, (seen, digest) in enumerate(log.log):
        moved = seen.batch._replace(
            offset=seen.batch.offset + shift, last_offset=seen.batch.last_offset + shift
        )
        log.log[place] = BatchHeader(moved, seen.is_visible), digest
    log.receipts = [
        (
            each,
            Receipt(*OUT, r.records, r.offset_first + shift, r.offset_last + shift, 0, r.digest),
        )
        for each, r in log.receipts
    ]
    plain = Identity(-1, -1)
    log.log.insert(0, (batch(0, plain, -1, 4), None))
    assert not log.verified().counts
    log.add(batch(log.end, plain, -1, 1))
    found = log.verified()
    assert [each.offset for each in found.listed[FindingKind.FOREIGN]] == [log.end - 1]
    assert not found.counts[FindingKind.WRONG]


def test_records_under_a_transactions_name_that_nobody_acknowledged():
    """Their sequences follow, but they lie behind what the receipt says."""
    log = Log([([2], False)])
    log.add(batch(log.end, Identity(9, 0), 2, 3), 5)
    later = Log([([2], False)] * 2)
    shift = log.end
    for seen, digest in later.log[3:]:
        offset = seen.batch.offset - 3 + shift
        log.add(BatchHeader(seen.batch._replace(offset=offset, last_offset=offset), True), digest)
    (first,) = log.verified().listed[FindingKind.WRONG][:1]
    assert (first.case, first.offset) == ("duplicate", 3)


def test_a_log_that_ends_early_and_one_that_is_held_up():
    log = Log([([2], False), ([3, 4], False)])
    for bounds, case in ((LogBounds(0, 5, 5), "truncated"), (LogBounds(0, 5, 11), "hidden")):
        findings, owners = Findings(), Owners()
        target = Target(OUT, owners, findings)
        target.expect(log.receipts)
        for pair in log.log[:3]:
            target.see(*pair)
        target.settle(bounds, FOREVER)
        (first,) = findings.listed[FindingKind.WRONG]
        assert (first.case, first.offset, first.witness.batch_id) == (case, 5, 1)


# --- the chain of ranges and identities -----------------------------------------------------------


def told(number, kind="attempt", identity=None):
    return Witness(number, kind, number, 1, identity or Identity(5, number))


def committed(number, start, end, kind="attempt", identity=None, ends=None):
    ranges = {IN: (start, end)}
    return CommittedAttempt(told(number, kind, identity), ranges, ends or {IN: end}, [])


def cases(*steps):
    chain = CommitChain()
    return [(f.case, f.offset) for step in steps for f in chain.see(step)], chain


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=2, max_size=8), st.data())
def test_each_offset_is_covered_once(sizes, data):
    starts = np.cumsum([0, *sizes]).tolist()
    steps = [committed(n, a, b) for n, (a, b) in enumerate(pairwise(starts))]
    found, chain = cases(*steps)
    assert found == []
    assert chain.covered == {IN: (0, starts[-1])}
    number = data.draw(st.integers(1, len(steps) - 1))
    by = data.draw(st.integers(-5, 5).filter(bool))
    moved = committed(
        number, starts[number] + by, starts[number + 1], ends={IN: starts[number + 1]}
    )
    found, _ = cases(*steps[:number], moved, *steps[number + 1 :])
    where = ("gap", starts[number]) if by > 0 else ("overlap", starts[number] + by)
    assert found[0] == where


def test_only_a_person_moves_the_position():
    begun = committed(1, 0, 7)
    assert cases(begun, committed(2, 7, 7, "refresh"))[0] == []
    assert cases(begun, committed(2, 9, 9, "refresh"))[0] == [("gap", 7)]
    found, chain = cases(begun, committed(2, 3, 3, "recovery"), committed(3, 3, 8))
    assert found == []
    assert [each.ledger_offset for each in chain.moved] == [2]
    # A record that tells another whole position than its own ranges lead to.
    assert cases(begun, committed(2, 7, 9, ends={IN: 12}))[0] == [("gap", 9)]


def test_a_topic_that_a_person_removed_is_out_of_reach():
    """A new topic of that name begins at 0 again."""
    removed = CommittedAttempt(told(2, "recovery"), {}, {}, [])
    found, chain = cases(committed(1, 0, 7), removed, committed(3, 0, 4))
    assert found == [("source_forgotten", 0)]
    assert chain.covered == {IN: (0, 4)}


def test_identities_rise_and_never_come_back():
    begun = committed(1, 0, 7)
    again = committed(2, 7, 8, identity=Identity(5, 1))
    assert cases(begun, again)[0] == [("twice", -1)]
    other = committed(2, 7, 8, identity=Identity(6, 0))
    assert cases(begun, other)[0] == []
    chain = CommitChain()
    for each in (begun, other):
        assert not list(chain.see(each))
    (found,) = chain.see(committed(3, 8, 9))
    assert (found.case, found.witness) == ("forged", other.witness)


# --- the source -----------------------------------------------------------------------------------


def source(*seen, start=0, end=10, bounds=LogBounds(0, 10, 10), keeping=FOREVER):  # noqa: B008
    findings = Findings()
    made = SourcePartition(IN, start, end, keeping, findings)
    made.begin(bounds)
    for each in seen:
        made.see(each)
    made.finish(bounds.stable)
    findings.close()
    return made, findings


def counted(made):
    return made.records, made.control, made.aborted, made.removed


def test_every_offset_of_the_source_is_accounted_for():
    me = Identity(1, 0)
    log = [
        batch(0, me, 0, 4),
        batch(4, me, 4, 1, "COMMIT", visible=False),
        batch(5, me, 0, 2, visible=False),
        batch(7, me, 2, 1, "ABORT", visible=False),
        batch(8, me, 0, 2),
    ]
    made, findings = source(*log)
    assert counted(made) == (6, 2, 2, 0)
    assert not findings.counts
    made, findings = source(*log, start=2, end=9)
    assert counted(made) == (3, 2, 2, 0)
    made, findings = source(*log[:2], *log[3:])
    assert counted(made) == (6, 2, 0, 2)
    assert [(f.case, f.offset) for f in findings.listed[FindingKind.WRONG]] == [("source_hole", 5)]
    made, findings = source(*log[:2], *log[3:], keeping=Retention(is_compacted=True))
    assert dict(findings.counts) == {FindingKind.GONE: 1}
    made, findings = source(*log[1:], bounds=LogBounds(4, 10, 10))
    assert counted(made) == (2, 2, 2, 4)
    assert findings.listed[FindingKind.GONE][0].case == "source_retention"
    made, findings = source(*log, end=12)
    assert [(f.case, f.offset) for f in findings.listed[FindingKind.WRONG]] == [
        ("source_truncated", 10)
    ]


def test_findings_are_bounded_and_the_smallest_stay():
    findings = Findings()
    for number in range(3 * KEPT_MAX, 0, -1):
        findings.add(Finding("lost", "", OUT, number, told(number)))
    assert findings.counts[FindingKind.WRONG] == 3 * KEPT_MAX
    kept = findings.listed[FindingKind.WRONG]
    assert [kept[0].offset, kept[-1].offset, len(kept)] == [1, KEPT_MAX, KEPT_MAX]
