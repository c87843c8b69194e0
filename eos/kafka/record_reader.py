"""Read the records in an offset range of one partition, such as a ledger or dead letters."""

from __future__ import annotations

import struct

from eos.deadline import Deadline
from eos.kafka.api import TopicPartition
from eos.kafka.cluster import LAST_MOMENTS_MS, Cluster
from eos.kafka.fetch import fetch_once
from eos.kafka.outcomes import LEADER_RETRIED
from eos.kafka.read_errors import too_late, unreadable
from eos.kafka.records.batch_headers import Batch, Old, Visibility, batches
from eos.kafka.records.decompression import BrokenPayloadError
from eos.kafka.records.parser import Marker, StoredRecord, marker_of, stored_records
from eos.kafka.refusals import refused

__all__ = ["Marker", "StoredRecord", "read_records"]


def read_records(
    cluster: Cluster,
    partition: TopicPartition,
    offset_start: int,
    offset_end: int,
    committed: bool,
    deadline: Deadline,
    records_max: int,
    bytes_max: int,
    markers: list[Marker] | None = None,
) -> list[StoredRecord]:
    """Return the records of a range, and add the markers between them to `markers`."""
    found: list[StoredRecord] = []
    size, position, offsets = 0, offset_start, range(offset_start, offset_end)
    error: int | None = None  # no answer yet
    while position < offset_end:
        if deadline.has_passed:
            raise too_late(partition, position, offset_end, error, committed)
        result = fetch_once(cluster, partition, position, committed, deadline)
        if result is None:
            # If this try only ran out of time, keep the last answer's code.
            error = None if deadline.left_ms > LAST_MOMENTS_MS else error
            cluster.pause(deadline)
            continue
        error = result.error_code
        if error in LEADER_RETRIED:
            cluster.pause(deadline)
            continue
        if error:
            raise refused("Fetch", error, f"{partition} from offset {position}")
        before, aborted = position, result.aborted_transactions or ()
        visibility = Visibility((each.producer_id, each.first_offset) for each in aborted)
        for batch in batches(bytes(result.records or b"")):
            if position >= offset_end:
                break  # a Fetch response of 1 MB may hold thousands of further batches
            is_wanted = batch.last_offset >= offset_start
            if isinstance(batch, Batch):
                _examine(batch, partition, markers)
                is_visible = visibility.of(batch) or not committed
                is_wanted &= batch.offset < offset_end and is_visible and not batch.is_control
            for record in _records(partition, batch, offsets) if is_wanted else ():
                if len(found) == records_max or size >= bytes_max:
                    return found
                found.append(record)
                size += record.bytes
            # Advance past batches that yield nothing, too: compacted, aborted or control batches.
            position = max(position, batch.last_offset + 1)
        if position == before and result.records:  # a retry would return the same bytes
            raise unreadable(partition, position, "it contains no complete record batch")
    return found


def _examine(batch: Batch, partition: TopicPartition, markers: list[Marker] | None) -> None:
    """Add the marker in a record batch, if it is a control batch with one.

    Raise PromiseBrokenError if the record batch is damaged. Damage can make it look like a marker
    or an aborted one, which readers skip."""
    if not batch.is_sound:
        raise unreadable(partition, batch.last_offset, "its checksum or its header is wrong")
    if markers is None:
        return
    try:
        marker = marker_of(batch)
    except (BrokenPayloadError, ValueError, struct.error) as error:
        raise unreadable(partition, batch.last_offset, str(error)) from error
    if marker is not None:
        markers.append(marker)


def _records(partition: TopicPartition, batch: Batch | Old, offsets: range) -> list[StoredRecord]:
    """Return the batch's records with these offsets."""
    try:
        if isinstance(batch, Old):
            raise BrokenPayloadError("its format is older than Kafka 0.11")
        return [each for each in stored_records(batch) if each.offset in offsets]
    except BrokenPayloadError as error:
        raise unreadable(partition, batch.last_offset, str(error)) from error
