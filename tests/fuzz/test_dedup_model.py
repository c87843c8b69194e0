"""Producers that restart, resend, are replaced and go around; attempts that die; rewinds: each
record gets the verdict that somebody gives who remembers everything. Each partition is read at its
own pace, as far as Spark's limits let it: one may lag behind the others by all that there is."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.dedup import Row, policy, state_versions, verdicts_of
from support.dedup_model import CIRCLE, PartitionOracle, ProducerScopeOracle, upstream_records
from support.errors import examples

from eos.dedup import buckets, stage
from eos.producers.state import UNWRAPPED

PARTITIONS = 3
PACES = st.sampled_from([0, 1, 3, 12])


@settings(max_examples=examples(15), deadline=None)
@given(st.data(), st.sampled_from([UNWRAPPED, CIRCLE]))
def test_everybody_who_remembers_all_would_say_the_same(data, circle):
    _as_remembered(
        data, data.draw(upstream_records(circle)), policy(sequences=circle), PartitionOracle(circle)
    )


@settings(max_examples=examples(20), deadline=None)
@given(st.data(), st.sampled_from([UNWRAPPED, CIRCLE]), st.sampled_from([1, 3, 40]))
def test_numbers_that_are_spread_over_partitions(data, circle, window):
    sent = [
        each._replace(partition=data.draw(st.integers(0, PARTITIONS - 1)))
        for each in data.draw(upstream_records(circle))
    ]
    dead = data.draw(st.sampled_from([(), ("gap",)]))
    wanted = policy(sequences=circle, window=window, dead=dead)
    _as_remembered(data, sent, wanted, ProducerScopeOracle(window, circle, accepts_gap=not dead))


def _as_remembered(data, sent, wanted_policy, remembers):
    logs = [
        [Row(offset, each) for offset, each in enumerate(sent) if each.partition == partition]
        for partition in range(PARTITIONS)
    ]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "CHUNK_ROWS", data.draw(st.sampled_from([1, 4, 1 << 17])))
        patch.setattr(buckets, "BUCKET_ROWS_MAX", data.draw(st.sampled_from([1, 8192])))
        made = state_versions(Path(folder), wanted_policy)
        # By position: how far the ledger was, the generation that it named, what the oracle knew.
        past = [((0,) * PARTITIONS, "", remembers)]
        for _ in range(40):
            at, generation, oracle = past[-1]
            if all(place == len(log) for place, log in zip(at, logs, strict=True)):
                break
            until = tuple(
                min(place + data.draw(PACES), len(log)) for place, log in zip(at, logs, strict=True)
            )
            parts = zip(at, until, logs, strict=True)
            part = [row for start, end, log in parts for row in log[start:end]]
            fate = data.draw(st.sampled_from(["commit", "commit", "job", "delta", "rewind"]))
            event(fate)
            if fate == "rewind":
                del past[data.draw(st.integers(1, len(past))) :]
                continue
            if data.draw(st.booleans()):  # another process
                made = state_versions(Path(folder), wanted_policy)
            opened = made.begun(generation)
            expected = oracle.copy()
            wanted = expected.verdicts(part)
            assert verdicts_of(opened, part) == wanted
            for verdict in set(wanted.values()):
                event(verdict)
            if fate != "job":
                done = opened.commit()
                if fate == "commit":
                    assert sum(done.told["verdicts"].values()) == len(part)
                    for _, partition, *_, awaited, _, offset in done.told.get("gaps", ()):
                        event("a gap is told")
                        assert wanted[partition, offset] == "gap"
                        assert expected.awaited[partition, offset] == awaited
                    past.append((until, done.generation, expected))
