"""Where records lie, in as few columns as will do: each costs time on its way out of the JVM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from eos.arrow import array_of, longs, text_of, values_of
from eos.kafka.api import TopicPartition

PARTITIONS_MAX, OFFSETS_MAX = 1 << 16, 1 << 47


def unpacked(at: Any, topics: Sequence[Any], topic: str) -> tuple[Any, Any, Any]:
    """Topic, partition and offset of each row: `at` has two of them in one number
    (`encode.record_errors`
    says how), and `topics` is a column, or empty where all rows are of this `topic`."""
    numbers = values_of(at)
    names = topics[0] if topics else text_of(topic, len(numbers))
    return names, array_of(numbers & 0xFFFF, pa.int32()), longs(numbers >> 16)


def by_partition(topic: Any, partition: Any) -> Iterator[tuple[TopicPartition, Any]]:
    """Each partition with the places of its rows; a slice where all are of one, as they are where
    Spark's source reads."""
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
