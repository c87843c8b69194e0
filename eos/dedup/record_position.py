"""How does a Python task of dedup get the topic, partition and offset of its rows?

Each column costs time between JVM and Python. So partition and offset are one 64-bit number, and
the topic is a column only if the source has several topics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from eos.arrow import array_of, longs, text_of, values_of
from eos.errors import UsageError
from eos.kafka.api import TopicPartition

PARTITIONS_MAX, OFFSETS_MAX = 1 << 16, 1 << 47


def require_positions(ends: Mapping[TopicPartition, int]) -> None:
    """Raise UsageError for a partition or an offset that is too large for dedup.

    Python gets both in one 64-bit number. A larger partition or offset would overflow into the
    position of another record.
    """
    for tp, end in ends.items():
        if tp.partition >= PARTITIONS_MAX or end > OFFSETS_MAX:
            raise UsageError(
                "dedup_offset_limit",
                f"{tp.topic}-{tp.partition} ends at offset {end}, but `dedup` supports partitions "
                f"below {PARTITIONS_MAX:,} and offsets up to {OFFSETS_MAX:,}",
                hint="remove `dedup` from the pipeline file, or this topic from its source",
            )


def unpacked(at: Any, topics: Sequence[Any], topic: str) -> tuple[Any, Any, Any]:
    """Return topic, partition and offset of each row.

    `at` holds the offset in its high bits and the partition in its low 16 bits. `topics` holds the
    topic column, or is empty if all rows are from `topic`."""
    numbers = values_of(at)
    names = topics[0] if topics else text_of(topic, len(numbers))
    return names, array_of(numbers & 0xFFFF, pa.int32()), longs(numbers >> 16)


def by_partition(topic: Any, partition: Any) -> Iterator[tuple[TopicPartition, Any]]:
    """Yield each partition with the indexes of its rows.

    If all rows are from one partition, as in a task that reads the source, the index is a slice."""
    numbers, names = values_of(partition), topic.dictionary_encode()
    if isinstance(names, pa.ChunkedArray):
        names = names.combine_chunks()
    texts, of = names.dictionary.to_pylist(), values_of(names.indices)
    if len(texts) == 1 and (numbers == numbers[0]).all():
        yield TopicPartition(texts[0], int(numbers[0])), slice(None)
        return
    for at, text in enumerate(texts):
        for number in np.unique(numbers[of == at]).tolist():
            yield TopicPartition(text, number), np.flatnonzero((of == at) & (numbers == number))
