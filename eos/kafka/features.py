"""Check that a cluster supports the transaction protocol, and choose the profile: TV1 or TV2."""

from __future__ import annotations

from typing import Any

from kafka.protocol.metadata import ApiVersionsRequest

from eos.deadline import Deadline
from eos.errors import KafkaRefusedError, UnsupportedBrokerError
from eos.kafka import admin
from eos.kafka.api import TransactionProfile
from eos.kafka.cluster import Cluster
from eos.kafka.remedies import SUPPORTED_BROKERS
from eos.kafka.requests import VERSIONS

_FEATURE = "transaction.version"
_TV2 = 2
# With this setting, a leader accepts a record batch only if the coordinator confirms that the
# partition is part of the transaction (KIP-890). Under TV1, nothing else keeps a late record batch
# from becoming part of the next transaction, or from leaving a transaction open forever.
_VERIFICATION = "transaction.partition.verification.enable"
# Leaders verify with this version of AddPartitionsToTxn, which only brokers send. A broker without
# it can't verify partitions, and its coordinators can't answer leaders that do. Then late record
# batches are accepted.
_ADD_PARTITIONS, _VERIFIES = 24, 4


def transaction_version(cluster: Cluster, deadline: Deadline) -> int:
    return _finalized(cluster.query_any(_api_versions, deadline))


def profile_of(cluster: Cluster, deadline: Deadline) -> TransactionProfile:
    """Return the transaction profile that the cluster supports, or raise UnsupportedBrokerError.

    For TV2 one broker's answer suffices, because version 2 is finalized only after all brokers
    support it. For TV1 each broker is asked, because any of them may be older or may not verify."""
    if transaction_version(cluster, deadline) >= _TV2:
        return TransactionProfile.TV2
    for node, answer in cluster.query_each(lambda _node: _api_versions(), deadline).items():
        lacking = _lacking(answer)
        if lacking:
            raise UnsupportedBrokerError(
                "kafka_unsupported_version",
                f"broker {node} does not support {', '.join(lacking)}, which transactions need "
                f"because the cluster's {_FEATURE} is below {_TV2}",
                hint=SUPPORTED_BROKERS,
            )
    _require_verification(cluster, deadline)
    return TransactionProfile.TV1


def _require_verification(cluster: Cluster, deadline: Deadline) -> None:
    """Raise UnsupportedBrokerError unless each broker verifies partitions.

    A setting that can't be read counts as off. Without verification, records could be lost or
    duplicated, and nothing would detect it."""
    try:
        values = admin.broker_configs(cluster, _VERIFICATION, deadline)
    except KafkaRefusedError as refused:
        reason, remedy = refused.message, refused.hint
        raise UnsupportedBrokerError(
            "partition_verification_unreadable",
            f"{_VERIFICATION} can't be read, and must be true because the cluster's {_FEATURE} is "
            f"below {_TV2}: {reason}",
            hint=f"make this setting of the brokers readable: {remedy}",
        ) from refused
    off = sorted(node for node, value in values.items() if value.lower() != "true")
    if off:
        broker = off[0]
        raise UnsupportedBrokerError(
            "partition_verification_off",
            f"{_VERIFICATION} is false on broker {broker}, and the cluster's {_FEATURE} is below "
            f"{_TV2}: a late record batch could become part of another transaction",
            hint=f"run kafka-configs.sh --bootstrap-server ... --alter --entity-type brokers "
            f"--entity-default --add-config {_VERIFICATION}=true; or, if all brokers are 4.0 or "
            f"later, kafka-features.sh --bootstrap-server ... upgrade --feature {_FEATURE}=2",
            brokers=off,
        )


def _api_versions() -> Any:
    # kafka-python sends this request on each connection, too, but keeps only the API versions of
    # the answer. From version 3 on, the answer also has the cluster's features.
    return ApiVersionsRequest(
        version=3, client_software_name="spark-eos", client_software_version="1"
    )


def _finalized(response: Any) -> int:
    for feature in response.finalized_features or ():
        if feature.name == _FEATURE:
            return int(feature.max_version_level)
    return 0


def _lacking(response: Any) -> list[str]:
    """Return the request versions that TV1 needs and a broker lacks, such as `EndTxn version 3`.

    Most read-only requests use older versions, so they are not checked."""
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
