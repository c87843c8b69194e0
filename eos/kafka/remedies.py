"""What is the likely cause of each Kafka error code, and how is it fixed?"""

from __future__ import annotations

from typing import Final

from eos.kafka.acls import missing
from eos.kafka.api import Api


def cause_and_hint(api: Api, code: int, resource: str = "") -> tuple[str, str] | None:
    """Return cause and hint for a code; a text for this request takes precedence.

    `resource` names the object of a missing permission."""
    right = missing(api.value, code, resource)
    if right is not None:
        return right.told, right.grant
    return _BY_REQUEST.get((api, code)) or _BY_CODE.get(code)


_INCOMPLETE: Final = (
    (
        "The former transaction of this transactional id is not complete; it stays so while one of"
        " its partitions has no leader."
    ),
    (
        "kafka-transactions.sh describe --transactional-id names the partitions; bring their"
        " brokers back"
    ),
)
_REPLICAS: Final = "kafka-topics.sh --describe --under-min-isr-partitions names what lacks replicas"
_UNCONFIRMED: Final = (
    "The partition's leader has it, but too few replicas confirmed it in time.",
    f"bring the brokers with the other replicas back; {_REPLICAS}",
)
_BY_REQUEST: Final[dict[tuple[Api, int], tuple[str, str]]] = {
    (Api.INIT_PRODUCER_ID, 51): _INCOMPLETE,
    (Api.ADD_PARTITIONS, 51): _INCOMPLETE,
    (Api.TXN_OFFSET_COMMIT, 3): (
        "A source partition does not exist in this cluster, so no offset can be kept for it.",
        "was the topic deleted, or is the source another cluster than the sink?",
    ),
    (Api.TXN_OFFSET_COMMIT, 16): (
        "The group coordinator is moving, or the name belongs to a share or streams group.",
        "kafka-groups.sh --list shows the group's type",
    ),
    (Api.END_TXN, 48): (
        "The broker has no open transaction of this attempt: it timed out, or it was empty.",
        "raise the transaction timeout, or make micro-batches smaller (source.kafka.max_records)",
    ),
    (Api.PRODUCE, 3): (
        "A target partition does not exist: the topic was deleted, or never created.",
        "create the topic, or correct its name in the pipeline file",
    ),
}

_FOREIGN_MEMBERS: Final = (
    "Somebody else is a member of the pipeline's consumer group.",
    (
        "give the pipeline a group of its own; kafka-consumer-groups.sh --describe --members shows"
        " who is in it"
    ),
)
LOST_EPOCH: Final = (
    "Another epoch is current: the transaction timed out, or a newer owner took over.",
    "is the transaction timeout shorter than a micro-batch takes, or does a second copy run?",
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
        "The metadata kept with an offset is too long.",
        "raise the broker's offset.metadata.max.bytes (4096 by default)",
    ),
    18: (
        "A record batch is larger than a log segment.",
        "raise the topic's segment.bytes, or make the record smaller",
    ),
    19: (
        (
            "The partition has fewer replicas in sync than it needs, or its leader could not verify"
            " the transaction."
        ),
        (
            "check min.insync.replicas against the live brokers, of the topic and of"
            f" __transaction_state; {_REPLICAS}"
        ),
    ),
    22: _FOREIGN_MEMBERS,
    25: _FOREIGN_MEMBERS,
    28: (
        "The offsets of all partitions don't fit into one record of __consumer_offsets.",
        "raise max.message.bytes of __consumer_offsets, or split the pipeline's source",
    ),
    32: (
        "A record's timestamp is out of the topic's range.",
        "correct it, or change the topic's message.timestamp.before.max.ms and after.max.ms",
    ),
    35: (
        "The broker does not speak the version of the request that the protocol needs.",
        "Kafka 3.6 or later is needed",
    ),
    42: ("The request is malformed.", "is the transactional id empty? Otherwise report a bug"),
    44: (
        "The broker's policy refuses the record.",
        "ask for the cluster's record policy",
    ),
    45: (
        (
            "The partition expected another sequence: records were lost by an unclean leader"
            " election, or a second task wrote."
        ),
        "check unclean.leader.election.enable, and that no task was retried",
    ),
    47: LOST_EPOCH,
    48: (
        "The transaction is not in a state that allows the request: it was ended or timed out.",
        "raise the transaction timeout, or make micro-batches smaller (source.kafka.max_records)",
    ),
    49: (
        "The producer id does not belong to the transactional id: it expired, or it was taken.",
        "does a second copy run? Is transactional.id.expiration.ms shorter than the idle time?",
    ),
    50: (
        "The transaction timeout is longer than the broker allows.",
        (
            "lower the pipeline's transaction timeout, or raise the broker's"
            " transaction.max.timeout.ms"
        ),
    ),
    69: (
        "The name of the consumer group belongs to a group of another type.",
        "give the pipeline a group of its own; kafka-groups.sh --list shows the types",
    ),
    76: (
        "The broker does not know the compression codec.",
        "choose another codec for the sink",
    ),
    82: _FOREIGN_MEMBERS,
    87: (
        "The broker refuses a record: a compacted topic needs keys, or the record batch is wrong.",
        "check the topic's cleanup.policy against records without a key",
    ),
    90: LOST_EPOCH,
    120: (
        "The broker asks to abort: the transaction ended, or the request came too late.",
        "raise the transaction timeout, or make micro-batches smaller (source.kafka.max_records)",
    ),
}
