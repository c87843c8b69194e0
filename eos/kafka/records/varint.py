"""Encode whole columns of numbers as zigzag varints."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints: TypeAlias = npt.NDArray[Any]


def zigzag(values: Ints) -> Ints:
    """Map small magnitudes to small unsigned numbers: 0, -1, 1, -2 ... -> 0, 1, 2, 3 ..."""
    if values.dtype == np.int32:
        return ((values << 1) ^ (values >> 31)).view(np.uint32)
    wide = values.astype(np.int64, copy=False)
    return ((wide << 1) ^ (wide >> 63)).view(np.uint64)


def sizes(unsigned: Ints) -> Ints:
    """Return how many bytes each number takes as a varint: 1 to 10."""
    counts = np.ones(len(unsigned), np.int64)
    most = int(unsigned.max()) if len(unsigned) else 0
    for bits in range(7, 64, 7):
        if most < 1 << bits:
            break
        counts += unsigned >= unsigned.dtype.type(1 << bits)
    return counts


class RowBuilder:
    """Builder of one byte string per row from varints and fixed bytes, for all rows at once.

    The bytes form a matrix with one line per row. A field gets as many columns as its longest value
    needs, and unused bytes of shorter values are removed at the end. So a column takes a few numpy
    operations, whatever the number of rows.
    """

    __slots__ = ("_columns", "_masks", "_rows", "sizes")

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._columns: list[Ints | int] = []
        self._masks: list[Ints | None] = []
        self.sizes = np.zeros(rows, np.int64)

    def fixed(self, byte: int) -> None:
        self._columns.append(byte)
        self._masks.append(None)
        self.sizes += 1

    def varint(self, unsigned: Ints, counts: Ints) -> None:
        """Append a varint field. `counts` is the result of `sizes(unsigned)`."""
        if not self._rows:
            return
        shortest, longest = int(counts.min()), int(counts.max())
        if longest <= 4:
            unsigned = unsigned.astype(np.uint32, copy=False)  # half the memory traffic
        for column in range(longest):
            byte: Ints = (unsigned >> (7 * column)).astype(np.uint8)
            if column < shortest - 1:
                byte |= 0x80
            elif column < longest - 1:
                byte = (byte & 0x7F) | ((counts > column + 1).view(np.uint8) << 7)
            self._columns.append(byte)
            self._masks.append(None if column < shortest else counts > column)
        self.sizes += counts

    def finish(self) -> Ints:
        """Return the bytes of all rows, concatenated. `sizes` has the length of each row."""
        matrix = np.empty((self._rows, len(self._columns)), np.uint8)
        for index, column in enumerate(self._columns):
            matrix[:, index] = column
        if all(mask is None for mask in self._masks):
            return matrix.reshape(-1)
        keep = np.empty(matrix.shape, np.bool_)
        for index, mask in enumerate(self._masks):
            keep[:, index] = True if mask is None else mask
        return matrix[keep]

    def column(self) -> Any:
        """Return the rows as a binary array."""
        return joined(self.finish(), self.sizes)


def joined(data: Ints, row_sizes: Ints) -> Any:
    """Return a binary array made of concatenated bytes and the size of each row."""
    offsets = np.zeros(len(row_sizes) + 1, np.int32)
    np.cumsum(row_sizes, out=offsets[1:])
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(row_sizes), [None, pa.py_buffer(offsets), pa.py_buffer(data)], null_count=0
    )
