"""Compute the encoded size of each record, before the records are divided into record batches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eos.arrow import values_of
from eos.kafka.records import varint
from eos.kafka.records.columns import Blobs, Columns, blobs
from eos.kafka.records.native_rows import NativeRows
from eos.kafka.records.record_headers import Headers, headers
from eos.kafka.records.varint import Ints
from eos.native import library


@dataclass(frozen=True, slots=True)
class Layout:
    """Records as columns of bytes, with each record's field lengths and encoded size."""

    keys: Blobs
    values: Blobs
    headers: Headers | None
    timestamps: Ints | None  # int64 ms; None: all have the base timestamp
    base_timestamp_ms: int
    key_length: Ints  # zigzag numbers, like value_length and header_count
    key_length_sizes: Ints
    value_length: Ints
    value_length_sizes: Ints
    header_count: Ints
    header_count_sizes: Ints
    # Size of each record without its length, timestamp delta and offset delta. Those three fields
    # depend on the record batch.
    sizes: Ints

    def __len__(self) -> int:
        return len(self.sizes)


def layout(columns: Columns, base_timestamp_ms: int) -> Layout | NativeRows:
    """Return the records with their encoded sizes.

    The type depends on whether there is a native library. Both types encode to the same bytes."""
    native = library.load()
    if native is not None:
        return NativeRows(native, columns, base_timestamp_ms)
    return numpy_layout(columns, base_timestamp_ms)


def numpy_layout(columns: Columns, base_timestamp_ms: int) -> Layout:
    keys, values = blobs(columns.key, "key"), blobs(columns.value, "value")
    listed = headers(columns.headers)
    key_length, value_length = varint.zigzag(keys.lengths), varint.zigzag(values.lengths)
    key_length_sizes, value_length_sizes = varint.sizes(key_length), varint.sizes(value_length)
    sizes = key_length_sizes + value_length_sizes + keys.byte_counts + values.byte_counts
    sizes += 1  # attributes
    if listed is None:
        header_count = header_count_sizes = np.zeros(0, np.int64)
        sizes += 1  # the header count, 0
    else:
        header_count = varint.zigzag(listed.counts)
        header_count_sizes = varint.sizes(header_count)
        sizes += header_count_sizes + listed.byte_counts
    timestamps = None
    if columns.timestamp is not None:
        timestamps = values_of(columns.timestamp, null=base_timestamp_ms)
    return Layout(
        keys=keys,
        values=values,
        headers=listed,
        timestamps=timestamps,
        base_timestamp_ms=base_timestamp_ms,
        key_length=key_length,
        key_length_sizes=key_length_sizes,
        value_length=value_length,
        value_length_sizes=value_length_sizes,
        header_count=header_count,
        header_count_sizes=header_count_sizes,
        sizes=sizes,
    )
