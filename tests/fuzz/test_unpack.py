"""Compressed payloads that claim or hold more than memory: refused before they are unpacked."""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib

import lz4.frame
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from eos.kafka.compression_type import Codec
from eos.kafka.records.compression import compress
from eos.kafka.records.decompression import BrokenPayloadError, unpack

_ZEROS = bytes(1 << 20)
_UNPACK = """
import resource, sys
from eos.kafka.records import decompression as unpack
unpack.BYTES_MAX = 16 << 20
if sys.platform == "linux":  # elsewhere there is no such limit
    pages = int(open("/proc/self/statm").read().split()[0])
    limit = pages * resource.getpagesize() + (200 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    unpack.unpack(int(sys.argv[1]), sys.stdin.buffer.read())
except unpack.BrokenPayloadError as error:
    print(error)
"""


def zstd_bomb() -> bytes:
    """Two gigabytes of zeros, each 128 KiB a block of four bytes."""
    stream = zstandard.ZstdCompressor(level=1).compressobj()
    return b"".join(stream.compress(_ZEROS) for _ in range(2048)) + stream.flush()


def lz4_bomb() -> bytes:
    """64 kB that claim 64 GB: the header's size is a word of whoever wrote it."""
    frame = bytearray(lz4.frame.compress(bytes(64_000), content_checksum=False, store_size=True))
    struct.pack_into("<Q", frame, 6, 64 << 30)
    frame[14] = xxh32(bytes(frame[4:14])) >> 8 & 0xFF
    return bytes(frame)


def lz4_long() -> bytes:
    """Half a gigabyte in blocks, of no claimed size."""
    frame = lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX4MB)
    return frame.begin() + b"".join(frame.compress(_ZEROS) for _ in range(512)) + frame.flush()


def gzip_bomb() -> bytes:
    made = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(made.compress(_ZEROS) for _ in range(512)) + made.flush()


def snappy_bomb() -> bytes:
    """A few bytes that claim two gigabytes."""
    return b"\xff\xff\xff\xff\x07" + b"\x00a"


def xxh32(data: bytes) -> int:
    """The checksum of an lz4 header of less than 16 bytes."""
    mask, at = 0xFFFFFFFF, 0
    found = (374761393 + len(data)) & mask
    while at + 4 <= len(data):
        found = found + int.from_bytes(data[at : at + 4], "little") * 3266489917 & mask
        found = (found << 17 | found >> 15) & mask
        found, at = found * 668265263 & mask, at + 4
    for byte in data[at:]:
        found = found + byte * 374761393 & mask
        found = (found << 11 | found >> 21) & mask
        found = found * 2654435761 & mask
    found = (found ^ found >> 15) * 2246822519 & mask
    found = (found ^ found >> 13) * 3266489917 & mask
    return found ^ found >> 16


@pytest.mark.parametrize(
    ("codec", "make"),
    [
        (Codec.ZSTD, zstd_bomb),
        (Codec.LZ4, lz4_bomb),
        (Codec.LZ4, lz4_long),
        (Codec.GZIP, gzip_bomb),
        (Codec.SNAPPY, snappy_bomb),
    ],
)
def test_a_bomb_is_refused_within_bounded_memory(codec, make) -> None:
    """In a process that may grow by 200 MiB, and with a limit of 16 MiB."""
    bomb = make()
    assert len(bomb) < 3 << 20
    done = subprocess.run(
        [sys.executable, "-c", _UNPACK, str(codec.value)],
        input=bomb,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout, "it was unpacked"
    assert b"MemoryError" not in done.stdout, "only the limit of this process ended it"


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(list(Codec)), st.binary(max_size=300), st.data())
def test_any_damage_is_bytes_or_the_one_error(codec, plain, data) -> None:
    payload = bytearray(compress(codec, plain) or b"\0")
    payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    for each in (bytes(payload), bytes(payload[: len(payload) // 2])):
        try:
            assert isinstance(unpack(codec.value, each), bytes)
        except BrokenPayloadError:
            continue


def test_an_unknown_codec_and_a_plain_block_of_snappy() -> None:
    with pytest.raises(BrokenPayloadError):
        unpack(7, b"x")
    assert unpack(2, pa.Codec("snappy").compress(b"abc" * 99, asbytes=True)) == b"abc" * 99
