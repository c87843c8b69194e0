"""With `scope: producer`, deciding continuing producers in fewer steps changes no result."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.dedup import Row, Sent, policy, stamps
from support.errors import examples

from eos.dedup import buckets, producer_scope_stage
from eos.dedup.buckets import SCOPE_STATES, BucketFile, BucketManifest
from eos.dedup.producer_scope_stage import ProducerScopeStage
from eos.folder import LocalFolder
from eos.producers.state import UNWRAPPED

SHARD = buckets.shard(0)
PLAIN = producer_scope_stage.advance_continuing
# The windows by the circle of sequences. Of the smallest circle, half are fewer than some records.
WINDOWS = {UNWRAPPED: [1, 3, 40], 2**16: [1, 3, 40], 12: [1, 3]}
USUAL = ["continue"] * 6
CHANGES = ["again", "skip", "jump", "below", "first", "epoch", "older", "mixed", "corrupt", "wide"]


@st.composite
def micro_batches(draw, circle):
    """Producers that mostly continue, in one to three partitions, with records in any order.

    If they are alike, the states of one could be mistaken for those of another."""
    chance = draw(st.randoms(use_true_random=True))  # a draw for each record would be slow
    are_alike, offset = draw(st.booleans()), 0
    starts = [0] if are_alike else [0, 0, 5, 12, min(circle, 2**62) - 2]
    heads = {each: {chance.choice([0, 0, 1]): chance.choice(starts)} for each in (b"a", b"b", b"c")}
    found = []
    for _ in range(draw(st.integers(2, 6))):
        sent = []
        for producer in chance.sample(list(heads), chance.randint(1, 3)):
            change = draw(st.sampled_from(USUAL if are_alike else USUAL + CHANGES))
            event(change)
            count = chance.choice([1] if are_alike else [1, 2, 3, 7])
            highest = 2 if change == "wide" else chance.choice([0, 0, 1])
            for epoch, number in numbered(heads[producer], change, count, chance):
                wrapped = None if number is None else number % min(circle, 2**62)
                sent.append(Sent(chance.randint(0, highest), producer, epoch, wrapped))
        chance.shuffle(sent)
        found.append([Row(offset + at, each) for at, each in enumerate(sent)])
        offset += len(sent)
    return found


def numbered(heads, change, count, chance):
    """Return epochs and numbers of records. `heads` has the next number of each epoch."""
    newest = max(heads)
    if change == "epoch":
        newest += 1
        heads[newest] = chance.choice([0, 0, 0, 2])
    epoch = min(heads) if change == "older" else newest
    start = heads[epoch] + (chance.randint(1, 50) if change == "jump" else 0)
    if change == "below":
        start = max(start - chance.randint(1, 12), 0)
    if change == "first":
        start = 0
    numbers = list(range(start, start + count))
    if change not in ("below", "first"):
        heads[epoch] = start + count
    if change == "skip":
        del numbers[chance.randrange(count)]
    if change == "again":
        numbers[-1] = chance.choice(numbers)
    found = [(epoch, each) for each in numbers]
    if change == "mixed":
        found[0] = min(heads), numbers[0]
    if change == "corrupt":
        found[0] = epoch, None
    return found


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), st.sampled_from(list(WINDOWS)), st.booleans())
def test_verdicts_and_states_are_those_of_all_steps(data, circle, accepts_gap):
    batches = data.draw(micro_batches(circle))
    window = data.draw(st.sampled_from(WINDOWS[circle]))
    dead = () if accepts_gap else ("gap",)
    forget_ms = data.draw(st.sampled_from([2, 100]))
    wanted = policy(sequences=circle, window=window, dead=dead, forget_ms=forget_ms)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets, "BUCKET_ROWS_MAX", data.draw(st.sampled_from([1, 8192, 8192])))
        patch.setattr(producer_scope_stage, "advance_continuing", noticed)
        found = results(batches, wanted)
        patch.setattr(producer_scope_stage, "advance_continuing", none_continues)
        assert found == results(batches, wanted)


A, B = b"a", b"b"
# By name: window, circle, whether the last micro-batch has a producer that continues, and the
# records of each micro-batch. A record is its partition, producer, epoch and number.
CASES = {
    "next number": (3, UNWRAPPED, True, [(0, A, 0, 0)], [(0, A, 0, 1)]),
    "any order and partitions": (
        *(3, UNWRAPPED, True, [(0, A, 0, 0)]),
        [(1, A, 0, 3), (0, A, 0, 2), (0, A, 0, 1)],
    ),
    "duplicate": (3, UNWRAPPED, False, [(0, A, 0, 0)], [(0, A, 0, 1), (1, A, 0, 1)]),
    "missing number": (9, UNWRAPPED, False, [(0, A, 0, 0)], [(0, A, 0, 1), (0, A, 0, 3)]),
    "unknown": (9, UNWRAPPED, True, [(0, A, 0, 0)], [(0, A, 0, 1), (0, B, 0, 1)]),
    "idle producer": (9, UNWRAPPED, True, [(0, A, 0, 0), (0, B, 0, 0)], [(0, A, 0, 1)]),
    "middle of its numbers": (40, UNWRAPPED, True, [(0, A, 0, 20)], [(0, A, 0, 21)]),
    "a window above the middle": (3, UNWRAPPED, True, [(0, A, 0, 20)], [(0, A, 0, 21)]),
    "lower numbers of the unknown": (
        *(3, UNWRAPPED, False, [(0, A, 0, 20)], [(0, A, 0, 18)]),
        [(0, A, 0, 21), (0, A, 0, 22)],
    ),
    "lower number of another's place": (
        *(9, UNWRAPPED, False, [(0, B, 0, 0), (0, A, 0, 0), (0, A, 0, 1)]),
        [(0, B, 0, 5), (0, A, 0, 1), (0, A, 0, 2)],
    ),
    "higher number of another's place": (
        *(9, UNWRAPPED, False, [(0, A, 0, 0), (0, B, 0, 0)], [(0, A, 0, 2), (0, B, 0, 5)]),
    ),
    "new epoch": (3, UNWRAPPED, False, [(0, A, 0, 0)], [(0, A, 1, 0)]),
    "newer epoch continues": (
        *(3, UNWRAPPED, True, [(0, A, 0, 0)], [(0, A, 1, 0)], [(0, A, 1, 1)]),
    ),
    "older epoch": (3, UNWRAPPED, False, [(0, A, 1, 0)], [(0, A, 0, 1)]),
    "older epoch, newer one lacks a number": (
        *(3, UNWRAPPED, False, [(0, A, 0, 0)], [(0, A, 1, 1)], [(0, A, 0, 1)]),
    ),
    "first numbers after later ones": (
        *(3, UNWRAPPED, False, [(0, A, 0, 0)], [(0, A, 1, 2)], [(0, A, 1, 0)]),
    ),
    "new partition of an epoch": (3, UNWRAPPED, False, [(0, A, 1, 0)], [(1, A, 1, 1)]),
    "partition of an older epoch": (
        *(3, UNWRAPPED, False, [(0, A, 1, 0), (1, A, 1, 1)], [(0, A, 2, 0)], [(1, A, 2, 1)]),
    ),
    "partitions that are not read now": (
        *(9, UNWRAPPED, True, [(0, A, 1, 0), (5, A, 1, 1), (3, B, 1, 0)]),
        [(0, A, 1, 2), (0, B, 1, 1)],
    ),
    "wrap": (3, 12, True, [(0, A, 0, 9)], [(0, A, 0, at % 12) for at in range(10, 15)]),
    "after a wrap": (3, 12, True, [(0, A, 0, 11)], [(0, A, 0, 0)], [(0, A, 0, 1)]),
    "more than half of the circle": (
        *(3, 12, False, [(0, A, 0, 0)]),
        [(1, A, 0, 7), *((0, A, 0, at) for at in range(1, 7))],
    ),
    "no wrap": (3, UNWRAPPED, False, [(0, A, 0, 2**62 - 1)], [(0, A, 0, 0)]),
}


@pytest.mark.parametrize("case", CASES)
def test_each_condition(case, monkeypatch):
    window, circle, continues, *sent = CASES[case]
    batches = [[Row(at, Sent(*each)) for at, each in enumerate(part)] for part in sent]
    seen = []

    def remembered(*given):
        seen.append(PLAIN(*given))
        return seen[-1]

    wanted = policy(sequences=circle, window=window, dead=("gap",))
    monkeypatch.setattr(producer_scope_stage, "advance_continuing", remembered)
    found = results(batches, wanted)
    assert seen[-1][0].any() == continues
    monkeypatch.setattr(producer_scope_stage, "advance_continuing", none_continues)
    assert found == results(batches, wanted)


def noticed(*given):
    found = PLAIN(*given)
    event("some continue" if found[0].any() else "none continues")
    event("some do not" if not found[0].all() else "all continue")
    return found


def none_continues(states, _of_states, sent, *_):
    return np.zeros(int(sent.producer.max(initial=-1)) + 1, np.bool_), states


def results(batches, wanted):
    """Return, by micro-batch, the report, the verdicts and the states of each bucket."""
    found, known = [], BucketManifest(1)
    with tempfile.TemporaryDirectory() as folder:
        for number, rows in enumerate(batches):
            work = Path(folder, str(number))
            work.mkdir()
            stage = ProducerScopeStage(
                "p",
                LocalFolder(Path(folder)),
                LocalFolder(work),
                wanted,
                {SHARD: known},
                number,
                topic="t",
            )
            stage.validate([(0, stamps(rows).drop_columns(["topic"]))])
            (place,) = work.glob("*.json")
            report = json.loads(place.read_text())
            files, notes = report.pop("files"), report.pop("notes")
            verdicts = pq.read_table(work / notes).to_pylist() if notes else []
            old = known.files if report["buckets"] == known.buckets else {}
            kept = {at: file for at, file in old.items() if at not in report["changed"]}
            new = {at: BucketFile(*file) for at, *file in files}
            known = BucketManifest(report["buckets"], {**kept, **new})
            states = {at: states_of(folder, file) for at, file in known.files.items()}
            found.append((report, sorted(map(str, verdicts)), states))
    return found


def states_of(folder, file):
    """Return the states of a file. The order of states, and that of partitions, has no meaning."""
    rows = buckets.read_states(Path(folder), file, SCOPE_STATES).to_pylist()
    for row in rows:
        row["partitions"].sort()
    return sorted(rows, key=lambda row: (row["producer"], row["epoch"]))
