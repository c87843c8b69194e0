"""What must be known before a query starts: targets, where to go on, with which checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from eos.checkpoint.files import Files
from eos.checkpoint.offset_log import Checkpoint, require_answer
from eos.deadline import Deadline
from eos.errors import PromiseBrokenError, UnavailableError, UsageError, about
from eos.kafka.api import TopicPartition
from eos.kafka.client import KafkaClient
from eos.kafka.cluster import TopicInfo
from eos.ledger import group_offsets
from eos.ledger.ranges import require_same_topics
from eos.ledger.record import Ends, LedgerRecord, Position
from eos.observe import events
from eos.plan.plan import Plan
from eos.startup.ownership import is_ours
from eos.startup.source_state import LiveSource
from eos.startup.start_offsets import AT_REST, is_at_own_group, resolve
from eos.startup.topic_limits import message_limits
from eos.startup.topic_lookup import existing_topics, source_topics

_EARLIEST = -2  # Spark's number for it
STORE_TIMEOUT_MS = 60_000  # for the first answer of the store that checkpoints lie in


class Emits(Protocol):
    """The bus, or who only asks what a start would say."""

    def emit(self, event: events.Event) -> None: ...


def with_targets(planned: Plan, wire: KafkaClient, parallelism: int, deadline: Deadline) -> Plan:
    """Creates the target topics that the pipeline declares, and looks up their limits."""
    for topic, new in planned.created_topics.items():
        wire.create_topic(topic, new.partitions, new.replication, new.config, deadline)
    require_targets(wire, planned.sink_topics, deadline)
    limits = message_limits(wire, planned.sink_topics, deadline)
    return replace(planned, parallelism=parallelism, message_bytes_max=limits)


def require_targets(wire: KafkaClient, topics: Iterable[str], deadline: Deadline) -> None:
    existing_topics(
        wire,
        topics,
        deadline,
        what="target",
        missing=UsageError,
        hint="create it, or say `create: {partitions: N}` in the sink",
    )


def resume_position(
    planned: Plan, source: LiveSource, last: LedgerRecord | None, bus: Emits, deadline: Deadline
) -> Position:
    """The ledger's last word; for a pipeline without history, `start:` resolved to numbers.

    To be called after the fence: from then on no older copy of this pipeline can commit, so what
    the ledger says is final.
    """
    if last is None:
        return _beginning(planned, source, deadline)
    position = last.position
    name = planned.names.pipeline
    require_same_topics(name, position, source.topic_ids(position.topic_ids))
    _require_all_read(planned, source, position, deadline)
    source.require_there(position.ends)
    require_no_members(planned, source, deadline)
    _compare_group(name, position, source, bus)
    return inherited(planned, last)


def inherited(planned: Plan, last: LedgerRecord) -> Position:
    """Another deployment's checkpoints are not here, and those that are here are older."""
    return last.position if is_ours(planned, last) else replace(last.position, is_reset=True)


def starting_offsets(
    planned: Plan, wire: KafkaClient, position: Position, deadline: Deadline
) -> Mapping[TopicPartition, int]:
    """For a fresh checkpoint. Spark wants every partition named: those that the ledger doesn't
    know were added to the topic since, and begin at their beginning.
    """
    partitions = _partitions(_source_topics(planned, wire, deadline))
    return {tp: position.ends.get(tp, _EARLIEST) for tp in partitions}


def require_new_whole(
    planned: Plan,
    source: LiveSource,
    position: Position,
    checkpoint: Checkpoint,
    deadline: Deadline,
) -> None:
    """In a checkpoint that goes on, Spark takes a new partition from offset 0 or not at all, and
    does not name it."""
    if checkpoint.planned() is None:
        return
    found = _partitions(_source_topics(planned, source.wire, deadline))
    new = found - position.ends.keys() - checkpoint.begun()
    name = planned.names.pipeline
    for tp, first in sorted(source.earliest(new).items()):
        if first > 0:
            raise PromiseBrokenError(
                f"{name}: {tp.topic}-{tp.partition} is new, and begins at offset {first}: the "
                f"{first} offsets before it were deleted before they were read",
                hint="is its retention shorter than the pipeline was down? `eos recover "
                f"{name} --set-checkpoint-aside` goes on with what is left of it",
                case="new_truncated",
                pipeline=name,
                topic=tp.topic,
                partition=tp.partition,
                earliest=first,
            )


def require_store(planned: Plan, files: Files, deadline: Deadline) -> None:
    """Before the look: who can't reach the checkpoints must not fence somebody who can."""
    soon = Deadline.after_ms(deadline.at_most_ms(STORE_TIMEOUT_MS))
    try:
        require_answer(files, planned.names.checkpoints, soon)
    except UnavailableError as error:
        raise about(planned.names.pipeline, error) from error


def _beginning(planned: Plan, source: LiveSource, deadline: Deadline) -> Position:
    found = _source_topics(planned, source.wire, deadline)
    partitions, name = _partitions(found), planned.names.pipeline
    require_no_members(planned, source, deadline)
    if not is_at_own_group(planned.source.start, planned.names.group):
        _require_no_history(planned, source.group_offsets(partitions))
    ends = resolve(
        planned.source.start,
        partitions,
        pipeline=name,
        group=planned.names.group,
        wire=source.wire,
        deadline=deadline,
    )
    return Position(ends=ends, topic_ids=_ids(found))


def _require_no_history(planned: Plan, before: Ends) -> None:
    """The group's offsets outlive a ledger that was deleted: to begin anew would repeat."""
    if not before:
        return
    name = planned.names.pipeline
    tp, offset = min(before.items())
    raise PromiseBrokenError(
        f"{name}: the ledger {planned.names.ledger!r} is empty, but the group "
        f"{planned.names.group!r} has offsets ({tp.topic}-{tp.partition} is at {offset}): "
        "this pipeline ran before",
        hint=f"was the ledger topic deleted? `eos recover {name} --from-group` goes on where "
        "the group is",
        case="ledger_lost",
        pipeline=name,
    )


def _require_all_read(
    planned: Plan, source: LiveSource, position: Position, deadline: Deadline
) -> None:
    """A topic that the pipeline file does not name any more would keep its end for ever, and a
    checkpoint that knows it would not go on without it."""
    name = planned.names.pipeline
    left = sorted(position.topic_ids.keys() - _source_topics(planned, source.wire, deadline))
    if left:
        raise PromiseBrokenError(
            f"{name}: the ledger has offsets of the topic {left[0]!r}, which the source does not "
            "read any more",
            hint="was it taken out of the pipeline file on purpose? `eos recover "
            f"{name} --forget-topic {left[0]}` goes on without it",
            case="left_out",
            pipeline=name,
            topic=left[0],
        )


def require_no_members(planned: Plan, source: LiveSource, deadline: Deadline) -> None:
    """A transaction's offsets are taken beside those of live members, and theirs beside ours: each
    overwrites the other's, and after a crash theirs would pass for how far we came."""
    group_name = planned.names.group
    state = source.wire.group_state(group_name, deadline)
    if state not in AT_REST:
        name = planned.names.pipeline
        raise PromiseBrokenError(
            f"{name}: somebody else consumes with the pipeline's group {group_name!r} (it is "
            f"{state}): what they commit would overwrite what this pipeline commits",
            hint="end them, or give them a group of their own; `kafka-consumer-groups.sh "
            f"--describe --members --group {group_name}` names them",
            case="group_has_members",
            pipeline=name,
            group=group_name,
        )


def _compare_group(name: str, position: Position, source: LiveSource, bus: Emits) -> None:
    differing = group_offsets.differing(position.ends, source.group_offsets(position.ends))
    ahead = group_offsets.ahead(differing)
    if ahead:
        raise PromiseBrokenError(
            f"{name}: {group_offsets.offset_note(ahead)}",
            hint=f"somebody moved the group on purpose, or committed to it: `eos recover {name} "
            f"--from-group` goes on where the group is, `--restore-group` puts it back",
            case="group_ahead",
            pipeline=name,
        )
    if differing:
        bus.emit(events.Warned(f"{group_offsets.offset_note(differing)}; they are put right now"))


def _source_topics(planned: Plan, wire: KafkaClient, deadline: Deadline) -> Mapping[str, TopicInfo]:
    own = (planned.names.ledger, *planned.sink_topics)
    return source_topics(planned.source, wire, deadline, own=own)


def _partitions(topics: Mapping[str, TopicInfo]) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(name, number)
        for name, info in topics.items()
        for number in range(info.partitions)
    )


def _ids(topics: Mapping[str, TopicInfo]) -> Mapping[str, str]:
    return {name: info.topic_id for name, info in topics.items()}
