"""What `eos verify` makes of records that dedup dropped: proofs against a plain oracle, and claims
that have none."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from eos.finding import FindingKind, Witness
from eos.kafka.api import Identity, TopicPartition
from eos.kafka.compression_type import Codec
from eos.kafka.records.batch_headers import HEADER_BYTES
from eos.kafka.records.record_batch import Columns, encode
from eos.ledger.receipt import Receipt
from eos.verify import dead_letters as letters_module
from eos.verify import dropped_records as module
from eos.verify import proofs as proving
from eos.verify.dead_letters import DeadLetterReader
from eos.verify.dropped_records import DropCheck
from eos.verify.findings import Findings
from eos.verify.history import CommittedAttempt
from eos.verify.proofs import TooManyError, proofs
from eos.verify.records import parsed
from eos.verify.source_logs import Log, SourceRange
from eos.verify.stamps import Stamps, hash_of
from eos.verify.target import LogBounds

A, B = TopicPartition("in", 0), TopicPartition("in", 1)
Sent = list[tuple[str, int, int]]  # id, epoch, number; the place is the offset


def as_stamps(sent: Sent, first: int = 0) -> Stamps:
    columns = zip(*((hash_of(who), epoch, number) for who, epoch, number in sent), strict=True)
    producer, epoch, number = (np.array(each, np.int64) for each in columns)
    return Stamps(producer, epoch, number, np.arange(first, first + len(sent), dtype=np.int64))


def expected(sent: Sent) -> dict[int, tuple[int, int]]:
    found = {}
    for offset, (who, epoch, number) in enumerate(sent):
        earlier = list(enumerate(sent[:offset]))
        before = [at for at, each in earlier if each == (who, epoch, number)]
        newer = [at for at, (his, other, _) in earlier if his == who and other > epoch]
        if before or newer:
            found[offset] = min(before, default=-1), min(newer, default=-1)
    return found


@pytest.mark.parametrize("keys_max", [10_000, 70])
def test_proofs_are_those_of_a_plain_oracle(keys_max):
    """Whatever the chunks, and in however many passes."""
    seen = random.Random(7)
    for turn in range(20):
        numbers = 2 if turn % 2 else 30
        sent = [
            (seen.choice("abc"), seen.randrange(3), seen.randrange(numbers))
            for _ in range(seen.randrange(1, 400))
        ]
        cut = seen.randrange(len(sent) + 1)
        parts = [(0, sent[:cut]), (cut, sent[cut:])]
        chunks = [as_stamps(part, at) for at, part in parts if part]
        found = {}
        for part in proofs(lambda chunks=chunks: chunks, keys_max):
            for offset, before, newer in zip(part.offset, part.before, part.newer, strict=True):
                assert int(offset) not in found
                found[int(offset)] = int(before), int(newer)
        assert found == expected(sent)


def test_more_producers_than_are_kept_are_told(monkeypatch):
    monkeypatch.setattr(proving, "EPOCHS_MAX", 2)
    chunk = as_stamps([("a", 0, 0), ("b", 0, 0), ("c", 0, 0)])
    with pytest.raises(TooManyError):
        list(proofs(lambda: [chunk]))


def attempt(number: int, ranges: dict, verdicts: dict | None = None, producers: tuple = ()):
    dedup = {"verdicts": verdicts, "producers": producers} if verdicts else {}
    told = Witness(number, "attempt", number, 1, Identity(1, number))
    return CommittedAttempt(told, ranges, None, [], dedup)


def judged(
    sent: dict,
    *attempts: CommittedAttempt,
    is_cut: bool = False,
    is_spread: bool = False,
    refused: dict | None = None,
    told: list | None = None,
):
    logs = {tp: as_stamps(each) for tp, each in sent.items()}

    def log(wanted: SourceRange) -> Log:
        part = logs[wanted.at]
        return Log(lambda: iter([part.where(part.offset < wanted.end)]), lambda: is_cut)

    made = DropCheck(Findings(), log, is_spread=is_spread)
    if refused is not None:
        made.letters = lambda: {tp: np.array(each, np.int64) for tp, each in refused.items()}
    if told is not None:
        made.each = lambda one, of: told.append((of.ledger_offset, one.as_json()))
    for each in attempts:
        made.see(each)
    made.prove()
    return made


SENT = [("a", 0, n) for n in (0, 1, 2, 1, 2, 3)] + [("a", 1, 0), ("a", 0, 4), ("a", 0, 5)]
FIRST = attempt(1, {A: (0, 3)})
AGAIN = attempt(
    2, {A: (3, 6)}, {"appended": 1, "duplicate": 2}, (["in", 0, "a", "duplicate", 2, 3, 4],)
)
FENCED = attempt(3, {A: (6, 9)}, {"fenced": 2}, (["in", 0, "a", "fenced", 2, 7, 8],))


def test_what_was_dropped_is_proven_by_another_record():
    made = judged({A: SENT}, FIRST, AGAIN, FENCED)
    assert not made.findings.counts
    assert (dict(made.records), made.proven) == ({"duplicate": 2, "fenced": 2}, 4)
    shown = [(each.offset, each.reason, each.proof.offset) for each in made.shown]
    assert shown == [(3, "duplicate", 1), (7, "fenced", 6)]


@pytest.mark.parametrize(
    ("verdicts", "producer", "offset", "words"),
    [
        ({"duplicate": 3}, ["in", 0, "a", "duplicate", 3, 3, 5], 5, "for 1 of them"),
        ({"duplicate": 1}, ["in", 0, "a", "duplicate", 1, 5, 5], 5, "an earlier copy"),
        ({"duplicate": 2}, ["in", 0, "a", "duplicate", 2, 3, 5], 5, "for 1 of them"),  # others are
        ({"fenced": 1}, ["in", 0, "a", "fenced", 1, 4, 4], 4, "an earlier record of a newer epoch"),
        ({"duplicate": 2}, ["in", 0, "b", "duplicate", 2, 3, 4], 3, "producer 'b'"),
        ({"duplicate": 3}, ["in", 0, "a", "duplicate", 2, 3, 4], -1, "for 1 of them"),  # in all
    ],
)
def test_what_nothing_proves_is_found_with_its_witness(verdicts, producer, offset, words):
    made = judged({A: SENT}, FIRST, attempt(2, {A: (3, 6)}, verdicts, (producer,)))
    (finding,) = made.findings.listed[FindingKind.WRONG]
    assert (finding.case, finding.offset, finding.witness.ledger_offset) == ("unproven", offset, 2)
    assert words in finding.message
    # Where the source is cut off, nobody knows.
    cut = judged({A: SENT}, attempt(2, {A: (3, 6)}, verdicts, (producer,)), is_cut=True)
    assert not cut.findings.listed[FindingKind.WRONG]
    assert cut.findings.listed[FindingKind.GONE]


def test_what_dedup_refused_was_read_and_proves_nothing():
    """Offsets 1 and 2 are dead letters: then 3 and 4, which are the same, were no duplicates. Nor
    does a newer epoch fence that was refused itself."""
    made = judged({A: SENT}, FIRST, AGAIN, refused={A: [1]})
    (finding,) = made.findings.listed[FindingKind.WRONG]
    assert (finding.offset, finding.witness.ledger_offset) == (3, 2)
    assert judged({A: SENT}, FIRST, AGAIN, FENCED, refused={A: [6]}).findings.listed[
        FindingKind.WRONG
    ]
    assert not judged({A: SENT}, FIRST, AGAIN, refused={A: [0, 5], B: [1, 2]}).findings.counts
    # What came again before, and was accepted then, proves it.
    later = attempt(3, {A: (6, 8)}, {"duplicate": 1}, (["in", 0, "a", "duplicate", 1, 7, 7],))
    sent = {A: [("a", 0, n) for n in (0, 2, 1, 1, 2, 3, 4, 2)]}
    told = []
    made = judged(sent, FIRST, attempt(2, {A: (3, 6)}), later, refused={A: [1]}, told=told)
    assert not made.findings.counts
    assert [each["proof"]["offset"] for _, each in told] == [4]


def test_what_was_refused_once_and_accepted_behind_a_rewind_proves():
    """Each time that it was read counts, and each dead letter."""
    back = CommittedAttempt(Witness(3, "recovery", -1, None, Identity(1, 3)), {A: (0, 0)}, None, [])
    again = attempt(4, {A: (0, 6)}, {"duplicate": 2}, AGAIN.dedup["producers"])
    first = attempt(1, {A: (0, 3)})
    for refused, is_proven in (([1, 2], True), ([1, 1, 2], False)):
        made = judged({A: SENT}, first, back, again, refused={A: refused})
        assert bool(made.findings.listed[FindingKind.WRONG]) is not is_proven, refused


@pytest.mark.parametrize("is_spread", [False, True])
def test_each_that_was_dropped_is_told_with_its_proof(is_spread):
    told = []
    judged({A: SENT}, FIRST, AGAIN, FENCED, is_spread=is_spread, told=told)
    found = {
        (ledger, each["offset"]): (each["reason"], each["proof"]["offset"]) for ledger, each in told
    }
    assert found == {
        (2, 3): ("duplicate", 1),
        (2, 4): ("duplicate", 2),
        (3, 7): ("fenced", 6),
        (3, 8): ("fenced", 6),
    }


def test_dead_letters_of_dedup_are_known_by_their_headers():
    """Of this pipeline, by dedup's own rules, and as far as transactions were seen. The last of a
    name is ours: a record may have come with headers of that name."""
    names = ("pipeline", "rule", "topic", "partition", "offset")
    rows = [
        ("p", "dedup_gap", "in", "1", "7"),
        ("p", "dedup_late", "in", "1", "5"),
        ("p", "dedup_gap", "in", "1", "7"),  # read again, refused again
        ("p", "paid", "in", "1", "8"),
        ("q", "dedup_gap", "in", "1", "9"),
        ("p", "dedup_gap", "in", "x", "9"),
        ("p", "dedup_unstamped", "more", "0", "0"),
        ("p", "dedup_gap", "in", "1", "6"),  # of a transaction that was not seen
    ]
    own = ("q", "paid", "out", "0", "1")
    headers = [
        [
            {"key": f"eos.{n}", "value": v.encode()}
            for each in (own, row)
            for n, v in zip(names, each, strict=True)
        ]
        for row in rows
    ]
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    nothing = pa.nulls(len(rows), pa.binary())
    columns = Columns(key=nothing, value=nothing, headers=pa.array(headers, pa.list_(pair)))
    records, deltas = parsed([bytes(encode(columns, Codec.NONE, 0).blob[HEADER_BYTES:])], [8])
    asked = []
    stable = 99

    class Log:
        def bounds(self, partitions):
            return {tp: LogBounds(0, stable, stable) for tp in partitions}

        def records(self, at, end):
            asked.append((at, end))
            yield records, deltas + 10

    letters = DeadLetterReader(Log(), "p", "dead")
    receipts = [Receipt(topic, 0, 7, 10, 16, 1, 0) for topic in ("dead", "out")]
    letters.see(CommittedAttempt(FIRST.witness, {}, None, receipts))
    found = {tp: offsets.tolist() for tp, offsets in letters.read().items()}
    assert found == {B: [5, 7, 7], TopicPartition("more", 0): [0]}
    assert asked == [(TopicPartition("dead", 0), 17)]
    stable = 12  # its end was lost: nobody waits for what will not come
    assert letters.read()[B].tolist() == [5, 7]
    assert asked[1:] == [(TopicPartition("dead", 0), 12)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(letters_module, "LETTERS_MAX", 1)
        with pytest.raises(TooManyError):
            letters.read()


def test_what_nobody_read_and_what_lies_in_another_partition_proves_nothing():
    skipping = attempt(1, {A: (2, 3)})  # a person moved the position past 0 and 1
    made = judged({A: SENT}, skipping, AGAIN)
    assert made.findings.listed[FindingKind.WRONG][0].offset == 3
    sent = {A: SENT[:3], B: SENT[:3]}
    claim = attempt(2, {B: (0, 3)}, {"duplicate": 1}, (["in", 1, "a", "duplicate", 1, 1, 1],))
    assert judged(sent, FIRST, claim).findings.listed[FindingKind.WRONG]


def test_a_rewind_proves_the_same_again_and_many_attempts_are_proven_in_parts(monkeypatch):
    monkeypatch.setattr(module, "ATTEMPTS_MAX", 1)
    again = [attempt(number, AGAIN.ranges, {"duplicate": 2}) for number in (4, 5)]
    made = judged({A: SENT}, FIRST, AGAIN, *again)
    assert not made.findings.counts
    assert made.proven == 6


def test_behind_a_rewind_the_order_begins_anew():
    """Else what is read again would have one place in it for both times."""
    back = Witness(3, "recovery", -1, None, Identity(1, 3))
    rewind = CommittedAttempt(back, {A: (3, 3)}, None, [])
    again = attempt(4, AGAIN.ranges, {"duplicate": 2}, AGAIN.dedup["producers"])
    made = judged({A: SENT}, FIRST, AGAIN, rewind, again, is_spread=True)
    assert not made.findings.counts, made.findings.listed
    assert made.proven == 4


def test_numbers_that_are_spread_are_proven_by_other_partitions():
    """By an earlier micro-batch, or an earlier place of the same one; a fence by its own alone."""
    numbers = {A: [0, 2, 3, 5, 5, 6], B: [1, 2, 3, 4, 5, 9]}
    sent = {tp: [("a", 0, n) for n in each] for tp, each in numbers.items()}
    first = attempt(1, {A: (0, 3), B: (0, 1)})
    told = [["in", 0, "a", "duplicate", 1, 4, 4], ["in", 1, "a", "duplicate", 3, 1, 4]]
    claim = attempt(2, {A: (3, 6), B: (1, 6)}, {"duplicate": 4}, tuple(told))
    made = judged(sent, first, claim, is_spread=True)
    assert not made.findings.counts, made.findings.listed
    assert made.proven == 4
    shown = {(each.at, each.offset): tuple(each.proof) for each in made.shown}
    assert shown == {(A, 4): (A, 3), (B, 1): (A, 1)}
    # Not by its own partition alone, and not by what came later.
    assert judged(sent, first, claim).findings.listed[FindingKind.WRONG]
    early = attempt(
        1, {A: (0, 3), B: (0, 0)}, {"duplicate": 1}, (["in", 0, "a", "duplicate", 1, 1, 1],)
    )
    late = attempt(2, {A: (3, 6), B: (0, 6)})
    (finding,) = judged(sent, early, late, is_spread=True).findings.listed[FindingKind.WRONG]
    assert (finding.at, finding.offset) == (A, 1)
    fenced = {A: [("a", 0, 0)], B: [("a", 1, 0)]}
    told = (["in", 0, "a", "fenced", 1, 0, 0],)
    claim = attempt(1, {A: (0, 1), B: (0, 1)}, {"fenced": 1}, told)
    assert judged(fenced, claim, is_spread=True).findings.listed[FindingKind.WRONG]
    assert not judged({A: SENT}, FIRST, AGAIN, FENCED, is_spread=True).findings.counts


@pytest.mark.parametrize("is_spread", [False, True])
def test_a_record_that_is_duplicate_and_fenced_proves_one_drop(is_spread):
    sent = [("a", 0, 0), ("a", 1, 0), ("a", 0, 0), ("b", 0, 5)]
    first, told = attempt(1, {A: (0, 2)}), (["in", 0, "a", "fenced", 1, 2, 2],)
    for verdicts, missing in (({"fenced": 1}, 0), ({"fenced": 1, "duplicate": 1}, 1)):
        claim = attempt(2, {A: (2, 4)}, verdicts, told)
        made = judged({A: sent}, first, claim, is_spread=is_spread)
        assert len(made.findings.listed[FindingKind.WRONG]) == missing


def test_spread_proofs_are_those_of_a_plain_oracle():
    """Micro-batches of both partitions, some of which dropped something, in many forms."""
    seen = random.Random(11)
    for _ in range(60):
        sent = {
            tp: [(seen.choice("ab"), 0, seen.randrange(9)) for _ in range(seen.randrange(2, 30))]
            for tp in (A, B)
        }
        attempts, known, at, dropped = [], set(), {A: 0, B: 0}, 0
        while any(at[tp] < len(sent[tp]) for tp in sent):
            ends = {tp: min(len(sent[tp]), at[tp] + seen.randrange(8)) for tp in sent}
            told, count = [], 0
            for tp in sent:
                spans = {}
                for offset in range(at[tp], ends[tp]):
                    if sent[tp][offset] in known:
                        spans.setdefault(sent[tp][offset][0], []).append(offset)
                    known.add(sent[tp][offset])
                for who, where in spans.items():
                    told.append([*tp, who, "duplicate", len(where), where[0], where[-1]])
                    count += len(where)
            ranges = {tp: (at[tp], ends[tp]) for tp in sent}
            verdicts = {"duplicate": count} if count else None
            attempts.append(attempt(len(attempts), ranges, verdicts, tuple(told)))
            at, dropped = ends, dropped + count
        made = judged(sent, *attempts, is_spread=True)
        assert not made.findings.counts, made.findings.listed
        assert made.proven == dropped
        # One more than there was is found, whichever attempt says so.
        claiming = [place for place, each in enumerate(attempts) if each.dedup]
        if claiming:
            place = seen.choice(claiming)
            lying = attempts[place]
            lying.dedup["verdicts"]["duplicate"] += 1
            assert judged(sent, *attempts, is_spread=True).findings.listed[FindingKind.WRONG]


def test_a_file_that_does_not_say_how_is_told():
    made = DropCheck(Findings(), None)
    made.see(AGAIN)
    made.prove()
    (finding,) = made.findings.listed[FindingKind.GONE]
    assert finding.case == "dropped_unread"
