"""How are the records of a range of one partition read? (Used for ledgers and dead letters.)"""

from __future__ import annotations

from eos.deadline import Deadline
from eos.errors import PromiseBrokenError, UnavailableError
from eos.kafka.api import TopicPartition
from eos.kafka.cluster import LAST_MOMENTS_MS, Cluster
from eos.kafka.fetch import RETRIED, fetch_once
from eos.kafka.outcomes import LEADER_HINT, name_of
from eos.kafka.records.batch_headers import Batch, Old, Visibility, batches
from eos.kafka.records.decompression import BrokenPayloadError
from eos.kafka.records.parser import StoredRecord, stored_records
from eos.kafka.refusals import refused

__all__ = ["StoredRecord", "read_records"]


def read_records(
    cluster: Cluster,
    partition: TopicPartition,
    offset_start: int,
    offset_end: int,
    committed: bool,
    deadline: Deadline,
    records_max: int,
    bytes_max: int,
) -> list[StoredRecord]:
    found: list[StoredRecord] = []
    size = 0
    position = offset_start
    error: int | None = None  # None: no answer yet
    while position < offset_end:
        if deadline.has_passed:
            raise _too_late(partition, position, offset_end, error, committed)
        result = fetch_once(cluster, partition, position, committed, deadline)
        if result is None:
            # Keep the error of an earlier answer if this try only ran out of time.
            error = None if deadline.left_ms > LAST_MOMENTS_MS else error
            cluster.pause(deadline)
            continue
        error = result.error_code
        if error in RETRIED:
            cluster.pause(deadline)
            continue
        if error:
            where = f"{partition.topic}-{partition.partition} from offset {position}"
            raise refused("Fetch", error, where)
        before, listed = position, result.aborted_transactions or ()
        visibility = Visibility((each.producer_id, each.first_offset) for each in listed)
        for batch in batches(bytes(result.records or b"")):
            is_wanted = batch.last_offset >= offset_start
            if isinstance(batch, Batch):
                is_visible = visibility.of(batch) or not committed
                is_wanted &= batch.offset < offset_end and is_visible and not batch.is_control
            for record in _records(partition, batch) if is_wanted else ():
                if not offset_start <= record.offset < offset_end:
                    continue
                if len(found) == records_max or size >= bytes_max:
                    return found
                found.append(record)
                size += record.bytes
            # Advance past compacted, hidden and control batches as well.
            position = max(position, batch.last_offset + 1)
        if position == before and result.records:  # a retry would return the same bytes
            raise _unreadable(partition, position, "it contains no complete record batch")
    return found


def _records(partition: TopicPartition, batch: Batch | Old) -> list[StoredRecord]:
    try:
        if isinstance(batch, Old):
            raise BrokenPayloadError("its format is older than Kafka 0.11")
        return stored_records(batch)
    except BrokenPayloadError as error:
        raise _unreadable(partition, batch.last_offset, str(error)) from error


def _unreadable(partition: TopicPartition, offset: int, cause: str) -> PromiseBrokenError:
    topic, number = partition
    return PromiseBrokenError(
        "batch_unreadable",
        f"the record batch in {topic}-{number} that ends at offset {offset} can't be read: {cause}",
        hint="if a second run reports the same offset, the log is damaged: run "
        f"`kafka-dump-log.sh --deep-iteration` on the broker for the segment of {topic}-{number}; "
        "another replica may have an intact copy",
        topic=topic,
        partition=number,
        offset=offset,
    )


def _too_late(
    partition: TopicPartition, position: int, offset_end: int, error: int | None, committed: bool
) -> UnavailableError:
    where = f"{partition.topic}-{partition.partition}"
    if error == 0 and committed:
        return UnavailableError(
            "read_blocked_by_open_transaction",
            f"{where} could not be read from offset {position} to {offset_end} in time",
            hint="an open transaction blocks readers until it ends or times out: "
            "`kafka-transactions.sh --bootstrap-server ... list` shows it",
            offset=position,
        )
    last_error = "its leader did not answer" if error is None else name_of(error)
    if error == 0:
        last_error = "too little time was left"
    return UnavailableError(
        "partition_leader_unavailable",
        f"{where} could not be read from offset {position} to {offset_end} in time: {last_error}",
        hint=LEADER_HINT,
        offset=position,
    )
