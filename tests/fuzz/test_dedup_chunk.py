"""Producers that just continue are decided in fewer steps: verdicts and states are the same."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.dedup import Row, Sent, policy, verdicts_of, versions_in
from support.dedup.model import CIRCLE, upstream_records
from support.errors import examples

from eos.dedup import buckets, chunk, stage
from eos.dedup.partition_states import READ, PartitionStates
from eos.producers.state import (
    UNWRAPPED,
    VERDICTS,
    ProducerState,
    Range,
    Rules,
    SequenceEvent,
    Verdict,
    after,
    decide,
)

PLAIN = chunk.advance_continuing


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), st.sampled_from([UNWRAPPED, CIRCLE]))
def test_the_short_way_of_continuing_producers_gives_the_same_result(data, circle):
    sent = data.draw(upstream_records(circle))
    rows = [Row(offset, each) for offset, each in enumerate(sent)]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    batches = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    dead = data.draw(st.sampled_from([(), ("gap",), ("late", "gap")]))
    wanted = policy(sequences=circle, forget_ms=data.draw(st.sampled_from([2, 100])), dead=dead)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "CHUNK_ROWS", data.draw(st.sampled_from([1, 4, 1 << 17])))
        patch.setattr(buckets, "BUCKET_ROWS_MAX", data.draw(st.sampled_from([1, 8192])))
        patch.setattr(chunk, "advance_continuing", noticed)
        found = left(batches, wanted)
        patch.setattr(
            chunk, "advance_continuing", lambda _known, rows, *_: np.zeros(len(rows), np.bool_)
        )
        assert found == left(batches, wanted)


@st.composite
def sent(draw, circle):
    """Long runs of consecutive numbers, some of which wrap, with other numbers in between."""
    found, heads = [], {}
    for _ in range(draw(st.integers(1, 12))):
        producer = draw(st.sampled_from([b"a", b"b"]))
        epoch, number = heads.get(producer) or (0, draw(st.sampled_from([0, circle - 4])))
        what = draw(st.sampled_from(["next", "next", "skip", "again", "epoch", "restart"]))
        if what in ("epoch", "restart"):
            epoch += 1
        number = {
            "skip": number + draw(st.integers(1, 2)),
            "again": number - draw(st.integers(1, 6)),
            "restart": 0,
        }.get(what, number) % circle
        for _ in range(draw(st.integers(1, 5))):
            found.append(Sent(0, producer, epoch, number))
            number = (number + 1) % circle
        heads[producer] = epoch, number
    return found


@settings(max_examples=examples(90), deadline=None)
@given(st.data(), st.sampled_from([2**62, CIRCLE, 12]), st.integers(1, 5))
def test_a_chunk_is_decided_as_its_records_one_by_one(data, circle, ranges_max):
    accepts = data.draw(st.sets(st.sampled_from([Verdict.GAP, Verdict.UNKNOWN_PRODUCER])))
    sequences = UNWRAPPED if circle == 2**62 else circle
    rules = Rules(ranges_max, accepts=frozenset(accepts), sequences=sequences, epochs=2**62)
    rows, known, states = data.draw(sent(circle)), PartitionStates(ranges_max), {}
    while rows:
        count = data.draw(st.integers(1, len(rows)))
        part, rows = rows[:count], rows[count:]
        verdicts = [one_by_one(states, each, rules) for each in part]
        assert [VERDICTS[code] for code in decided(known, part, rules)] == verdicts
        assert states_in(known) == states


def one_by_one(states, each, rules):
    state, one = (
        states.get(each.producer),
        SequenceEvent(each.epoch, each.sequence, each.sequence, 7),
    )
    verdict = decide(state, one, rules)
    moved = after(state, one, verdict, rules)
    if moved is not None:
        states[each.producer] = moved
    return verdict


def decided(known, part, rules):
    ids = pa.array([each.producer for each in part], pa.binary()).dictionary_encode()
    rows = known.rows(ids.dictionary, np.zeros(len(ids.dictionary), np.int64))
    numbers = (np.array([getattr(each, name) for each in part]) for name in ("epoch", "sequence"))
    return chunk.decide(known, rows, chunk.Sent(np.asarray(ids.indices), *numbers), 7, rules).codes


def states_in(known):
    """Return the states. Files read the same with and without the numbers that follow."""
    in_full = known.states(np.arange(len(known.producer)))
    names = known.producer.take(in_full.column("producer").combine_chunks())
    in_full = in_full.set_column(0, "producer", names)
    shortened, bucket = known.by_bucket(1, is_as_read=True)
    for files in (shortened, in_full):
        read = PartitionStates(len(known.older) + 1)
        read.add(files.select(READ.names), bucket)
        again = read.states(np.arange(len(bucket)))
        assert again.drop(["producer"]) == in_full.drop(["producer"])
    return {
        row["producer"]: ProducerState(
            row["epoch"],
            tuple(Range(*each) for each in zip(row["first"], row["last"], strict=True)),
            row["run"],
            row["at_ms"],
        )
        for row in in_full.to_pylist()
    }


def noticed(*given):
    found = PLAIN(*given)
    event("some go on" if found.any() else "none goes on")
    event("some do not" if not found.all() else "all go on")
    return found


def left(batches, wanted):
    """Return, by micro-batch, the verdicts, the reports and the states of each bucket."""
    found, version = [], ""
    with tempfile.TemporaryDirectory() as folder:
        made = versions_in(Path(folder), wanted)
        for number, rows in enumerate(batches):
            opened = made.begin(version)
            opened.stage = replace(opened.stage, now_ms=number)
            verdicts = verdicts_of(opened, rows)
            reports = {
                tp: {name: report[name] for name in report.keys() - {"files", "notes"}}
                for tp, report in opened.reports().items()
            }
            version = opened.commit().version
            files = made.begin(version).known
            states = {home: states_of(opened.stage.folder, files[home]) for home in files}
            found.append((verdicts, reports, states))
    return found


def states_of(folder, file):
    rows = buckets.read_states(folder, file).to_pylist()
    return sorted(rows, key=lambda row: row["producer"])
