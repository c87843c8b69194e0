"""How is zlib's crc32 computed for a whole column of ids at once?

A byte's effect on the crc depends only on the byte and on its distance from the end. So the crc of
a text is the crc of equally many zero bytes, XORed with one table entry per byte. There is one
table for each distance. For long texts numpy is not used, but zlib for each text.

The native library computes one text after the other, eight bytes at a time, with the same tables.
"""

from __future__ import annotations

import ctypes
import functools
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eos.arrow import scalar_of
from eos.kafka.records.columns import bytes_of
from eos.kafka.records.native_rows import SourceColumn
from eos.native import library
from eos.native.structs import address

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int32]
Crcs = npt.NDArray[np.uint32]

_TABLED_MAX = 64  # bytes; for longer texts, table lookups are no faster than a call of zlib


def crc32_of(texts: Any) -> Crcs:
    """Return the crc32 of each text of a binary Arrow column. For a null it is 0, as for b""."""
    native = library.load()
    if native is None:
        if texts.null_count:
            texts = texts.fill_null(scalar_of(b"", pa.binary()))
        offsets, data = bytes_of(texts)
        return crc32(data, offsets[:-1], np.diff(offsets))
    column, (_, tables) = SourceColumn(texts, "producer"), _tables()
    found: Crcs = np.empty(len(texts), np.uint32)
    if native.eos_crc32(ctypes.byref(column.struct), address(tables), address(found)):
        raise ValueError("the texts are no valid Arrow column")
    return found


def crc32(data: Bytes, starts: Offsets, lengths: Offsets) -> Crcs:
    """Return the crc32 of each text `data[start : start + length]`."""
    if not len(lengths):
        return np.zeros(0, np.uint32)
    of_zeros, tables = _tables()
    found: Crcs = of_zeros.take(np.minimum(lengths, _TABLED_MAX))
    shortest, longest = int(lengths.min()), min(int(lengths.max()), _TABLED_MAX)
    last = starts + lengths - 1
    for place in range(longest):
        if place < shortest:
            found ^= tables[place].take(data.take(last - place))
        else:
            rows = np.flatnonzero(lengths > place)
            found[rows] ^= tables[place].take(data.take(last[rows] - place))
    for row in np.flatnonzero(lengths > _TABLED_MAX).tolist():
        start = int(starts[row])
        found[row] = zlib.crc32(data[start : start + int(lengths[row])].tobytes())
    return found


@functools.cache
def _tables() -> tuple[Crcs, Crcs]:
    """Return the crcs of 0 to 64 zero bytes, and a table of each byte's effect by its distance
    from the end."""
    of_zeros = np.array([zlib.crc32(bytes(n)) for n in range(_TABLED_MAX + 1)], np.uint32)
    last = np.array([zlib.crc32(bytes([byte])) for byte in range(256)], np.uint32) ^ of_zeros[1]
    tables = np.empty((_TABLED_MAX, 256), np.uint32)
    tables[0] = last
    for place in range(1, _TABLED_MAX):
        before = tables[place - 1]
        tables[place] = (before >> np.uint32(8)) ^ last[before & np.uint32(0xFF)]
    return of_zeros, tables
