"""Fetch raw bytes of a partition's log from its leader."""

from __future__ import annotations

from typing import Any, NamedTuple

from kafka.protocol.consumer.fetch import FetchRequest

from eos.deadline import Deadline
from eos.errors import UnavailableError
from eos.kafka.api import TopicPartition
from eos.kafka.cluster import LAST_MOMENTS_MS, Cluster
from eos.kafka.outcomes import LEADER_HINT, LEADER_RETRIED, name_of
from eos.kafka.refusals import refused

FETCH_BYTES_MAX = 4 * 1024 * 1024
_WAIT_MS = 500
_OUT_OF_RANGE = 1


class FetchedBytes(NamedTuple):
    """Raw bytes of a log.

    `blob` has whole record batches and possibly part of one more. `aborted` lists (producer id,
    first offset) of the aborted transactions in `blob`, which a read_committed reader must skip."""

    blob: bytes
    aborted: tuple[tuple[int, int], ...]


def fetch(
    cluster: Cluster, partition: TopicPartition, position: int, deadline: Deadline, bytes_max: int
) -> FetchedBytes:
    """Return bytes of the log from `position` on, at most up to the last stable offset.

    They include aborted transactions, which the caller must skip. A position outside the log yields
    no bytes. If the leader moves, retry until the deadline."""
    where = f"{partition.topic}-{partition.partition} from offset {position}"
    error: int | None = None  # None: no answer yet
    while not deadline.has_passed:
        found = fetch_once(cluster, partition, position, True, deadline, bytes_max)
        if found is None:
            error = None if deadline.left_ms > LAST_MOMENTS_MS else error
        elif found.error_code in LEADER_RETRIED:
            error = found.error_code
        elif found.error_code not in {0, _OUT_OF_RANGE}:
            raise refused("Fetch", found.error_code, where)
        else:
            listed = found.aborted_transactions or ()
            return FetchedBytes(
                bytes(found.records or b"") if not found.error_code else b"",
                tuple((each.producer_id, each.first_offset) for each in listed),
            )
        cluster.pause(deadline)
    last_error = "its leader did not answer" if error is None else name_of(error)
    raise UnavailableError(
        "partition_leader_unavailable",
        f"{where} could not be read in time: {last_error}",
        hint=LEADER_HINT,
    )


def fetch_once(
    cluster: Cluster,
    partition: TopicPartition,
    position: int,
    committed: bool,
    deadline: Deadline,
    bytes_max: int = FETCH_BYTES_MAX,
) -> Any:
    """Send one Fetch request. Return the partition's part of the response, with its error code.

    Return None if no leader was found, it did not answer, or it throttles this client."""
    topic = FetchRequest.FetchTopic
    request = FetchRequest(
        version=12,
        replica_id=-1,
        max_wait_ms=deadline.at_most_ms(_WAIT_MS),
        min_bytes=1,
        max_bytes=bytes_max,
        isolation_level=int(committed),
        topics=[
            topic(
                topic=partition.topic,
                partitions=[
                    topic.FetchPartition(
                        partition=partition.partition,
                        fetch_offset=position,
                        partition_max_bytes=bytes_max,
                    )
                ],
            )
        ],
        forgotten_topics_data=[],
    )
    try:
        leader = cluster.leaders([partition], deadline)[partition]
    except UnavailableError:
        return None
    response = cluster.try_once(leader, request, deadline)
    if response is None:
        return None
    if response.error_code and response.error_code not in LEADER_RETRIED:
        raise refused("Fetch", response.error_code, f"{partition.topic}-{partition.partition}")
    # A throttled response has no topics. Then the connection waits before it sends again.
    if not response.responses:
        return None
    return response.responses[0].partitions[0]
