"""Decide where a run resumes, from the last ledger record, and check that the source still has the
next records. Check and create the target topics, too."""

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
from eos.startup.source_state import LiveSource, source_client
from eos.startup.start_offsets import AT_REST, is_at_own_group, resolve
from eos.startup.topic_limits import message_limits
from eos.startup.topic_lookup import existing_topics, is_missing, source_topics

_EARLIEST = -2  # in Spark's options, this number means the earliest offset
STORE_TIMEOUT_MS = 60_000  # limit for the first response of the store of the checkpoints


class Emits(Protocol):
    """Takes events: the event bus, or its substitute in a preview of a startup."""

    def emit(self, event: events.Event) -> None: ...


def with_targets(planned: Plan, client: KafkaClient, parallelism: int, deadline: Deadline) -> Plan:
    """Create the target topics that the pipeline file declares with `create`. Return the plan with
    the record batch size limit of each target topic.

    Raise UsageError if another target topic does not exist, or at the first start a source topic.
    """
    _require_first_source(planned, client, deadline)
    for topic, new in planned.created_topics.items():
        client.create_topic(topic, new.partitions, new.replication, new.config, deadline)
    require_targets(client, planned.sink_topics, deadline)
    limits = message_limits(client, planned.sink_topics, deadline)
    return replace(planned, parallelism=parallelism, message_bytes_max=limits)


def _require_first_source(planned: Plan, client: KafkaClient, deadline: Deadline) -> None:
    """Before a first start creates topics, raise UsageError if a source topic does not exist.

    Later, a source topic that is gone is compared with the ledger (`resume_position`).
    """
    ledger = planned.names.ledger
    if not planned.is_dataframe and is_missing(client.topics([ledger], deadline)[ledger]):
        _source_topics(planned, source_client(planned, client), deadline)


def require_targets(client: KafkaClient, topics: Iterable[str], deadline: Deadline) -> None:
    existing_topics(
        client,
        topics,
        deadline,
        what="target",
        code="target_topic_missing",
        missing=UsageError,
        hint="create it, or set `create: {partitions: N}` in the sink",
    )


def resume_position(
    planned: Plan, source: LiveSource, last: LedgerRecord | None, bus: Emits, deadline: Deadline
) -> Position:
    """Return the position in the ledger's last record, or `start:` resolved to offsets if the
    ledger is empty.

    Raise if source topics, source offsets or group offsets contradict the ledger. Call this after
    the fence: from then on no older instance of this pipeline can commit, so the ledger is final.
    """
    if last is None:
        return _beginning(planned, source, deadline)
    position = last.position
    name = planned.names.pipeline
    require_same_topics(name, position, source.topic_ids(position.topic_ids))
    _require_all_read(planned, source, position, deadline)
    source.require_there(position.ends)
    if planned.commits_group:
        require_no_members(planned, source, deadline)
        _compare_group(name, position, source, bus)
    return inherited(planned, last)


def inherited(planned: Plan, last: LedgerRecord) -> Position:
    """Return the last record's position. If another deployment wrote the record, mark the position
    so that no existing checkpoint is used, because this state root's checkpoints are older than the
    ledger."""
    return last.position if is_ours(planned, last) else replace(last.position, is_reset=True)


def starting_offsets(
    planned: Plan, client: KafkaClient, position: Position, deadline: Deadline
) -> Mapping[TopicPartition, int]:
    """Return the offset of every source partition, as Spark needs them for a fresh checkpoint.

    `client` is the one of the source's cluster. A partition that is not in the ledger is new. Its
    offset is -2: its earliest record.
    """
    partitions = _partitions(_source_topics(planned, client, deadline))
    return {tp: position.ends.get(tp, _EARLIEST) for tp in partitions}


def require_new_whole(
    planned: Plan,
    source: LiveSource,
    position: Position,
    checkpoint: Checkpoint,
    deadline: Deadline,
    last: LedgerRecord | None = None,
) -> None:
    """Raise PromiseBrokenError if a new source partition has already lost its first records.

    With a resumed checkpoint, Spark reads a new partition from offset 0 or skips it, and reports no
    lost records. A fresh checkpoint begins with the records that are left. That is right at the
    first start, for a new topic, and after an operator's decision (`last` is of a recovery).
    """
    is_fresh = checkpoint.planned() is None
    if is_fresh and (last is None or last.kind == "recovery"):
        return
    found = _partitions(_source_topics(planned, source.client, deadline))
    new = found - position.ends.keys() - checkpoint.known_partitions()
    if is_fresh:
        read = {tp.topic for tp in position.ends}
        new = frozenset(tp for tp in new if tp.topic in read)
    name = planned.names.pipeline
    for tp, first in sorted(source.earliest(new).items()):
        if first > 0:
            raise PromiseBrokenError(
                "new_truncated",
                f"{name}: {tp.topic}-{tp.partition} is new, and begins at offset {first}: the "
                f"{first} offsets before it were deleted before they were read",
                hint="was the pipeline stopped for longer than the topic's retention? `eos recover "
                f"{name} --set-checkpoint-aside` resumes with the records that are left",
                pipeline=name,
                topic=tp.topic,
                partition=tp.partition,
                earliest=first,
            )


def require_store(planned: Plan, files: Files) -> None:
    """Raise UnavailableError if the store of the checkpoints does not respond. Call this
    before the fence: an instance that can't read its checkpoints must not fence one that can."""
    try:
        require_answer(files, planned.names.checkpoints, Deadline.after_ms(STORE_TIMEOUT_MS))
    except UnavailableError as error:
        raise about(planned.names.pipeline, error) from error


def _beginning(planned: Plan, source: LiveSource, deadline: Deadline) -> Position:
    found = _source_topics(planned, source.client, deadline)
    partitions, name = _partitions(found), planned.names.pipeline
    if planned.commits_group:
        require_no_members(planned, source, deadline)
        if not is_at_own_group(planned.source.start, planned.names.group):
            _require_no_history(planned, source.group_offsets(partitions))
    ends = resolve(
        planned.source.start,
        partitions,
        pipeline=name,
        group=planned.names.group,
        client=source.client,
        deadline=deadline,
    )
    return Position(ends=ends, topic_ids=_ids(found))


def _require_no_history(planned: Plan, before: Ends) -> None:
    """Raise if the group has offsets although the ledger is empty. Then the ledger was probably
    deleted, and a run from `start:` would repeat records."""
    if not before:
        return
    name = planned.names.pipeline
    tp, offset = min(before.items())
    raise PromiseBrokenError(
        "ledger_lost",
        f"{name}: the ledger {planned.names.ledger!r} is empty, but the group "
        f"{planned.names.group!r} has offsets ({tp.topic}-{tp.partition} is at {offset}): "
        "this pipeline ran before",
        hint=f"was the ledger topic deleted? `eos recover {name} --from-group` resumes at the "
        "group's offsets",
        pipeline=name,
    )


def _require_all_read(
    planned: Plan, source: LiveSource, position: Position, deadline: Deadline
) -> None:
    """Raise if the ledger has offsets of a topic that the source no longer reads.

    The ledger would keep these offsets for ever, and Spark can't resume a checkpoint without the
    topic.
    """
    name = planned.names.pipeline
    left = sorted(position.topic_ids.keys() - _source_topics(planned, source.client, deadline))
    if left:
        topic = left[0]
        raise PromiseBrokenError(
            "left_out",
            f"{name}: the ledger has offsets of the topic {topic!r}, which the source does not "
            "read any more",
            hint="was it removed from the pipeline file on purpose? `eos recover "
            f"{name} --forget-topic {topic}` resumes without it",
            pipeline=name,
            topic=topic,
        )


def require_no_members(planned: Plan, source: LiveSource, deadline: Deadline) -> None:
    """Raise if other consumers are members of the pipeline's group.

    The broker accepts offsets from members and from the pipeline's transactions, so they would
    overwrite each other. After a crash, the members' offsets would look like the pipeline's
    progress.
    """
    group_name = planned.names.group
    state = source.client.group_state(group_name, deadline)
    if state not in AT_REST:
        name = planned.names.pipeline
        raise PromiseBrokenError(
            "group_has_members",
            f"{name}: other consumers are members of the pipeline's group {group_name!r} (it is "
            f"{state}): their commits would overwrite the pipeline's offsets",
            hint="end them, or give them a group of their own; `kafka-consumer-groups.sh "
            f"--describe --members --group {group_name}` lists them",
            pipeline=name,
            group=group_name,
        )


def _compare_group(name: str, position: Position, source: LiveSource, bus: Emits) -> None:
    differing = group_offsets.differing(position.ends, source.group_offsets(position.ends))
    ahead = group_offsets.ahead(differing)
    if ahead:
        raise PromiseBrokenError(
            "group_ahead",
            f"{name}: {group_offsets.offset_note(ahead)}",
            hint="did another client reset the group's offsets, or does another consumer use this "
            f"group? `eos recover {name} --from-group` resumes at the group's offsets, so the "
            "records before them are never processed. `--restore-group` resets the group to the "
            "ledger's ends",
            pipeline=name,
        )
    if differing:
        note = group_offsets.offset_note(differing)
        bus.emit(events.Warned(f"{note}; the next commit corrects them"))


def _source_topics(
    planned: Plan, client: KafkaClient, deadline: Deadline
) -> Mapping[str, TopicInfo]:
    own = planned.topics_written_beside_source
    return source_topics(planned.source, client, deadline, own=own)


def _partitions(topics: Mapping[str, TopicInfo]) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(name, number)
        for name, info in topics.items()
        for number in range(info.partitions)
    )


def _ids(topics: Mapping[str, TopicInfo]) -> Mapping[str, str]:
    return {name: info.topic_id for name, info in topics.items()}
