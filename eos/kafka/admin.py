"""Look up offsets, producers, groups and settings in Kafka, and delete records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from kafka.protocol.admin import (
    DeleteRecordsRequest,
    DescribeConfigsRequest,
    DescribeProducersRequest,
    ListGroupsRequest,
)
from kafka.protocol.consumer.group import OffsetFetchRequest
from kafka.protocol.consumer.offsets import ListOffsetsRequest

from eos.deadline import Deadline
from eos.errors import KafkaRefusedError, NoAnswerError, UnavailableError
from eos.kafka.api import CommittedOffset, DescribedProducer, Identity, TopicPartition
from eos.kafka.cluster import Cluster, Kind, NoCoordinatorError, tries
from eos.kafka.outcomes import LEADER_HINT, name_of
from eos.kafka.refusals import refused
from eos.kafka.remedies import SUPPORTED_BROKERS
from eos.kafka.requests import by_topic

At = Literal["earliest", "latest"] | int

_EARLIEST, _LATEST = -2, -1
_LEADER_RETRIED = frozenset({3, 5, 6, 7, 9, 13, 56, 74, 75, 78})
_GROUP_RETRIED = frozenset({7, 13, 14, 15, 16, 88})
_UNSTABLE = 88
_DELETE_MS = 10_000
_TOPIC, _BROKER = 2, 4  # resource types of DescribeConfigs


def list_offsets(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    at: At,
    committed: bool,
    deadline: Deadline,
) -> dict[TopicPartition, int]:
    timestamp = {"earliest": _EARLIEST, "latest": _LATEST}.get(at, 0) if isinstance(at, str) else at

    def build(tps: list[TopicPartition]) -> Any:
        topic = ListOffsetsRequest.ListOffsetsTopic
        partition = topic.ListOffsetsPartition
        return ListOffsetsRequest(
            version=7,
            replica_id=-1,
            isolation_level=int(committed),
            topics=[
                topic(
                    name=name,
                    partitions=[
                        partition(
                            partition_index=tp.partition,
                            current_leader_epoch=-1,
                            timestamp=timestamp,
                        )
                        for tp in of_topic
                    ],
                )
                for name, of_topic in by_topic(tps).items()
            ],
        )

    found = query_leaders(cluster, "ListOffsets", partitions, build, deadline)
    return {tp: result.offset for tp, result in found.items()}


def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition], deadline: Deadline
) -> dict[TopicPartition, tuple[DescribedProducer, ...]]:
    def build(tps: list[TopicPartition]) -> Any:
        topic = DescribeProducersRequest.TopicRequest
        return DescribeProducersRequest(
            version=0,
            topics=[
                topic(name=name, partition_indexes=[tp.partition for tp in of_topic])
                for name, of_topic in by_topic(tps).items()
            ],
        )

    found = query_leaders(cluster, "DescribeProducers", partitions, build, deadline)
    return {
        tp: tuple(
            DescribedProducer(
                Identity(state.producer_id, state.producer_epoch),
                state.last_sequence,
                state.current_txn_start_offset,
                state.coordinator_epoch,
                state.last_timestamp,
            )
            for state in result.active_producers
        )
        for tp, result in found.items()
    }


def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int], deadline: Deadline
) -> dict[TopicPartition, int]:
    def build(tps: list[TopicPartition]) -> Any:
        topic = DeleteRecordsRequest.DeleteRecordsTopic
        return DeleteRecordsRequest(
            version=2,
            timeout_ms=max(1, deadline.at_most_ms(_DELETE_MS)),
            topics=[
                topic(
                    name=name,
                    partitions=[
                        topic.DeleteRecordsPartition(
                            partition_index=tp.partition, offset=before[tp]
                        )
                        for tp in of_topic
                    ],
                )
                for name, of_topic in by_topic(tps).items()
            ],
        )

    found = query_leaders(cluster, "DeleteRecords", before, build, deadline)
    return {tp: result.low_watermark for tp, result in found.items()}


def query_leaders(
    cluster: Cluster,
    api: str,
    partitions: Iterable[TopicPartition],
    build: Callable[[list[TopicPartition]], Any],
    deadline: Deadline,
) -> dict[TopicPartition, Any]:
    """Send a request to the leader of each partition, and return the result of each partition.

    `build` makes one leader's request. If leaders move or are silent, retry until the deadline."""
    missing = set(partitions)
    found: dict[TopicPartition, Any] = {}
    codes: dict[TopicPartition, int] = {}
    is_first = True
    for _ in tries(deadline):
        try:
            leaders = cluster.leaders(missing, deadline)
        except UnavailableError:
            if is_first:
                raise
            break  # raise the error of an earlier try: this lookup only ran out of time
        is_first = False
        for node in sorted(set(leaders.values())):
            led = sorted(tp for tp in missing if leaders[tp] == node)
            response = cluster.try_once(node, build(led), deadline)
            for tp, result in _results(response):
                codes[tp] = result.error_code
                if result.error_code == 0:
                    found[tp] = result
                elif result.error_code not in _LEADER_RETRIED:
                    raise refused(api, result.error_code, f"{tp.topic}-{tp.partition}", result)
        missing -= found.keys()
        if not missing:
            return found
        cluster.forget_leaders()
    tp = min(missing)
    last_error = name_of(codes[tp]) if tp in codes else "no answer"
    raise UnavailableError(
        "partition_leader_unavailable",
        f"{api} for {tp.topic}-{tp.partition} failed until the deadline: {last_error}",
        hint=LEADER_HINT,
    )


def _results(response: Any) -> Iterable[tuple[TopicPartition, Any]]:
    if response is None:
        return
    for topic in response.topics:
        for result in topic.partitions:
            yield TopicPartition(topic.name, result.partition_index), result


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
        results = list(_results(answer))
        error = next((e for e in (answer.error_code, *(r.error_code for _, r in results)) if e), 0)
        if error == 0:
            return {
                tp: CommittedOffset(result.committed_offset, result.metadata or "")
                for tp, result in results
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
    return UnavailableError(
        "group_coordinator_unavailable",
        f"Kafka answered {last_error} to OffsetFetch for group {group} until the deadline",
        hint="the group's coordinator is moving or starting: start again",
        error=error,
    )


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
    last_error = name_of(error)
    raise UnavailableError(
        "group_coordinator_unavailable",
        f"Kafka answered {last_error} to ListGroups for group {group} until the deadline",
        error=error,
        hint="the group's coordinator is moving or starting: start again",
    )


def topic_config(cluster: Cluster, topic: str, name: str, deadline: Deadline) -> str:
    return _config(cluster, _TOPIC, topic, name, deadline)


def broker_config(cluster: Cluster, name: str, deadline: Deadline) -> str:
    response = cluster.metadata((), deadline)
    broker = min(broker.node_id for broker in response.brokers)
    return _config(cluster, _BROKER, str(broker), name, deadline)


def broker_configs(cluster: Cluster, name: str, deadline: Deadline) -> dict[int, str]:
    """Return a setting's value on each broker, by broker id. Brokers may have different values."""

    def build(node: int) -> Any:
        return _describe_config(_BROKER, str(node), name)

    answers = cluster.query_each(build, deadline)
    return {node: _value(answer, f"broker {node}", name) for node, answer in answers.items()}


def _config(cluster: Cluster, kind: int, resource: str, name: str, deadline: Deadline) -> str:
    def build() -> Any:
        return _describe_config(kind, resource, name)

    if kind == _BROKER:
        response = cluster.send_repeatable(lambda: int(resource), build, deadline)
        return _value(response, f"broker {resource}", name)
    return _value(cluster.query_any(build, deadline), f"topic {resource}", name)


def _describe_config(kind: int, resource: str, name: str) -> Any:
    return DescribeConfigsRequest(
        version=4,
        resources=[
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=kind, resource_name=resource, configuration_keys=[name]
            )
        ],
        include_synonyms=False,
        include_documentation=False,
    )


def _value(response: Any, where: str, name: str) -> str:
    result = response.results[0]
    if result.error_code:
        raise refused("DescribeConfigs", result.error_code, where, result)
    for config in result.configs:
        if config.name == name and config.value is not None:
            return str(config.value)
    raise KafkaRefusedError(
        "kafka_setting_missing", f"{where} has no setting {name}", hint=SUPPORTED_BROKERS
    )
