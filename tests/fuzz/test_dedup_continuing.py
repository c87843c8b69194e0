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
from eos.producers.state import UNWRAPPED

SHARD = buckets.shard(0)
PLAIN = producer_scope_stage.advance_continuing
# Of three records in a row, half of the smallest circle, one may continue, or none.
CIRCLES = {UNWRAPPED: [1, 3, 40], 2**16: [1, 3, 40], 12: [1, 3]}
CHANGES = ["none"] * 6 + ["again", "skip", "jump", "epoch", "older", "below", "corrupt", "wide"]


@st.composite
def micro_batches(draw, circle):
    """Producers that mostly continue, in one to three partitions. The records of a micro-batch are
    in any order."""
    heads, found, offset = {}, [], 0
    chance = draw(st.randoms(use_true_random=True))  # a draw for each record would be slow
    for _ in range(draw(st.integers(2, 6))):
        sent = []
        for producer in draw(
            st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=1, unique=True)
        ):
            start = st.sampled_from([0, 0, 5, min(circle, 2**62) - 2])
            epoch, number = heads.get(producer) or (draw(st.integers(0, 1)), draw(start))
            change, count = draw(st.sampled_from(CHANGES)), draw(st.sampled_from([1, 2, 3, 7]))
            event(change)
            if change == "epoch":
                epoch, number = epoch + 1, 0
            if change == "jump":
                number += draw(st.integers(1, 50))
            numbers = list(range(number, number + count))
            number += count
            if change == "skip":
                del numbers[draw(st.integers(0, count - 1))]
            if change == "again":
                numbers[-1] = chance.choice(numbers)
            if change == "below":
                numbers.append(numbers[0] - draw(st.integers(1, 4)))
            stamped = [(epoch, each) for each in numbers]
            if change == "older":
                stamped[0] = max(epoch - 1, 0), draw(st.sampled_from([0, 1, number]))
            if change == "corrupt":
                stamped[0] = epoch, None
            heads[producer] = epoch, number
            highest = 2 if change == "wide" else draw(st.sampled_from([0, 0, 1]))
            for epoch_of, each in stamped:
                partition = chance.randint(0, highest)
                wrapped = None if each is None else each % min(circle, 2**63)
                sent.append(Sent(partition, producer, epoch_of, wrapped))
        chance.shuffle(sent)
        found.append([Row(offset + at, each) for at, each in enumerate(sent)])
        offset += len(sent)
    return found


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), st.sampled_from(list(CIRCLES)), st.booleans())
def test_verdicts_and_states_are_those_of_all_steps(data, circle, accepts_gap):
    batches = data.draw(micro_batches(circle))
    window = data.draw(st.sampled_from(CIRCLES[circle]))
    dead = () if accepts_gap else ("gap",)
    forget_ms = data.draw(st.sampled_from([2, 100]))
    wanted = policy(sequences=circle, window=window, dead=dead, forget_ms=forget_ms)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets, "BUCKET_ROWS_MAX", data.draw(st.sampled_from([1, 8192])))
        patch.setattr(producer_scope_stage, "advance_continuing", noticed)
        found = results(batches, wanted)
        patch.setattr(producer_scope_stage, "advance_continuing", none_continues)
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
                "p", folder, str(work), wanted, {SHARD: known}, number, topic="t"
            )
            stage.validate([(0, stamps(rows).drop_columns(["topic"]))])
            (place,) = work.glob("*.json")
            report = json.loads(place.read_text())
            files, notes = report.pop("files"), report.pop("notes")
            verdicts = pq.read_table(notes).to_pylist() if notes else []
            old = known.files if report["buckets"] == known.buckets else {}
            kept = {at: file for at, file in old.items() if at not in report["changed"]}
            new = {at: BucketFile(*file) for at, *file in files}
            known = BucketManifest(report["buckets"], {**kept, **new})
            states = {at: states_of(folder, file) for at, file in known.files.items()}
            found.append((report, sorted(map(str, verdicts)), states))
    return found


def states_of(folder, file):
    """Return the states of a file. The order of states, and that of partitions, has no meaning."""
    rows = buckets.read_states(f"{folder}/{file.path}", file, SCOPE_STATES).to_pylist()
    for row in rows:
        row["partitions"].sort()
    return sorted(rows, key=lambda row: (row["producer"], row["epoch"]))
