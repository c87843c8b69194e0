"""Look up a cluster's brokers, the replicas of topics, and this user's rights on topics.

Commands that inspect a cluster, such as `eos doctor`, use this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from eos.deadline import Deadline
from eos.kafka.cluster import Cluster

# Kafka's codes of operations.
_OPERATIONS = {3: "READ", 4: "WRITE", 5: "CREATE", 6: "DELETE", 8: "DESCRIBE"}
_OPERATIONS |= {7: "ALTER", 10: "DESCRIBE_CONFIGS", 11: "ALTER_CONFIGS"}


class Shape(NamedTuple):
    """Ids of the live brokers, and the replicas and in-sync replicas of each topic.

    A topic's number is the smallest among its partitions. Missing topics are left out."""

    brokers: tuple[int, ...]
    replicas: Mapping[str, int]
    in_sync: Mapping[str, int]


def shape(cluster: Cluster, names: Iterable[str], deadline: Deadline) -> Shape:
    response = cluster.metadata(names, deadline)
    existing = [topic for topic in response.topics if topic.partitions]
    return Shape(
        tuple(sorted(broker.node_id for broker in response.brokers)),
        {each.name: min(len(p.replica_nodes) for p in each.partitions) for each in existing},
        {each.name: min(len(p.isr_nodes) for p in each.partitions) for each in existing},
    )


def operations(
    cluster: Cluster, topics: Iterable[str], deadline: Deadline
) -> Mapping[str, frozenset[str]]:
    response = cluster.metadata(topics, deadline, with_operations=True)
    return {
        topic.name: frozenset(
            name
            for code, name in _OPERATIONS.items()
            if code in (topic.authorized_operations or ())
        )
        for topic in response.topics
        if topic.error_code == 0
    }
