"""What is the likely cause of each Kafka error code, and how is it fixed?"""

from __future__ import annotations

from typing import Final

from eos.kafka.acls import missing
from eos.kafka.api import Api


def cause_and_hint(api: Api, code: int, resource: str = "") -> tuple[str, str] | None:
    """Return the likely cause of a Kafka error code and how to fix it; None if it is unknown.

    A text for this request precedes the general one. `resource` names the object of a missing
    permission."""
    right = missing(api.value, code, resource)
    if right is not None:
        return right.message, right.grant
    return _BY_REQUEST.get((api, code)) or _BY_CODE.get(code)


# An upgrade is no fix for another product with Kafka's protocol that never had the request.
SUPPORTED_BROKERS: Final = (
    "upgrade an Apache Kafka broker older than 3.6, or than 4.0 if transaction.version is 2. Other"
    " products may lack this in all releases: docs/brokers.md lists the supported ones"
)
_INCOMPLETE: Final = (
    (
        "The previous transaction of this transactional id is not complete. It can't complete while"
        " one of its partitions has no leader."
    ),
    (
        "kafka-transactions.sh describe --transactional-id lists its partitions; restart their"
        " brokers"
    ),
)
_REPLICAS: Final = (
    "kafka-topics.sh --describe --under-min-isr-partitions lists partitions that lack replicas"
)
_UNCONFIRMED: Final = (
    "The partition's leader appended the records, but too few replicas confirmed them in time.",
    f"restart the brokers that have the other replicas; {_REPLICAS}",
)
_BY_REQUEST: Final[dict[tuple[Api, int], tuple[str, str]]] = {
    (Api.INIT_PRODUCER_ID, 51): _INCOMPLETE,
    (Api.ADD_PARTITIONS, 51): _INCOMPLETE,
    (Api.TXN_OFFSET_COMMIT, 3): (
        "A source partition does not exist in this cluster, so its offset can't be committed.",
        "the topic was deleted, or the source is on another cluster than the sink",
    ),
    (Api.TXN_OFFSET_COMMIT, 16): (
        "The group coordinator is moving, or the group is a share or streams group.",
        "start again; kafka-groups.sh --list shows the group's type",
    ),
    (Api.END_TXN, 48): (
        "The broker has no open transaction for this attempt: it timed out, or it was empty.",
        "raise the transaction timeout, or make micro-batches smaller (source.kafka.max_records)",
    ),
    (Api.PRODUCE, 3): (
        "A target partition does not exist: the topic was deleted or never created.",
        "create the topic, or correct its name in the pipeline file",
    ),
}

_FOREIGN_MEMBERS: Final = (
    "Another client is a member of the pipeline's consumer group.",
    (
        "use a separate consumer group for the pipeline; kafka-consumer-groups.sh --describe"
        " --members lists the members"
    ),
)
LOST_EPOCH: Final = (
    "The epoch is no longer current: the transaction timed out, or a newer instance fenced it.",
    "check that no second instance runs, and that transaction.timeout is longer than a micro-batch",
)
_BY_CODE: Final[dict[int, tuple[str, str]]] = {
    3: (
        "The topic or partition does not exist.",
        "create the topic, or correct its name in the pipeline file",
    ),
    10: (
        "A record batch is larger than its topic allows.",
        "raise the topic's max.message.bytes, or make the record smaller",
    ),
    12: (
        "The metadata of a committed offset is too long.",
        "raise the broker's offset.metadata.max.bytes (default 4096)",
    ),
    18: (
        "A record batch is larger than a log segment.",
        "raise the topic's segment.bytes, or make the record smaller",
    ),
    19: (
        (
            "The partition has fewer in-sync replicas than min.insync.replicas, or its leader could"
            " not verify the transaction."
        ),
        (
            "compare min.insync.replicas of the topic and of __transaction_state with the live"
            f" brokers; {_REPLICAS}"
        ),
    ),
    22: _FOREIGN_MEMBERS,
    25: _FOREIGN_MEMBERS,
    28: (
        "The offsets of all partitions don't fit into one record of __consumer_offsets.",
        "raise max.message.bytes of __consumer_offsets, or split the pipeline's source",
    ),
    32: (
        "A record's timestamp is outside the topic's range.",
        (
            "correct the timestamp, or change the topic's message.timestamp.before.max.ms and"
            " after.max.ms"
        ),
    ),
    35: (
        "The broker does not support the request version that the protocol needs.",
        SUPPORTED_BROKERS,
    ),
    42: (
        "The request is malformed.",
        "check that the transactional id is not empty; otherwise report a bug",
    ),
    44: (
        "The broker's policy rejects the record.",
        "ask the cluster's administrator for its record policy",
    ),
    45: (
        (
            "The partition expected another sequence: an unclean leader election lost records, or a"
            " second task wrote."
        ),
        "check that unclean.leader.election.enable is false, and that no task was retried",
    ),
    47: LOST_EPOCH,
    48: (
        "The transaction is not in a state that allows the request: it has ended or timed out.",
        "raise the transaction timeout, or make micro-batches smaller (source.kafka.max_records)",
    ),
    49: (
        (
            "The producer id no longer belongs to the transactional id: the id expired, or another"
            " instance uses it."
        ),
        (
            "check that no second instance runs, and that transactional.id.expiration.ms exceeds"
            " the longest idle time"
        ),
    ),
    50: (
        "The transaction timeout is longer than the broker allows.",
        (
            "lower the pipeline's transaction timeout, or raise the broker's"
            " transaction.max.timeout.ms"
        ),
    ),
    69: (
        "The consumer group is of another type.",
        "use a separate consumer group for the pipeline; kafka-groups.sh --list shows the types",
    ),
    76: (
        "The broker does not support the compression codec.",
        "choose another codec for the sink",
    ),
    82: _FOREIGN_MEMBERS,
    87: (
        "The broker rejects a record: it has no key in a compacted topic, or is invalid.",
        "check the topic's cleanup.policy; with compact, each record needs a key",
    ),
    90: LOST_EPOCH,
    120: (
        "The broker requests an abort: the transaction has ended, or the request was too late.",
        "raise the transaction timeout, or make micro-batches smaller (source.kafka.max_records)",
    ),
}
