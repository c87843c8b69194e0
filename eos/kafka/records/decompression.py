"""Decompress record batches with bounded memory.

A record batch of 64 kB can claim gigabytes, in its header (lz4, snappy) or by its content (zstd,
gzip). Decompression stops at `BYTES_MAX`. Memory exceeds this by the output of one step at most.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import cramjam
import lz4.frame
import numpy as np
import zstandard

from eos.kafka.compression_type import Codec
from eos.kafka.records.frame_sizes import lz4_bound, zstd_bound

BYTES_MAX = 256 * 1024 * 1024
_LZ4_STEP_BYTES = 1 << 20  # bytes of output per step
# Input bytes per step. Four bytes of zstd expand to 128 KiB at most, so one step's output has at
# most 32 MiB.
_ZSTD_STEP_BYTES = 1 << 10
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_BLOCK = struct.Struct(">i")
_SCRATCH_BYTES_MAX = 16 * 1024 * 1024  # a larger record batch gets new memory


class BrokenPayloadError(ValueError):
    """Error of a payload that is damaged or exceeds the size limit."""


class Scratch:
    """A buffer for an uncompressed record batch, reused for one batch after another.

    New memory for each batch would cost as much time as its decompression, because the kernel
    clears each page at its first use.
    """

    def __init__(self) -> None:
        self._bytes: Any = np.empty(0, np.uint8)

    def at_least(self, size: int) -> Any:
        """Return a numpy array with room for `size` bytes."""
        if len(self._bytes) < size:
            self._bytes = np.empty(max(size, 1 << 20), np.uint8)
        return self._bytes


def unpack_into(codec: int, payload: Any, scratch: Scratch) -> memoryview:
    """Return the uncompressed records of a payload, which are valid until `scratch` is used again.

    For gzip, for a frame that does not say its size, for damaged payloads and for more than 16 MiB,
    this calls `unpack`, which returns the bytes in new memory or raises BrokenPayloadError.
    """
    view = memoryview(payload)
    try:
        found = _fast(codec, view, scratch)
    except (cramjam.DecompressionError, zstandard.ZstdError, LookupError, ValueError, struct.error):
        found = None
    return memoryview(unpack(codec, payload)) if found is None else found


def _fast(codec: int, payload: memoryview, scratch: Scratch) -> memoryview | None:
    """Return the uncompressed bytes, or None if only `unpack` can handle the payload."""
    if codec == Codec.NONE.value:
        return payload
    if codec == Codec.LZ4.value:
        return _whole_frame(payload, lz4_bound(payload), cramjam.lz4.decompress_into, scratch)
    if codec == Codec.ZSTD.value:
        return _whole_frame(payload, zstd_bound(payload), _zstd_into, scratch)
    if codec == Codec.SNAPPY.value:
        return _snappy_into(payload, scratch, _SCRATCH_BYTES_MAX)
    return None


def _whole_frame(
    payload: memoryview,
    bound: int | None,
    decompress: Callable[[memoryview, Any], int],
    scratch: Scratch,
) -> memoryview | None:
    if bound is None or bound > _SCRATCH_BYTES_MAX:
        return None
    # Offer one byte more than the upper bound. So a longer stream is detected, and no decompressor
    # gets an empty buffer.
    room = memoryview(scratch.at_least(bound + 1))
    size = decompress(payload, room[: bound + 1])
    return room[:size] if size <= bound else None


def _zstd_into(payload: memoryview, room: Any) -> int:
    with _zstd_codec().stream_reader(payload) as reader:
        return int(reader.readinto(room))


def _snappy_into(payload: memoryview, scratch: Scratch, size_max: int) -> memoryview | None:
    """Decompress snappy-java's stream of blocks, or the one plain block of other clients.

    Return None above `size_max` bytes, or if a block has another size than it claims."""
    blocks, total = [], 0
    for at, size in _snappy_blocks(payload):
        plain = _snappy_size(payload, at)
        blocks.append((payload[at : at + size], total, total + plain))
        total += plain
        if total > size_max:
            return None
    room = memoryview(scratch.at_least(total))
    for block, start, end in blocks:
        if cramjam.snappy.decompress_raw_into(block, room[start:end]) != end - start:
            return None
    return room[:total]


def unpack(codec: int, payload: Any) -> bytes:
    """Return the uncompressed bytes of the records, or raise BrokenPayloadError."""
    try:
        return _unpack(Codec(codec), payload)
    except (
        ValueError,
        RuntimeError,
        LookupError,
        EOFError,
        OSError,
        MemoryError,  # the header claims a size that does not fit
        zlib.error,
        struct.error,
        cramjam.DecompressionError,
    ) as error:
        raise BrokenPayloadError(f"{type(error).__name__}: {error}") from error
    except zstandard.ZstdError as error:
        raise BrokenPayloadError(f"zstd: {error}") from error


def _unpack(codec: Codec, payload: Any) -> bytes:
    if codec is Codec.NONE:
        return bytes(payload)
    if codec is Codec.LZ4:
        return _lz4(payload)
    if codec is Codec.GZIP:
        gzip = zlib.decompressobj(31)  # 31 selects gzip format
        return _require_complete(gzip.decompress(payload, BYTES_MAX), gzip)
    if codec is Codec.ZSTD:
        return _zstd(bytes(payload))
    found = _snappy_into(memoryview(payload), Scratch(), BYTES_MAX)
    if found is None:
        raise BrokenPayloadError(f"more than {BYTES_MAX} bytes, or a block of another size")
    return bytes(found)


def _require_complete(data: bytes | bytearray, stream: Any) -> bytes:
    if not stream.eof or len(data) > BYTES_MAX:
        raise BrokenPayloadError(f"the stream does not end within {BYTES_MAX} bytes")
    return bytes(data)


def _lz4(payload: Any) -> bytes:
    """Decompress step by step. A single call would allocate the size that the header claims."""
    stream = lz4.frame.LZ4FrameDecompressor()
    data = piece = bytearray(stream.decompress(payload, max_length=_LZ4_STEP_BYTES))
    while piece and not stream.eof and not stream.needs_input and len(data) <= BYTES_MAX:
        piece = stream.decompress(b"", max_length=_LZ4_STEP_BYTES)
        data += piece
    return _require_complete(data, stream)


def _zstd(payload: bytes) -> bytes:
    """Decompress step by step. Streams of the Java client don't contain their size."""
    stream = _zstd_codec().decompressobj()
    data = bytearray()
    view = memoryview(payload)
    for start in range(0, len(view), _ZSTD_STEP_BYTES):
        data += stream.decompress(view[start : start + _ZSTD_STEP_BYTES])
        if stream.eof or len(data) > BYTES_MAX:
            break
    return _require_complete(data, stream)


@cache
def _zstd_codec() -> Any:
    return zstandard.ZstdDecompressor()


def _snappy_blocks(payload: bytes | memoryview) -> Iterator[tuple[int, int]]:
    """Yield the start and the size of each block."""
    if payload[: len(_XERIAL)] != _XERIAL:
        yield 0, len(payload)
        return
    at = _XERIAL_HEADER_BYTES
    while at < len(payload):
        size = _BLOCK.unpack_from(payload, at)[0]
        at += _BLOCK.size
        if size <= 0 or at + size > len(payload):
            raise BrokenPayloadError(f"a block of {size} bytes at {at} of {len(payload)}")
        yield at, size
        at += size


def _snappy_size(payload: bytes | memoryview, at: int) -> int:
    """Return the uncompressed size, the varint at a block's start."""
    size = 0
    for shift in range(0, 35, 7):
        byte = payload[at]
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            if size > BYTES_MAX:
                break
            return size
        at += 1
    raise BrokenPayloadError(f"a block of {size} bytes")
