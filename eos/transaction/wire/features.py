"""Whether a cluster has what the transaction protocol needs."""

from __future__ import annotations

from typing import Any

from kafka.protocol.metadata import ApiVersionsRequest

from eos.deadline import Deadline
from eos.errors import UnsupportedBrokerError
from eos.transaction.port import Profile
from eos.transaction.wire.cluster import Cluster
from eos.transaction.wire.requests import VERSIONS

_FEATURE = "transaction.version"
_NEEDED = 2


def transaction_version(cluster: Cluster, deadline: Deadline) -> int:
    return _finalized(_api_versions(cluster, deadline))


def require_supported(cluster: Cluster, deadline: Deadline) -> None:
    response = _api_versions(cluster, deadline)
    lacking = _lacking(response)
    if lacking:
        raise UnsupportedBrokerError(
            f"the broker is too old: it lacks {', '.join(lacking)}",
            hint="brokers from 4.0 are supported",
        )
    finalized = _finalized(response)
    if finalized < _NEEDED:
        # The brokers themselves are new enough: they offer EndTxn 5. Not every node may be.
        raise UnsupportedBrokerError(
            f"the cluster's finalized {_FEATURE} is {finalized}, and {_NEEDED} is needed",
            hint=(
                "once all brokers are upgraded: kafka-features.sh --bootstrap-server ... upgrade "
                f"--feature {_FEATURE}={_NEEDED}"
            ),
            finalized=finalized,
        )


def _api_versions(cluster: Cluster, deadline: Deadline) -> Any:
    # kafka-python asks this on each connection too, but keeps the API versions only. From version
    # 3 on the answer carries the features.
    return cluster.ask_any(
        lambda: ApiVersionsRequest(
            version=3, client_software_name="spark-eos", client_software_version="1"
        ),
        deadline,
    )


def _finalized(response: Any) -> int:
    for feature in response.finalized_features or ():
        if feature.name == _FEATURE:
            return int(feature.max_version_level)
    return 0


def _lacking(response: Any) -> list[str]:
    """The pinned requests that this broker doesn't take."""
    offered = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    versions = VERSIONS[Profile.TV2]
    pinned = {
        "Produce": (0, versions.produce),
        "InitProducerId": (22, versions.init_producer_id),
        "EndTxn": (26, versions.end_txn),
        "TxnOffsetCommit": (28, versions.txn_offset_commit),
        "FindCoordinator": (10, 4),
        "OffsetFetch": (9, 8),
        "DescribeProducers": (61, 0),
    }
    return [
        f"{name} version {version}"
        for name, (key, version) in pinned.items()
        if not (key in offered and offered[key][0] <= version <= offered[key][1])
    ]
