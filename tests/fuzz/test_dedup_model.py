"""Each record gets the verdict of the scalar specification, whatever producers and attempts do.

Producers restart, resend, are replaced and wrap; attempts die; the ledger is rewound. Each
partition is read at its own pace: one may lag by all of its records.
"""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.dedup import Row, policy, stamped, verdicts_of, versions_in
from support.dedup.model import CIRCLE, upstream_records
from support.errors import examples

from eos.dedup import buckets, stage
from eos.dedup.scalar_producer_scope import ProducerScope
from eos.dedup.scalar_verdicts import PartitionScope
from eos.producers.state import UNWRAPPED

PARTITIONS = 3
DEAD = st.sampled_from([(), ("gap",)])
PACES = st.sampled_from([0, 1, 3, 12])


@settings(max_examples=examples(15), deadline=None)
@given(st.data(), st.sampled_from([UNWRAPPED, CIRCLE]))
def test_partitions_are_validated_as_specified(data, circle):
    sent, dead = data.draw(upstream_records(circle)), data.draw(DEAD)
    scope = PartitionScope(circle, accepts_gap=not dead)
    _require_specified(data, sent, policy(sequences=circle, dead=dead), scope)


@settings(max_examples=examples(20), deadline=None)
@given(st.data(), st.sampled_from([UNWRAPPED, CIRCLE]), st.sampled_from([1, 3, 40]))
def test_numbers_of_several_partitions_are_validated_as_specified(data, circle, window):
    sent = [
        each._replace(partition=data.draw(st.integers(0, PARTITIONS - 1)))
        for each in data.draw(upstream_records(circle))
    ]
    dead = data.draw(DEAD)
    wanted = policy(sequences=circle, window=window, dead=dead)
    _require_specified(data, sent, wanted, ProducerScope(window, circle, accepts_gap=not dead))


def _require_specified(data, sent, wanted_policy, scope):
    logs = [
        [Row(offset, each) for offset, each in enumerate(sent) if each.partition == partition]
        for partition in range(PARTITIONS)
    ]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "CHUNK_ROWS", data.draw(st.sampled_from([1, 4, 1 << 17])))
        patch.setattr(buckets, "BUCKET_ROWS_MAX", data.draw(st.sampled_from([1, 8192])))
        made = versions_in(Path(folder), wanted_policy)
        # By position: the ledger's ends, the version that it named, and the specification then.
        past = [((0,) * PARTITIONS, "", scope)]
        for _ in range(40):
            at, version, before = past[-1]
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
                made = versions_in(Path(folder), wanted_policy)
            opened = made.begin(version)
            scope = copy.deepcopy(before)
            wanted = scope.verdicts(stamped(part))
            assert verdicts_of(opened, part) == wanted
            for verdict in set(wanted.values()):
                event(verdict)
            if fate != "job":
                done = opened.commit()
                if fate == "commit":
                    assert sum(done.summary["verdicts"].values()) == len(part)
                    for _, partition, *_, expected, _, offset in done.summary.get("gaps", ()):
                        event("a gap is listed")
                        assert wanted[partition, offset] == "gap"
                        assert scope.expected[partition, offset] == expected
                    past.append((until, done.version, scope))
