"""Read a consumer group's offsets and its state, and commit offsets outside of a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.consumer.group import OffsetCommitRequest, OffsetFetchRequest

from eos.deadline import Deadline
from eos.kafka.admin import results
from eos.kafka.api import CommittedOffset, TopicPartition
from eos.kafka.cluster import Cluster, Kind
from eos.kafka.coordinators import ask_coordinator
from eos.kafka.requests import by_topic


def committed_offsets(
    cluster: Cluster,
    group: str,
    partitions: Iterable[TopicPartition] | None,
    deadline: Deadline,
) -> dict[TopicPartition, CommittedOffset]:
    request = OffsetFetchRequest.OffsetFetchRequestGroup
    named = request.OffsetFetchRequestTopics
    topics = None
    if partitions is not None:
        topics = [
            named(name=name, partition_indexes=[tp.partition for tp in tps])
            for name, tps in by_topic(partitions).items()
        ]
    response = ask_coordinator(
        cluster,
        Kind.GROUP,
        group,
        # Without require_stable, the broker ignores offsets of an open transaction and returns
        # older ones.
        lambda: OffsetFetchRequest(
            version=8, groups=[request(group_id=group, topics=topics)], require_stable=True
        ),
        lambda response: response.groups[0].error_code or _first_error(response.groups[0]),
        deadline,
    )
    return {
        tp: CommittedOffset(result.committed_offset, result.metadata or "")
        for tp, result in results(response.groups[0])
        if result.committed_offset >= 0
    }


def commit_offsets(
    cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int], deadline: Deadline
) -> None:
    """Commit offsets of a group without members, outside of a transaction.

    The request may be repeated, because it is idempotent. Raise KafkaRefusedError if the broker
    rejects the offset of a partition."""
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition
    topics = [
        topic(
            name=name,
            partitions=[
                partition(
                    partition_index=tp.partition,
                    committed_offset=offsets[tp],
                    committed_leader_epoch=-1,
                    committed_metadata="",
                )
                for tp in tps
            ],
        )
        for name, tps in by_topic(offsets).items()
    ]
    ask_coordinator(
        cluster,
        Kind.GROUP,
        group,
        lambda: OffsetCommitRequest(
            version=8,
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=topics,
        ),
        _first_error,
        deadline,
    )


def _first_error(response: Any) -> int:
    """Return the error code of the first partition that has one; 0 if none has."""
    return next((each.error_code for _, each in results(response) if each.error_code), 0)


def group_state(cluster: Cluster, group: str, deadline: Deadline) -> str:
    # A broker lists only the groups that it coordinates. If the group moved, a cached coordinator
    # would return no group and no error. So look the coordinator up again.
    cluster.forget_coordinators()
    response = ask_coordinator(
        cluster,
        Kind.GROUP,
        group,
        # DescribeGroups supports only groups of the classic protocol. ListGroups version 4 lists
        # groups of all types, and is the newest in Kafka 3.6 and 3.7.
        lambda: ListGroupsRequest(version=4, states_filter=[]),
        lambda response: int(response.error_code),
        deadline,
    )
    states = {each.group_id: str(each.group_state) for each in response.groups}
    return states.get(group, "")
