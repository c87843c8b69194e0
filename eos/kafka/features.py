"""Whether a cluster has what the transaction protocol needs, and which of the two profiles."""

from __future__ import annotations

from typing import Any

from kafka.protocol.metadata import ApiVersionsRequest

from eos.deadline import Deadline
from eos.errors import KafkaRefusedError, UnsupportedBrokerError
from eos.kafka import admin
from eos.kafka.api import TransactionProfile
from eos.kafka.cluster import Cluster
from eos.kafka.requests import VERSIONS

_FEATURE = "transaction.version"
_TV2 = 2
# Under TV1 nothing but this keeps a late record batch out of the next transaction, or from hanging
# for ever: the leader asks the coordinator whether the partition is in the transaction (KIP-890).
_VERIFICATION = "transaction.partition.verification.enable"
# How the leader asks: in this version of AddPartitionsToTxn, which is for brokers alone. A broker
# without it is not asked, and so takes everything.
_ADD_PARTITIONS, _VERIFIES = 24, 4
_TOO_OLD = "Kafka 3.6 is the oldest that is supported: upgrade the broker"


def transaction_version(cluster: Cluster, deadline: Deadline) -> int:
    return _finalized(cluster.ask_any(_api_versions, deadline))


def profile_of(cluster: Cluster, deadline: Deadline) -> TransactionProfile:
    """TV2 is finalized only once all brokers know it, so one of them speaks for all. For TV1 each
    is asked: any may be older, or have the verification switched off."""
    if transaction_version(cluster, deadline) >= _TV2:
        return TransactionProfile.TV2
    for node, answer in cluster.ask_each(lambda _node: _api_versions(), deadline).items():
        lacking = _lacking(answer)
        if lacking:
            raise UnsupportedBrokerError(
                f"broker {node} is too old: it lacks {', '.join(lacking)}", hint=_TOO_OLD
            )
    _require_verification(cluster, deadline)
    return TransactionProfile.TV1


def _require_verification(cluster: Cluster, deadline: Deadline) -> None:
    """What can't be read is not taken for granted: without the verification, records could be
    lost or come twice, and nothing would ever tell."""
    try:
        values = admin.broker_configs(cluster, _VERIFICATION, deadline)
    except KafkaRefusedError as refused:
        raise UnsupportedBrokerError(
            f"the cluster's {_FEATURE} is below {_TV2}, so {_VERIFICATION} must be on, and it "
            f"can't be read: {refused.message}",
            hint=refused.hint or "a broker without this setting is older than Kafka 3.6",
        ) from refused
    off = sorted(node for node, value in values.items() if value.lower() != "true")
    if off:
        raise UnsupportedBrokerError(
            f"{_VERIFICATION} is off on broker {off[0]}, and the cluster's {_FEATURE} is below "
            f"{_TV2}: a late record batch could get into another transaction",
            hint=f"kafka-configs.sh --bootstrap-server ... --alter --entity-type brokers "
            f"--entity-default --add-config {_VERIFICATION}=true; or, once all brokers are 4.0 or "
            f"later, kafka-features.sh --bootstrap-server ... upgrade --feature {_FEATURE}={_TV2}",
            brokers=off,
        )


def _api_versions() -> Any:
    # kafka-python asks this on each connection too, but keeps the API versions only. From version
    # 3 on the answer carries the features.
    return ApiVersionsRequest(
        version=3, client_software_name="spark-eos", client_software_version="1"
    )


def _finalized(response: Any) -> int:
    for feature in response.finalized_features or ():
        if feature.name == _FEATURE:
            return int(feature.max_version_level)
    return 0


def _lacking(response: Any) -> list[str]:
    """The requests of TV1, in their pinned versions, that this broker doesn't take. All that only
    look (`admin`, `cluster`, `records`) are older than these."""
    offered = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    versions = VERSIONS[TransactionProfile.TV1]
    pinned = {
        "Produce": (0, versions.produce),
        "InitProducerId": (22, versions.init_producer_id),
        "AddPartitionsToTxn": (_ADD_PARTITIONS, _VERIFIES),
        "AddOffsetsToTxn": (25, versions.add_offsets),
        "EndTxn": (26, versions.end_txn),
        "TxnOffsetCommit": (28, versions.txn_offset_commit),
        "OffsetFetch": (9, 8),
        "DescribeTransactions": (65, 0),
    }
    return [
        f"{name} version {version}"
        for name, (key, version) in pinned.items()
        if not (key in offered and offered[key][0] <= version <= offered[key][1])
    ]
