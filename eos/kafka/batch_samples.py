"""Find the size of single record batches in a partition's log, as samples of its sizes."""

from __future__ import annotations

import struct
from typing import NamedTuple

from eos.deadline import Deadline
from eos.kafka.api import TopicPartition
from eos.kafka.cluster import Cluster
from eos.kafka.fetch import fetch
from eos.kafka.records.batch_headers import end_offset, is_control

_BASE = struct.Struct(">q")


class BatchSample(NamedTuple):
    """A record batch in a log: its first offset, the offset after its last one, and its bytes as
    they are in the log."""

    start: int
    end: int
    size: int
    is_control: bool  # a transaction marker, which has no record


def sample(
    cluster: Cluster, partition: TopicPartition, offset: int, deadline: Deadline
) -> BatchSample | None:
    """Return the record batch with this offset, or the next one if the log has none with it.

    Return None if the log has no record batch there that a committed reader may fetch."""
    # Whatever the limit is, a broker returns the first record batch as a whole.
    blob = fetch(cluster, partition, offset, deadline, bytes_max=1).blob
    end = end_offset(blob, offset)
    if end == offset:
        return None
    return BatchSample(_BASE.unpack_from(blob)[0], end, len(blob), is_control(blob))
