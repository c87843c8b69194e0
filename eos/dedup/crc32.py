"""How is zlib's crc32 computed for a whole column of ids at once?

The native library computes one text after the other, eight bytes at a time. A byte's effect on the
crc depends only on the byte and on its distance from the end, so there is a table for each
distance. Without the library, zlib is called for each text.
"""

from __future__ import annotations

import ctypes
import functools
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from eos.kafka.records.native_rows import SourceColumn
from eos.native import library
from eos.native.structs import address

Crcs = npt.NDArray[np.uint32]

_BYTES = 8  # that the native library handles at a time


def crc32_of(texts: Any) -> Crcs:
    """Return the crc32 of each text of a binary Arrow column. For a null it is 0, as for b""."""
    native = library.load()
    if native is None:
        return np.fromiter((zlib.crc32(each or b"") for each in texts.to_pylist()), np.uint32)
    column, tables = SourceColumn(texts, "producer"), _tables()
    found: Crcs = np.empty(len(texts), np.uint32)
    if native.eos_crc32(ctypes.byref(column.struct), address(tables), address(found)):
        raise ValueError("the texts are no valid Arrow column")
    return found


@functools.cache
def _tables() -> Crcs:
    """Return each byte's effect on the crc, for its distance of 0 to 7 bytes from the end."""
    of_zero = zlib.crc32(bytes(1))
    tables = np.empty((_BYTES, 256), np.uint32)
    tables[0] = [zlib.crc32(bytes([byte])) ^ of_zero for byte in range(256)]
    for place in range(1, _BYTES):
        before = tables[place - 1]
        tables[place] = (before >> np.uint32(8)) ^ tables[0][before & np.uint32(0xFF)]
    return tables
