"""Build the requests of a transaction, and parse their responses.

Each API version is fixed, because a broker derives the transaction version (TV1 or TV2) only from
the request's API version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kafka.protocol.producer.produce import ProduceRequest
from kafka.protocol.producer.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)

from eos.kafka.api import (
    Answer,
    CommittedOffset,
    Identity,
    IdentityAnswer,
    ProduceAnswer,
    TopicPartition,
    TransactionProfile,
)

Blob = bytes | bytearray | memoryview

_NOTHING_SAID = -1  # UNKNOWN_SERVER_ERROR, used if the response lacks a partition


class Versions(NamedTuple):
    """API version of each request, for one transaction profile.

    TV1 uses the newest versions of Kafka 3.6. Later TV1 versions, up to Produce 11 and EndTxn 4,
    differ only in returning TRANSACTION_ABORTABLE in place of INVALID_TXN_STATE.
    """

    init_producer_id: int
    produce: int
    txn_offset_commit: int
    end_txn: int
    add_partitions: int = 3  # versions from 4 on are for brokers only
    add_offsets: int = 3


VERSIONS: Mapping[TransactionProfile, Versions] = {
    TransactionProfile.TV1: Versions(init_producer_id=4, produce=9, txn_offset_commit=3, end_txn=3),
    TransactionProfile.TV2: Versions(
        init_producer_id=5, produce=12, txn_offset_commit=5, end_txn=5
    ),
}


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    topics: dict[str, list[TopicPartition]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp)
    return topics


def init_producer_id(
    version: int, transactional_id: str, timeout_ms: int, identity: Identity
) -> Any:
    return InitProducerIdRequest(
        version=version,
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
    )


def initialised(response: Any) -> IdentityAnswer:
    if response.error_code:
        return IdentityAnswer(response.error_code)
    return IdentityAnswer(0, Identity(response.producer_id, response.producer_epoch))


def add_partitions(
    version: int, transactional_id: str, identity: Identity, partitions: Iterable[TopicPartition]
) -> Any:
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    return AddPartitionsToTxnRequest(
        version=version,
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[
            topic(name=name, partitions=[tp.partition for tp in tps])
            for name, tps in by_topic(partitions).items()
        ],
    )


def partitions_added(response: Any) -> dict[TopicPartition, Answer]:
    return {
        TopicPartition(topic.name, result.partition_index): Answer(result.partition_error_code)
        for topic in response.results_by_topic_v3_and_below
        for result in topic.results_by_partition
    }


def add_offsets(version: int, transactional_id: str, identity: Identity, group: str) -> Any:
    return AddOffsetsToTxnRequest(
        version=version,
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        group_id=group,
    )


def produce(
    version: int,
    transactional_id: str,
    record_batches: Mapping[TopicPartition, Blob],
    timeout_ms: int,
) -> Any:
    topic = ProduceRequest.TopicProduceData
    partition = topic.PartitionProduceData
    return ProduceRequest(
        version=version,
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=timeout_ms,
        topic_data=[
            topic(
                name=name,
                partition_data=[
                    partition(index=tp.partition, records=record_batches[tp]) for tp in tps
                ],
            )
            for name, tps in by_topic(record_batches).items()
        ],
    )


def produced(
    response: Any, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ProduceAnswer]:
    answers = {
        TopicPartition(topic.name, result.index): ProduceAnswer(
            result.error_code, result.base_offset, result.error_message or ""
        )
        for topic in response.responses
        for result in topic.partition_responses
    }
    nothing = ProduceAnswer(_NOTHING_SAID, message="the response leaves this partition out")
    return {tp: answers.get(tp, nothing) for tp in partitions}


def commit_offsets(
    version: int,
    transactional_id: str,
    identity: Identity,
    group: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
) -> Any:
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    partition = topic.TxnOffsetCommitRequestPartition
    return TxnOffsetCommitRequest(
        version=version,
        transactional_id=transactional_id,
        group_id=group,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=[
            topic(
                name=name,
                partitions=[
                    partition(
                        partition_index=tp.partition,
                        committed_offset=offsets[tp].offset,
                        committed_leader_epoch=-1,
                        committed_metadata=offsets[tp].metadata,
                    )
                    for tp in tps
                ],
            )
            for name, tps in by_topic(offsets).items()
        ],
    )


def offsets_committed(
    response: Any, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Answer]:
    answers = {
        TopicPartition(topic.name, result.partition_index): Answer(result.error_code)
        for topic in response.topics
        for result in topic.partitions
    }
    nothing = Answer(_NOTHING_SAID, "the response leaves this partition out")
    return {tp: answers.get(tp, nothing) for tp in partitions}


def end_txn(version: int, transactional_id: str, identity: Identity, commit: bool) -> Any:
    return EndTxnRequest(
        version=version,
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=commit,
    )


def ended(response: Any, identity: Identity) -> IdentityAnswer:
    """Return the error or the next identity from an EndTxn response.

    Version 5 returns a new identity. Earlier versions return none, and `identity` stays valid."""
    if response.error_code:
        return IdentityAnswer(response.error_code)
    if response.producer_id < 0:
        return IdentityAnswer(0, identity)
    return IdentityAnswer(0, Identity(response.producer_id, response.producer_epoch))
