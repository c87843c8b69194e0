"""Micro-batches that Spark plans again, or otherwise than the ledger says."""

from __future__ import annotations

import pytest
from support.doubles import Work
from support.errors import raises
from support.simulated_broker.runs import SIZE, SOURCE, TARGET, FewTries, World

from eos.errors import (
    PromiseBrokenError,
)
from eos.kafka.api import TopicPartition
from eos.ledger.ranges import PlannedBatch
from eos.observe import events
from eos.transaction import micro_batch as module


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Deadline", FewTries)


def test_a_committed_micro_batch_is_skipped_after_a_restart():
    world = World()
    world.run(0)
    world.run(1)
    world.start()
    world.run(1)  # Spark died before its own commit log
    assert [e.batch_id for e in world.of_kind(events.MicroBatchSkipped)] == [1]
    world.run(2)
    world.check(3)


@pytest.mark.parametrize("number", [0, 1])
def test_a_number_that_comes_again_with_another_range_is_not_taken_for_done(number):
    world = World()
    world.run(0)
    world.run(1)
    world.start()  # on a checkpoint that fell back: the same number is planned with more records
    again = PlannedBatch("q", number, {SOURCE: number * SIZE}, {SOURCE: 5 * SIZE})
    world.batches.run(again, Work(world.writes(2)))
    assert world.of_kind(events.MicroBatchSkipped) == []
    assert world.floors == {SOURCE: 2 * SIZE}
    assert world.visible() == [0, 1, 2]
    body = world.ledger_body()
    assert body["attempt"]["starts"] == {"source": {"0": 2 * SIZE}}
    assert body["ends"] == {"source": {"0": 5 * SIZE}}
    (*_, told) = world.of_kind(events.MicroBatchCommitted)
    assert told.offsets_in == 3 * SIZE


def test_a_micro_batch_that_ends_below_the_ledger_stops():
    world = World()
    world.run(0)
    world.run(1)
    world.start()
    with raises("beyond", PromiseBrokenError) as caught:
        world.batches.run(PlannedBatch("q", 0, {SOURCE: 0}, {SOURCE: 15}), Work(world.writes(9)))
    assert "up to offset 15, but 20 is next" in caught.value.message
    assert "would repeat 15 offsets" in caught.value.message
    world.check(2)


def test_offsets_of_a_recreated_topic_are_not_compared_with_the_ledgers():
    """It has fewer records than the ledger's offset, so that Spark plans an end below it."""
    world = World()
    world.run(0)
    world.run(1)
    world.cluster.ids["source"] = "another-id"
    with raises("recreated", PromiseBrokenError) as stop:
        world.batches.run(
            PlannedBatch("q", 2, {SOURCE: 2 * SIZE}, {SOURCE: 5}), Work(world.writes(2))
        )
    assert "`eos recover p --forget-topic source`" in stop.value.hint
    world.check(2)


def test_the_range_of_another_query_that_is_committed_already_is_skipped():
    world = World()
    world.run(0)
    world.batches.run(
        PlannedBatch("another", 7, {SOURCE: 0}, {SOURCE: SIZE}), Work(world.writes(9))
    )
    assert [e.batch_id for e in world.of_kind(events.MicroBatchSkipped)] == [7]
    world.check(1)


def test_a_partition_that_the_ledger_does_not_know_must_start_at_its_first_record():
    world = World()
    world.run(0)
    new = TopicPartition("source", 1)
    world.broker.logs[new] = world.broker.logs[TARGET].__class__()
    both = PlannedBatch("q", 1, {SOURCE: SIZE, new: 3}, {SOURCE: 2 * SIZE, new: 8})
    with raises("unknown", PromiseBrokenError) as caught:
        world.batches.run(both, Work(world.writes(1)))
    assert "source-1 from offset 3 on" in caught.value.message
    assert "is at 0: 3 offsets" in caught.value.message
    world.cluster.first = {new: 3}
    world.batches.run(both, Work(world.writes(1)))
    assert world.ledger_body()["ends"] == {"source": {"0": 2 * SIZE, "1": 8}}


def test_the_same_number_of_another_query_is_another_micro_batch():
    world = World()
    world.run(0)
    world.start()
    fresh = PlannedBatch("another", 0, {SOURCE: SIZE}, {SOURCE: 2 * SIZE})
    world.batches.run(fresh, Work(world.writes(1)))
    assert world.visible() == [0, 1]
    assert world.ledger_body()["query_id"] == "another"


def test_a_range_that_starts_above_the_ledger_stops():
    world = World()
    world.run(0)
    with raises("hole", PromiseBrokenError) as caught:
        world.batches.run(
            PlannedBatch("q", 1, {SOURCE: SIZE + 4}, {SOURCE: 20}), Work(world.writes(1))
        )
    assert f"source-0 from offset 14 on, but {SIZE} is next" in caught.value.message
    assert "would skip 4 offsets" in caught.value.message
    assert len(world.identities) == 1


def test_a_partition_that_spark_takes_for_new_but_the_ledger_knows_stops():
    world = World()
    world.run(0)
    with raises("beyond", PromiseBrokenError) as caught:
        world.batches.run(PlannedBatch("q", 1, {}, {SOURCE: 20}), Work(world.writes(1)))
    assert "source-0 from its beginning" in caught.value.message
    assert "but 10 is next" in caught.value.message


def test_a_partition_that_neither_knows_is_new_and_kept_from_then_on():
    world = World()
    world.broker.logs[TopicPartition("source", 1)] = world.broker.logs[TARGET].__class__()
    ends = {SOURCE: SIZE, TopicPartition("source", 1): 5}
    world.batches.run(PlannedBatch("q", 0, {SOURCE: 0}, ends), Work(world.writes(0)))
    world.run(1)  # touches partition 0 only
    assert world.ledger_body()["ends"] == {"source": {"0": 2 * SIZE, "1": 5}}
