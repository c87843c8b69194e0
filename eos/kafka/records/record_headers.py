"""Encode the headers of all records of a column at once.

The headers of a record are a list of (key, value) structs, or a list of byte strings: all keys,
then all values. Spark converts the second form to Arrow in a fraction of the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.arrow import array_of, scalar_of, values_of
from eos.errors import RecordRefusedError
from eos.kafka.records import varint
from eos.kafka.records.columns import Blobs, blobs, bytes_of, sliced
from eos.kafka.records.varint import Ints


@dataclass(frozen=True, slots=True)
class Headers:
    """Headers of all records. `keys` and `values` have one element per header, record by record."""

    counts: Ints  # int32: number of headers of each record
    first: Ints  # int64: start of each record's headers in keys and values, plus the total at last
    keys: Blobs
    values: Blobs
    encoded: Any  # pa.BinaryArray: headers of each record in Kafka's format, without their count

    @property
    def byte_counts(self) -> Ints:
        """Return the size of each record's encoded headers (int64)."""
        return np.diff(bytes_of(self.encoded)[0]).astype(np.int64)


def headers(lists: Any) -> Headers | None:
    """Return the headers of all records, from a column of lists; None if no record has a header.

    Raise RecordRefusedError if a header's key is null."""
    if lists is None or pa.types.is_null(lists.type):
        return None
    counts = counts_of(lists)
    first = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=first[1:])
    if not first[-1]:
        return None
    flat = pc.list_flatten(lists)  # this skips values that a null list may cover
    of_keys, of_values = _halves(flat, counts, first) if is_flat(lists.type) else _fields(flat)
    keys, values = blobs(of_keys, "headers.key"), blobs(of_values, "headers.value")
    if (keys.lengths < 0).any():
        raise null_name()
    return Headers(counts, first, keys, values, _encode(keys, values, first))


def counts_of(lists: Any) -> Ints:
    """Return the number of headers of each record (int32), 0 for a null list."""
    has_halves = is_flat(lists.type)
    counts: Ints = values_of(pc.list_value_length(lists).cast(pa.int32()))
    if not has_halves:
        return counts
    if (counts & 1).any():
        raise ValueError("a record has different numbers of header keys and values")
    return counts >> 1


def null_name() -> RecordRefusedError:
    return RecordRefusedError(
        "header_key_null",
        "a record has a header with a null key, which Kafka does not support",
        hint="set the key of each element in the headers column; only a value may be null",
    )


def _encode(keys: Blobs, values: Blobs, first: Ints) -> Any:
    key_prefix, value_prefix = _length_prefixes(keys), _length_prefixes(values)
    empty = scalar_of(b"", pa.binary())
    each = pc.binary_join_element_wise(key_prefix, keys.array, value_prefix, values.array, empty)
    offsets, data = bytes_of(each)
    # `each` has one value per header, record by record. Keep only the offset at which each record's
    # headers begin: then the array has one value per record.
    return sliced(data, np.ascontiguousarray(offsets[first]))


def _length_prefixes(column: Blobs) -> Any:
    unsigned = varint.zigzag(column.lengths)
    rows = varint.RowBuilder(len(unsigned))
    rows.varint(unsigned, varint.sizes(unsigned))
    return rows.column()


def _fields(structs: Any) -> tuple[Any, Any]:
    return pc.struct_field(structs, 0), pc.struct_field(structs, 1)


def _halves(flat: Any, counts: Ints, first: Ints) -> tuple[Any, Any]:
    """Return all keys and all values of headers in the flat form: a record's keys, then values."""
    # The position of a key is its number among all keys, plus the number of values of earlier
    # records. The value of a key follows after as many elements as its record has headers.
    keys = np.arange(first[-1]) + np.repeat(first[:-1], counts)
    values = keys + np.repeat(counts, counts)
    return flat.take(array_of(keys, pa.int64())), flat.take(array_of(values, pa.int64()))


def is_flat(kind: Any) -> bool:
    """Return True for lists of byte strings (all keys, then all values), False for lists of pairs.

    Raise RecordRefusedError if a headers column has any other type."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        if pa.types.is_binary(kind.value_type):
            return True
        if pa.types.is_struct(kind.value_type) and kind.value_type.num_fields == 2:
            return False
    raise RecordRefusedError(
        "headers_column_type_invalid",
        f"column headers has the type {kind}; expected array<struct<key: string, value: binary>>",
        hint="cast the column in the last transform, or remove it",
        column="headers",
        type=str(kind),
    )
