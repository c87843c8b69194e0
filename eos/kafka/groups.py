"""Read a consumer group's offsets and its state, and commit offsets outside of a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.consumer.group import OffsetCommitRequest, OffsetFetchRequest

from eos.deadline import Deadline
from eos.errors import NoAnswerError, UnavailableError
from eos.kafka.admin import results
from eos.kafka.api import CommittedOffset, TopicPartition
from eos.kafka.cluster import Cluster, Kind, NoCoordinatorError, tries
from eos.kafka.outcomes import name_of
from eos.kafka.refusals import refused
from eos.kafka.requests import by_topic

_GROUP_RETRIED = frozenset({7, 13, 14, 15, 16, 88})
_UNSTABLE = 88


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
    error = 0
    for _ in tries(deadline):
        try:
            response = cluster.send_repeatable(
                lambda: cluster.coordinator(Kind.GROUP, group, deadline),
                # Without require_stable, the broker ignores offsets of an open transaction and
                # returns older ones.
                lambda: OffsetFetchRequest(
                    version=8, groups=[request(group_id=group, topics=topics)], require_stable=True
                ),
                deadline,
            )
        except NoCoordinatorError as none:
            raise refused("FindCoordinator", none.error, f"group {group}") from none
        except NoAnswerError:
            if not error:
                raise
            break  # too little time was left for this try; the earlier answer explains more
        answer = response.groups[0]
        found = list(results(answer))
        error = next((e for e in (answer.error_code, *(r.error_code for _, r in found)) if e), 0)
        if error == 0:
            return {
                tp: CommittedOffset(result.committed_offset, result.metadata or "")
                for tp, result in found
                if result.committed_offset >= 0
            }
        if error not in _GROUP_RETRIED:
            raise refused("OffsetFetch", error, f"group {group}")
        if error != _UNSTABLE:
            cluster.forget_coordinators()
    raise _offsets_unavailable(group, error)


def _offsets_unavailable(group: str, error: int) -> UnavailableError:
    last_error = name_of(error)
    if error == _UNSTABLE:
        return UnavailableError(
            "group_offsets_pending",
            f"Kafka answered {last_error} to OffsetFetch for group {group} until the deadline",
            hint="an open transaction has offsets of this group: wait until it ends or times out; "
            "`kafka-transactions.sh --bootstrap-server ... list` shows open transactions",
            error=error,
        )
    return _coordinator_unavailable("OffsetFetch", group, error)


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
    error = 0
    for _ in tries(deadline):
        try:
            response = cluster.send_repeatable(
                lambda: cluster.coordinator(Kind.GROUP, group, deadline),
                lambda: OffsetCommitRequest(
                    version=8,
                    group_id=group,
                    generation_id_or_member_epoch=-1,
                    member_id="",
                    group_instance_id=None,
                    topics=topics,
                ),
                deadline,
            )
        except NoCoordinatorError as none:
            raise refused("FindCoordinator", none.error, f"group {group}") from none
        error = next((each.error_code for _, each in results(response) if each.error_code), 0)
        if error == 0:
            return
        if error not in _GROUP_RETRIED:
            raise refused("OffsetCommit", error, f"group {group}")
        cluster.forget_coordinators()
    raise _coordinator_unavailable("OffsetCommit", group, error)


def group_state(cluster: Cluster, group: str, deadline: Deadline) -> str:
    error = 0
    for _ in tries(deadline):
        # A broker lists only the groups that it coordinates. If the group moved, a cached
        # coordinator would return no group and no error. So look the coordinator up again.
        cluster.forget_coordinators()
        try:
            response = cluster.send_repeatable(
                lambda: cluster.coordinator(Kind.GROUP, group, deadline),
                # DescribeGroups supports only groups of the classic protocol. ListGroups version 4
                # lists groups of all types, and is the newest in Kafka 3.6 and 3.7.
                lambda: ListGroupsRequest(version=4, states_filter=[]),
                deadline,
            )
        except NoCoordinatorError as none:
            raise refused("FindCoordinator", none.error, f"group {group}") from none
        error = response.error_code
        if error == 0:
            states = {each.group_id: str(each.group_state) for each in response.groups}
            return states.get(group, "")
        if error not in _GROUP_RETRIED:
            raise refused("ListGroups", error, f"group {group}")
    raise _coordinator_unavailable("ListGroups", group, error)


def _coordinator_unavailable(api: str, group: str, error: int) -> UnavailableError:
    return UnavailableError(
        "group_coordinator_unavailable",
        f"Kafka answered {name_of(error)} to {api} for group {group} until the deadline",
        hint="the group's coordinator is moving or starting: start again",
        error=error,
    )
