"""Compress record batches, in the framing that every Kafka client can read."""

from __future__ import annotations

import struct
import zlib
from functools import cache
from typing import Any

import lz4.frame
import pyarrow as pa

from eos.kafka.compression_type import Codec

__all__ = ["Codec", "compress"]

# Header of snappy-java's stream: magic, then version and lowest compatible reader version.
_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024  # snappy-java's default, which Kafka's own producer uses

# Levels favour throughput, because a pipeline's records are compressed once and read soon. A
# negative lz4 level is faster, but compresses less. Blocks of 256 KiB more than make up for that.
_GZIP_LEVEL = 1
_LZ4_LEVEL = -3
_ZSTD_LEVEL = 1


def compress(codec: Codec, records: Any) -> Any:
    """Return the bytes-like `records` compressed. `NONE` returns them unchanged."""
    if codec is Codec.NONE:
        return records
    if codec is Codec.LZ4:
        # Use independent blocks. The broker rejects linked blocks with UNKNOWN_SERVER_ERROR, and
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
        gzip = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, 31)  # 31 selects gzip format
        return gzip.compress(records) + gzip.flush()
    return _snappy(records)


def _snappy(records: Any) -> bytes:
    """Compress into snappy-java's stream format, which Java clients and librdkafka read."""
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
