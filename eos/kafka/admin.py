"""Look up offsets, producers and settings in Kafka, and delete records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from kafka.protocol.admin import (
    DeleteRecordsRequest,
    DescribeConfigsRequest,
    DescribeProducersRequest,
)
from kafka.protocol.consumer.offsets import ListOffsetsRequest

from eos.deadline import Deadline
from eos.errors import KafkaRefusedError, UnavailableError
from eos.kafka.api import DescribedProducer, Identity, TopicPartition
from eos.kafka.cluster import Cluster, tries
from eos.kafka.outcomes import LEADER_HINT, LEADER_RETRIED, name_of
from eos.kafka.refusals import refused
from eos.kafka.remedies import SUPPORTED_BROKERS
from eos.kafka.requests import by_topic

At = Literal["earliest", "latest"] | int

_EARLIEST, _LATEST = -2, -1
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
            # The broker answers before the client's timeout, which would close the connection.
            timeout_ms=max(1, cluster.limited(deadline).left_ms * 9 // 10),
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
            for tp, result in results(response):
                codes[tp] = result.error_code
                if result.error_code == 0:
                    found[tp] = result
                elif result.error_code not in LEADER_RETRIED:
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


def results(response: Any) -> Iterable[tuple[TopicPartition, Any]]:
    if response is None:
        return
    for topic in response.topics:
        for result in topic.partitions:
            yield TopicPartition(topic.name, result.partition_index), result


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
