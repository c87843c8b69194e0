"""How does the native library encode columns as records?

First it writes the columns in the order of the records, target by target. Then it writes the
records of one record batch at a time into memory that is used again.
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
    """A binary column for the library to read. The struct is valid as long as this object."""

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
    """Records in the order in which they are written, with their sizes as in `Layout`.

    Its arrays are valid as long as this object: their memory is used again.

    `targets` has a number below `targets_max` for each row. Rows with a smaller one come first, and
    rows of one target keep their order. Without it, all rows do.
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
        self._numbers = [POOL.lease(8 * rows) for _ in range(3)]  # for the arrays below
        self._kept: list[Any] = []  # the structs have the addresses of these
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
        """Return the end of each target's records."""
        return self._places[:, 0]

    def fitting(self, start: int, end: int, room: int) -> int:
        """Return how many of the records fit into `room` bytes of one record batch."""
        self._encoder.start, self._encoder.end = start, end
        return int(self._library.eos_fit(ctypes.byref(self._encoder), room))

    def write(self, start: int, end: int) -> tuple[Ints, int]:
        """Return the bytes of these records as one record batch, and its digest.

        The bytes are valid until the next call."""
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
        """Let the library write the sorted columns."""
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
        """Return an encoder of the sorted columns, after it has set `sizes`."""
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
