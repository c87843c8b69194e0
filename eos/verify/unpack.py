"""Kafka's compression codecs, the other way round, within bounds.

A record batch of one MB may say that it holds terabytes: what is larger than Arrow's offsets reach
is refused before there is no memory left.
"""

from __future__ import annotations

import struct
import zlib
from functools import cache
from typing import Any

import lz4.frame
import pyarrow as pa
import zstandard

from eos.encode.codec import Codec

BYTES_MAX = 256 * 1024 * 1024
_LZ4_FACTOR_MAX = 255
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_BLOCK = struct.Struct(">i")


class BrokenPayloadError(ValueError):
    """Not what its codec writes, or larger than is allowed."""


def unpack(codec: int, payload: Any) -> bytes:
    """The records' bytes."""
    try:
        return _unpack(Codec(codec), payload)
    except (
        ValueError,
        RuntimeError,
        LookupError,
        EOFError,
        OSError,
        zlib.error,
        struct.error,
    ) as error:
        raise BrokenPayloadError(f"{type(error).__name__}: {error}") from error
    except zstandard.ZstdError as error:
        raise BrokenPayloadError(f"zstd: {error}") from error


def _unpack(codec: Codec, payload: Any) -> bytes:
    if codec is Codec.NONE:
        return bytes(payload)
    if codec is Codec.LZ4:
        if len(payload) * _LZ4_FACTOR_MAX <= BYTES_MAX:  # quicker, and can't become more
            return bytes(lz4.frame.decompress(payload))
        lz4_stream = lz4.frame.LZ4FrameDecompressor()
        return _whole(lz4_stream.decompress(payload, max_length=BYTES_MAX), lz4_stream)
    if codec is Codec.GZIP:
        gzip = zlib.decompressobj(31)  # 31: gzip's header and trailer
        return _whole(gzip.decompress(payload, BYTES_MAX), gzip)
    if codec is Codec.ZSTD:
        return _zstd(bytes(payload))
    return _snappy(bytes(payload))


def _whole(data: bytes, stream: Any) -> bytes:
    if not stream.eof:
        raise BrokenPayloadError(f"no end within {BYTES_MAX} bytes")
    return data


def _zstd(payload: bytes) -> bytes:
    """Java's stream does not say how large its content is."""
    stream = _zstd_codec().decompressobj()
    data = bytearray()
    view = memoryview(payload)
    for start in range(0, len(view), 1 << 20):  # what a piece becomes is bounded by zstd's window
        data += stream.decompress(view[start : start + (1 << 20)])
        if len(data) > BYTES_MAX:
            raise BrokenPayloadError(f"more than {BYTES_MAX} bytes")
    return _whole(bytes(data), stream)


@cache
def _zstd_codec() -> Any:
    return zstandard.ZstdDecompressor()


def _snappy(payload: bytes) -> bytes:
    """snappy-java's stream of blocks, or one plain block, as other clients write it."""
    codec = _arrow_snappy()
    if not payload.startswith(_XERIAL):
        return bytes(codec.decompress(payload, _snappy_size(payload, 0), asbytes=True))
    pieces, at, total = [], _XERIAL_HEADER_BYTES, 0
    while at < len(payload):
        size = _BLOCK.unpack_from(payload, at)[0]
        at += _BLOCK.size
        if size <= 0 or at + size > len(payload):
            raise BrokenPayloadError(f"a block of {size} bytes at {at} of {len(payload)}")
        plain = _snappy_size(payload, at)
        total += plain
        if total > BYTES_MAX:
            raise BrokenPayloadError(f"more than {BYTES_MAX} bytes")
        pieces.append(codec.decompress(payload[at : at + size], plain, asbytes=True))
        at += size
    return b"".join(pieces)


def _snappy_size(payload: bytes, at: int) -> int:
    """A block begins with its uncompressed size, as a varint."""
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


@cache
def _arrow_snappy() -> Any:
    return pa.Codec("snappy")
