"""Encode columns as Kafka records with the native library.

First the library sorts the columns by target partition. Then it writes the records of one record
batch at a time, into memory that is reused for the next one.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.arrow import values_of
from eos.kafka.records.columns import Blobs, Columns, as_binary, bytes_of
from eos.kafka.records.digest import digest
from eos.kafka.records.record_headers import Headers, counts_of, is_flat, null_name
from eos.kafka.records.varint import Ints
from eos.native.memory import POOL, layout
from eos.native.structs import NEEDS_ROOM, NULL_NAME, PLACES, Encoder, Grouping, Source
from eos.native.structs import address as address_of

_ROOM_BYTES_MIN = 1 << 20


class SourceColumn:
    """A binary column that the library reads. `struct` is valid only as long as this object."""

    def __init__(self, array: Any, name: str) -> None:
        binary = as_binary(array, name)
        offsets, data = bytes_of(binary)
        valid = binary.buffers()[0] if binary.null_count else None
        self._kept = binary, offsets, data
        self.struct = Source(
            address_of(offsets),
            address_of(data),
            len(data),
            None if valid is None else valid.address,
            binary.offset,
            len(binary),
        )


class NativeRows:
    """Records sorted by target partition, with the encoded size of each.

    `targets` has the target's number for each row, below `targets_max`. Records of one target keep
    the order of the rows. Without `targets`, all rows belong to one target. The arrays of this
    object are in memory that is reused after it, so they are valid only as long as the object.
    """

    def __init__(
        self,
        library: Any,
        columns: Columns,
        base_timestamp_ms: int,
        targets: Ints | None = None,
        targets_max: int = 1,
    ) -> None:
        rows = len(columns)
        self._library = library
        # Memory for `timestamps`, `order` and `sizes`.
        self._numbers = [POOL.lease(8 * rows) for _ in range(3)]
        # The structs have addresses of these arrays. Keep the arrays until the columns are sorted.
        self._kept: list[Any] = []
        grouping = Grouping(rows=rows, targets=targets_max)
        self._places = np.empty((targets_max, PLACES), np.int64)
        grouping.places = address_of(self._places)
        if targets is not None:
            grouping.target = self._address(targets, np.int64)
        grouping.key = self._source(columns.key, "key")
        grouping.value = self._source(columns.value, "value")
        self._read_headers(columns.headers, grouping)
        self.base_timestamp_ms = base_timestamp_ms
        self.timestamps: Ints | None = None
        if columns.timestamp is not None:
            times = values_of(columns.timestamp, null=base_timestamp_ms)
            grouping.timestamps = self._address(times, np.int64)
            self.timestamps = self._numbers[0].view(np.int64)
            grouping.sorted_timestamps = address_of(self.timestamps)
        self.order: Ints = self._numbers[1].view(np.int64)
        grouping.order = address_of(self.order)
        _check(library.eos_count(ctypes.byref(grouping)))
        self._group(grouping)
        self.sizes: Ints = self._numbers[2].view(np.int64)
        self._encoder = self._measured(grouping)
        self._room: Any = POOL.lease(_ROOM_BYTES_MIN)
        self._kept = []

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def target_ends(self) -> Ints:
        """Return for each target the index after its last record."""
        return self._places[:, 0]

    def fitting(self, start: int, end: int, room: int) -> int:
        """Return how many records from `start` on, at most up to `end`, fit into `room` bytes.

        The first of them is the first record of a record batch."""
        self._encoder.start, self._encoder.end = start, end
        return int(self._library.eos_fit(ctypes.byref(self._encoder), room))

    def write(self, start: int, end: int) -> tuple[Ints, int]:
        """Encode the records from `start` to `end` (exclusive) as the content of one record batch.

        Return the uncompressed bytes, which are valid until the next call, and their digest."""
        encoder = self._encoder
        encoder.start, encoder.end = start, end
        while True:
            encoder.out, encoder.out_capacity = address_of(self._room), len(self._room)
            result = self._library.eos_write(ctypes.byref(encoder))
            if result != NEEDS_ROOM:
                break
            self._room = POOL.lease(encoder.out_size)
        _check(result)
        crc = digest(self._keys, self._values, self._headers, start, end)
        return self._room[: encoder.out_size], crc

    def _address(self, values: Any, kind: Any) -> int:
        array = np.ascontiguousarray(values, kind)
        self._kept.append(array)
        return address_of(array)

    def _source(self, array: Any, name: str) -> Source:
        column = SourceColumn(array, name)
        self._kept.append(column)
        return column.struct

    def _read_headers(self, lists: Any, grouping: Grouping) -> None:
        if lists is None or pa.types.is_null(lists.type):
            return
        counts = counts_of(lists)
        if not counts.any():
            return
        ends = values_of(lists.offsets)
        first = ends[:-1] - ends[0]
        elements = lists.values.slice(int(ends[0]), int(ends[-1] - ends[0]))
        grouping.header_counts = self._address(counts, np.int32)
        grouping.first_name = grouping.first_text = self._address(first, np.int32)
        if is_flat(lists.type):
            names = texts = elements
            grouping.first_text = self._address(first + counts, np.int32)
        else:
            names, texts = pc.struct_field(elements, 0), pc.struct_field(elements, 1)
        grouping.name = self._source(names, "headers.key")
        grouping.text = self._source(texts, "headers.value")

    def _group(self, grouping: Grouping) -> None:
        """Let the library write keys, values, headers and timestamps, sorted by target."""
        rows, count = grouping.rows, grouping.headers
        has_headers = bool(grouping.header_counts)
        columns = [(grouping.sorted_key, rows), (grouping.sorted_value, rows)]
        if has_headers:
            columns += [(grouping.sorted_name, count), (grouping.sorted_text, count)]
        sizes = [size for each, n in columns for size in (4 * n, 4 * (n + 1), each.size)]
        starts, total = layout((*sizes, 4 * rows, 8 * (rows + 1)))
        self._lease = lease = POOL.lease(total)
        parts = [lease[start : start + size] for start, size in zip(starts, sizes, strict=False)]
        blobs = []
        for index, (column, _) in enumerate(columns):
            lengths, offsets, data = parts[3 * index : 3 * index + 3]
            column.lengths, column.offsets = address_of(lengths), address_of(offsets)
            column.data = address_of(data)
            blobs.append(Blobs(None, lengths.view(np.int32), offsets.view(np.int32), data))
        self._keys, self._values, self._headers = blobs[0], blobs[1], None
        if has_headers:
            counts = lease[starts[-2] :][: 4 * rows].view(np.int32)
            first = lease[starts[-1] :][: 8 * (rows + 1)].view(np.int64)
            grouping.sorted_counts = address_of(counts)
            grouping.sorted_first = address_of(first)
            self._headers = Headers(counts, first, blobs[2], blobs[3], None)
        _check(self._library.eos_group(ctypes.byref(grouping)))

    def _measured(self, grouping: Grouping) -> Encoder:
        """Compute the sizes of the sorted records, and return the struct to encode them with."""
        encoder = Encoder(
            rows=grouping.rows,
            key=grouping.sorted_key,
            value=grouping.sorted_value,
            timestamps=grouping.sorted_timestamps,
            counts=grouping.sorted_counts,
            first=grouping.sorted_first,
            name=grouping.sorted_name,
            text=grouping.sorted_text,
            sizes=address_of(self.sizes),
        )
        _check(self._library.eos_measure(ctypes.byref(encoder)))
        return encoder


def _check(result: int) -> None:
    if result == NULL_NAME:
        raise null_name()
    if result:
        raise ValueError("a column of the records is no valid Arrow array, or larger than 2 GB")
