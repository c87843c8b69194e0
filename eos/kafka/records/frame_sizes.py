"""Compute the maximum uncompressed size of lz4 and zstd payloads, without decompressing them.

Each function walks over the headers of the blocks and returns an upper bound. It returns None if
the frame is truncated, followed by other bytes, or has a feature that Kafka's clients don't use.
"""

from __future__ import annotations

import struct
from typing import TypeAlias

_INT = struct.Struct("<I")
Bytes: TypeAlias = memoryview  # one byte per item

_LZ4_MAGIC = 0x184D2204
_LZ4_VERSION, _LZ4_BLOCK_CHECKSUM, _LZ4_SIZE, _LZ4_CHECKSUM, _LZ4_UNUSUAL = 0x40, 16, 8, 4, 3
_LZ4_BLOCK_BYTES = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_LZ4_PLAIN = 1 << 31

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SINGLE, _ZSTD_CHECKSUM, _ZSTD_UNUSUAL = 0x20, 0x04, 0x0B  # reserved bits, a dictionary
_ZSTD_SIZE_BYTES = (0, 2, 4, 8)
_ZSTD_BLOCK_BYTES = 1 << 17
_ZSTD_RLE, _ZSTD_RESERVED = 1, 3


def lz4_bound(payload: Bytes) -> int | None:
    """Return an upper bound of an lz4 frame's uncompressed size; None if the frame is unusual."""
    end = len(payload)
    if end < 7 or _INT.unpack_from(payload)[0] != _LZ4_MAGIC:
        return None
    flags, block_max = payload[4], _LZ4_BLOCK_BYTES.get(payload[5] >> 4)
    if flags & 0xC0 != _LZ4_VERSION or flags & _LZ4_UNUSUAL or block_max is None:
        return None
    at = 7 + (8 if flags & _LZ4_SIZE else 0)
    block_extra = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    bound = 0
    while at + 4 <= end:
        (word,) = _INT.unpack_from(payload, at)
        at += 4
        if not word:
            at += 4 if flags & _LZ4_CHECKSUM else 0
            return bound if at == end else None
        size = word & ~_LZ4_PLAIN
        bound += size if word & _LZ4_PLAIN else block_max
        at += size + block_extra
    return None


def zstd_bound(payload: Bytes) -> int | None:
    """Return an upper bound of a zstd frame's uncompressed size; None if the frame is unusual."""
    end = len(payload)
    if end < 6 or _INT.unpack_from(payload)[0] != _ZSTD_MAGIC:
        return None
    flags = payload[4]
    if flags & _ZSTD_UNUSUAL:
        return None
    is_single = bool(flags & _ZSTD_SINGLE)
    size_bytes = _ZSTD_SIZE_BYTES[flags >> 6] or int(is_single)
    at = 5 + (not is_single) + size_bytes
    bound = 0
    while at + 3 <= end:
        word = payload[at] | payload[at + 1] << 8 | payload[at + 2] << 16
        is_last, kind, size = word & 1, word >> 1 & 3, word >> 3
        if kind == _ZSTD_RESERVED:
            return None
        bound += _ZSTD_BLOCK_BYTES if kind > _ZSTD_RLE else size
        at += 3 + (1 if kind == _ZSTD_RLE else size)
        if is_last:
            at += 4 if flags & _ZSTD_CHECKSUM else 0
            return bound if at == end else None
    return None
