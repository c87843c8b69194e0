"""crc32 over a whole column of ids, as zlib has it.

What a byte changes the crc by depends on the byte and on its place from the end, and on nothing
else. So a crc is that of as many zero bytes, changed by each byte by itself: there is a table for
each place. Long texts are left to zlib, one by one.
"""

from __future__ import annotations

import functools
import zlib

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int32]
Crcs = npt.NDArray[np.uint32]

_TABLED_MAX = 64  # bytes: to look each up takes about as long as to call zlib then


def crc32(data: Bytes, starts: Offsets, lengths: Offsets) -> Crcs:
    """Of the texts at `data[start : start + length]`."""
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
    """The crc of so many zero bytes; and of each place what a byte there changes it by."""
    of_zeros = np.array([zlib.crc32(bytes(n)) for n in range(_TABLED_MAX + 1)], np.uint32)
    last = np.array([zlib.crc32(bytes([byte])) for byte in range(256)], np.uint32) ^ of_zeros[1]
    tables = np.empty((_TABLED_MAX, 256), np.uint32)
    tables[0] = last
    for place in range(1, _TABLED_MAX):
        before = tables[place - 1]
        tables[place] = (before >> np.uint32(8)) ^ last[before & np.uint32(0xFF)]
    return of_zeros, tables
