"""Create a topic, and wait until it can be used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka.protocol.admin import CreateTopicsRequest

from eos.deadline import Deadline
from eos.errors import UnavailableError
from eos.kafka.acls import RESOURCES
from eos.kafka.api import TopicPartition
from eos.kafka.cluster import Cluster, tries
from eos.kafka.outcomes import name_of
from eos.kafka.refusals import refused

_RETRIED = frozenset({5, 7, 13, 41, 89})
_TOPIC_EXISTS, _TOO_FEW_BROKERS = 36, 38


def create_topic(
    cluster: Cluster,
    name: str,
    partitions: int,
    replication: int,
    config: Mapping[str, str],
    deadline: Deadline,
) -> None:
    topic = CreateTopicsRequest.CreatableTopic
    setting = topic.CreatableTopicConfig
    created = topic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication,
        assignments=[],
        configs=[setting(name=key, value=value) for key, value in sorted(config.items())],
    )
    request = CreateTopicsRequest(
        version=7,
        topics=[created],
        # The broker answers before the client's timeout, which would close the connection.
        timeout_ms=max(1, cluster.limited(deadline).left_ms * 9 // 10),
        validate_only=False,
    )
    error = 0
    for _ in tries(deadline):
        controller = cluster.metadata((), deadline).controller_id
        # A retry is safe: if the first request succeeded, the second returns TOPIC_ALREADY_EXISTS.
        response = cluster.try_once(controller, request, deadline)
        if response is None:
            continue
        result = response.topics[0]
        error = result.error_code
        if error in (0, _TOPIC_EXISTS):
            _wait_for_leaders(cluster, name, deadline)
            return
        if error in RESOURCES and cluster.topics([name], deadline)[name].partitions:
            return  # this user may not create the topic, but it exists already
        if error == _TOO_FEW_BROKERS:
            raise _too_few_brokers(name, result)
        if error not in _RETRIED:
            raise refused("CreateTopics", error, f"topic {name}", result)
    last_error = name_of(error) if error else "no answer"
    raise UnavailableError(
        "topic_creation_timed_out",
        f"topic {name} could not be created in time: {last_error}",
        hint="check that the cluster has an active controller: kafka-metadata-quorum.sh "
        "--bootstrap-server ... describe --status",
    )


def _too_few_brokers(topic: str, result: Any) -> UnavailableError:
    """Return the error for too few running brokers. Not retried, since brokers may be missing for
    long; but a restart of the pipeline may help."""
    return UnavailableError(
        "replication_factor_unreachable",
        f"topic {topic} could not be created: {result.error_message or 'too few brokers'}",
        hint="start the brokers that are down. If the cluster has no more brokers, lower "
        "`replication` of the sink's `create:`, or the brokers' default.replication.factor",
    )


def _wait_for_leaders(cluster: Cluster, topic: str, deadline: Deadline) -> None:
    """Wait until the brokers know a new topic and each of its partitions has a leader.

    CreateTopics returns once the controller has logged the topic. Brokers learn of it later."""
    for _ in tries(deadline):
        info = cluster.topics([topic], deadline)[topic]
        if info.partitions:
            cluster.leaders([TopicPartition(topic, p) for p in range(info.partitions)], deadline)
            return
    raise UnavailableError(
        "topic_not_propagated",
        f"topic {topic} was created, but the brokers do not list it yet",
        hint="brokers learn of a new topic with a delay: start again",
    )
