"""Record headers: flattened, encoded at once, cut up by record.

A record's headers are a list of (key, value) structs; or one of byte strings, all of its keys and
then as many values. Spark makes Arrow columns of those in a fraction of the time.
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
    """Every record's headers; `keys` and `values` are those of all records, one after the other."""

    counts: Ints  # int32, how many headers a record has
    first: Ints  # int64, one more than records: where a record's headers begin in keys and values
    keys: Blobs
    values: Blobs
    encoded: Any  # pa.BinaryArray: a record's headers as Kafka writes them, without their count

    @property
    def byte_counts(self) -> Ints:
        """int64, of the encoded headers of each record."""
        return np.diff(bytes_of(self.encoded)[0]).astype(np.int64)


def headers(lists: Any) -> Headers | None:
    """Nothing if no record has a header: then the record's last byte is a 0 and that is all."""
    if lists is None or pa.types.is_null(lists.type):
        return None
    is_flat = _is_flat(lists.type)
    counts = values_of(pc.list_value_length(lists).cast(pa.int32()))
    if is_flat:
        if (counts & 1).any():
            raise ValueError("a record has another number of header keys than of values")
        counts = counts >> 1
    first = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=first[1:])
    if not first[-1]:
        return None
    flat = pc.list_flatten(lists)  # without what lies beneath null lists
    of_keys, of_values = _halves(flat, counts, first) if is_flat else _fields(flat)
    keys, values = blobs(of_keys, "headers.key"), blobs(of_values, "headers.value")
    if (keys.lengths < 0).any():
        raise RecordRefusedError(
            "a record has a header without a key, which Kafka can't hold",
            hint="give every element of the headers column a key; only its value may be null",
        )
    return Headers(counts, first, keys, values, _encode(keys, values, first))


def _encode(keys: Blobs, values: Blobs, first: Ints) -> Any:
    key_prefix, value_prefix = _length_prefixes(keys), _length_prefixes(values)
    empty = scalar_of(b"", pa.binary())
    each = pc.binary_join_element_wise(key_prefix, keys.array, value_prefix, values.array, empty)
    offsets, data = bytes_of(each)
    # A record's headers lie next to each other already: only the offsets get fewer.
    return sliced(data, np.ascontiguousarray(offsets[first]))


def _length_prefixes(column: Blobs) -> Any:
    unsigned = varint.zigzag(column.lengths)
    rows = varint.RowBuilder(len(unsigned))
    rows.varint(unsigned, varint.sizes(unsigned))
    return rows.column()


def _fields(structs: Any) -> tuple[Any, Any]:
    return pc.struct_field(structs, 0), pc.struct_field(structs, 1)


def _halves(flat: Any, counts: Ints, first: Ints) -> tuple[Any, Any]:
    """Keys and values of all records, out of each record's keys and then its values."""
    # Before a record's keys lie as many values as keys, and before its values its own keys, too.
    keys = np.arange(first[-1]) + np.repeat(first[:-1], counts)
    values = keys + np.repeat(counts, counts)
    return flat.take(array_of(keys, pa.int64())), flat.take(array_of(values, pa.int64()))


def _is_flat(kind: Any) -> bool:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        if pa.types.is_binary(kind.value_type):
            return True
        if pa.types.is_struct(kind.value_type) and kind.value_type.num_fields == 2:
            return False
    raise RecordRefusedError(
        f"column headers has the type {kind}",
        hint="headers are array<struct<key: string, value: binary>>",
        column="headers",
        type=str(kind),
    )
