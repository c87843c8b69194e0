"""What must be known before a query starts: targets, where to go on, with which checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from eos.deadline import Deadline
from eos.errors import EosError, PromiseBrokenError, UnavailableError, UsageError
from eos.plan.plan import Plan
from eos.read.offset_log import Checkpoint, newest_with_offsets
from eos.run.topics import existing_topics
from eos.transaction.coordinator import Conclusion, Coordinator
from eos.transaction.ledger import Ledger, Position, require_same_topics, stamped
from eos.transaction.port import TopicPartition
from eos.transaction.wire import TopicInfo, Wire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EARLIEST = -2  # Spark's number for it
_TOPIC_IDS_TIMEOUT_MS = 60_000


def with_targets(planned: Plan, wire: Wire, parallelism: int, deadline: Deadline) -> Plan:
    """Creates the target topics that the pipeline declares, and looks up their limits."""
    for topic, new in planned.created_topics.items():
        wire.create_topic(topic, new.partitions, new.replication, new.config, deadline)
    existing_topics(
        wire,
        planned.sink_topics,
        deadline,
        what="target",
        missing=UsageError,
        hint="create it, or say `create: {partitions: N}` in the sink",
    )
    limits = {
        name: int(wire.topic_config(name, "max.message.bytes", deadline))
        for name in planned.sink_topics
    }
    return replace(planned, parallelism=parallelism, message_bytes_max=limits)


def where_to_go_on(
    planned: Plan, wire: Wire, ledger: Ledger, coordinator: Coordinator, deadline: Deadline
) -> Position:
    """The ledger's last word; for a pipeline without history, `start:` resolved to numbers.

    To be called after the fence: from then on no older copy of this pipeline can commit, so what
    the ledger says is final.
    """
    found = _source_topics(planned, wire, deadline)
    position = ledger.read_last(deadline)
    if position is None:
        ends = wire.list_offsets(
            _partitions(found), planned.source.start, committed=True, deadline=deadline
        )
        position = Position(ends=ends, topic_ids=_ids(found))
        _write_start(coordinator, ledger, position, deadline)
    require_same_topics(position, _ids(found))
    return position


def starting_offsets(
    planned: Plan, wire: Wire, position: Position, deadline: Deadline
) -> Mapping[TopicPartition, int]:
    """For a fresh checkpoint. Spark wants every partition named: those that the ledger doesn't
    know were added to the topic since, and begin at their beginning.
    """
    partitions = _partitions(_source_topics(planned, wire, deadline))
    return {tp: position.ends.get(tp, _EARLIEST) for tp in partitions}


def source_topic_ids(planned: Plan, wire: Wire) -> Mapping[str, str]:
    """While the query runs: a topic that is gone by then was deleted."""
    deadline = Deadline.after_ms(_TOPIC_IDS_TIMEOUT_MS)
    return _ids(_source_topics(planned, wire, deadline, PromiseBrokenError))


def _source_topics(
    planned: Plan, wire: Wire, deadline: Deadline, missing: type[EosError] = UsageError
) -> Mapping[str, TopicInfo]:
    return existing_topics(
        wire,
        planned.source_topics,
        deadline,
        what="source",
        missing=missing,
        hint="is its name right, and the profile the one of its cluster?",
    )


def _partitions(topics: Mapping[str, TopicInfo]) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(name, number)
        for name, info in topics.items()
        for number in range(info.partitions)
    )


def _ids(topics: Mapping[str, TopicInfo]) -> Mapping[str, str]:
    return {name: info.topic_id for name, info in topics.items()}


def _write_start(
    coordinator: Coordinator, ledger: Ledger, position: Position, deadline: Deadline
) -> None:
    identity = coordinator.begin(deadline)
    record = stamped(ledger.start_record(position), identity)
    try:
        coordinator.produce({ledger.partition: record}, deadline)
    except EosError:
        coordinator.abort(deadline)  # says so if another copy took over meanwhile
        raise
    if coordinator.commit(deadline) is Conclusion.IN_DOUBT:
        raise UnavailableError(
            "the commit of the start record had no answer",
            hint="start again: the next start reads the ledger and goes on from what it says",
        )


def choose_checkpoint(spark: SparkSession, root: str, position: Position) -> str:
    """The checkpoint to go on with, or a fresh one that begins at the ledger's ends."""
    current, fresh = newest_with_offsets(spark, root)
    if current is None:
        return fresh
    if position.batch_id < 0 and Checkpoint(spark, current).has_commits():
        raise PromiseBrokenError(
            f"the checkpoint {current} has committed micro-batches, but the ledger has none",
            hint="was the ledger topic deleted, or is this another cluster?",
        )
    return current
