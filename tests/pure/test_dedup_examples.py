"""The worked examples of dedup's specification: they are computed, and docs/ shows the same."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from support.dedup import Row, Sent, policy, verdicts_of, versions_in

from eos.dedup import scalar_producer_scope, scalar_verdicts
from eos.dedup.scalar_producer_scope import ProducerScope
from eos.dedup.scalar_verdicts import PartitionScope, StampedRecord

PAGE = Path(__file__).parents[2] / "docs/how-dedup-works.md"
WINDOW = 5


def table(module):
    lines = [line for line in module.__doc__.splitlines() if line.startswith("| ")]
    return lines[2:], [line.strip("| ").split(" | ") for line in lines[2:]]


def by_partition():
    """Yield each micro-batch with the verdicts and states of the example."""
    for offset, producer, epoch, number, verdict, state in table(scalar_verdicts)[1]:
        parts = producer.encode(), int(epoch), None if number == "none" else int(number)
        yield [(StampedRecord(0, int(offset), *parts), verdict, state)]


def by_producer():
    offsets = itertools.count()
    rows = table(scalar_producer_scope)[1]
    for _, part in itertools.groupby(rows, key=lambda row: row[0]):
        yield [
            (StampedRecord(int(partition), next(offsets), b"a", int(epoch), int(number)), *expected)
            for _, partition, epoch, number, *expected in part
        ]


@pytest.mark.parametrize(
    ("micro_batches", "scope", "state_of"),
    [
        (by_partition, PartitionScope(), lambda scope, each: scope.state(0, each.producer)),
        (by_producer, ProducerScope(WINDOW), lambda scope, each: scope.state(each.producer)),
    ],
)
def test_the_examples_are_computed(micro_batches, scope, state_of):
    count = 0
    for rows in micro_batches():
        found = scope.verdicts([record for record, *_ in rows])
        for record, verdict, state in rows:
            assert (found[record[:2]], state_of(scope, record)) == (verdict, state), record
            count += 1
    assert count >= 9


@pytest.mark.parametrize(("micro_batches", "window"), [(by_partition, 0), (by_producer, WINDOW)])
def test_arrow_columns_get_the_same_verdicts(tmp_path, micro_batches, window):
    versions, version = versions_in(tmp_path, policy(window=window)), ""
    for rows in micro_batches():
        states = versions.begin(version)
        sent = [Row(each.offset, Sent(each.partition, *each[2:])) for each, *_ in rows]
        expected = {record[:2]: verdict for record, verdict, _ in rows}
        assert verdicts_of(states, sent) == expected
        version = states.commit().version


@pytest.mark.parametrize("module", [scalar_verdicts, scalar_producer_scope])
def test_the_page_shows_the_examples(module):
    lines, _ = table(module)
    assert "\n".join(lines) in PAGE.read_text(encoding="utf-8")
