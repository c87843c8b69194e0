"""Kafka's compression codecs, each in the framing that every Kafka client reads."""

from __future__ import annotations

import struct
import zlib
from functools import cache
from typing import Any

import lz4.frame
import pyarrow as pa

from eos.kafka.compression_type import Codec

__all__ = ["Codec", "compress"]

# What the first bytes of snappy-java's stream say: magic, then version and lowest reader version.
_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024  # snappy-java's default, which Kafka's own producer uses

# Levels are chosen for throughput: a pipeline's records are compressed once and read soon.
# For lz4, blocks of 256 KiB win back more size than the quicker search (below 0) loses.
_GZIP_LEVEL = 1
_LZ4_LEVEL = -3
_ZSTD_LEVEL = 1


def compress(codec: Codec, records: Any) -> Any:
    """The bytes-like `records`, compressed. `NONE` returns what it was given."""
    if codec is Codec.NONE:
        return records
    if codec is Codec.LZ4:
        # Independent blocks: Kafka's reader refuses linked ones with UNKNOWN_SERVER_ERROR, and
        # Arrow's own lz4 codec links them.
        return lz4.frame.compress(
            records,
            compression_level=_LZ4_LEVEL,
            block_size=lz4.frame.BLOCKSIZE_MAX256KB,
            block_linked=False,
            store_size=False,
        )
    if codec is Codec.ZSTD:
        return _arrow_codec("zstd", _ZSTD_LEVEL).compress(records)
    if codec is Codec.GZIP:
        gzip = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, 31)  # 31: gzip's header and trailer
        return gzip.compress(records) + gzip.flush()
    return _snappy(records)


def _snappy(records: Any) -> bytes:
    """snappy-java's stream: the framing that Kafka's producer writes and librdkafka reads too."""
    codec = _arrow_codec("snappy", None)
    view = memoryview(records)
    pieces = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = codec.compress(view[start : start + _XERIAL_BLOCK_BYTES], asbytes=True)
        pieces.append(struct.pack(">i", len(block)))
        pieces.append(block)
    return b"".join(pieces)


@cache
def _arrow_codec(name: str, level: int | None) -> Any:
    return pa.Codec(name, compression_level=level)
