"""Compressed payloads that claim or hold more than memory: refused before they are unpacked."""

from __future__ import annotations

import random
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
from support.errors import examples

from eos.kafka.compression_type import Codec
from eos.kafka.records.compression import compress
from eos.kafka.records.decompression import (
    BrokenPayloadError,
    Scratch,
    unpack,
    unpack_into,
)

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


PLAIN = st.one_of(
    st.binary(max_size=300),
    st.binary(min_size=1, max_size=9).map(lambda each: each * 40_000),  # several blocks
    st.integers(0, 2**32).map(lambda seed: random.Random(seed).randbytes(70_000)),
)


@settings(max_examples=examples(200), deadline=None)
@given(st.sampled_from(list(Codec)), PLAIN, st.data())
def test_the_fast_path_has_the_same_bytes(codec, plain, data) -> None:
    """Of sound and of damaged payloads. The scratch memory is used again."""
    payload = framed(codec, plain, data)
    scratch = Scratch()
    assert unpack_into(codec.value, payload, scratch) == plain
    damaged = bytearray(payload or b"\0")
    for _ in range(data.draw(st.integers(0, 2))):
        # Mostly in the headers, which decide how much memory there is.
        last = data.draw(st.sampled_from([min(30, len(damaged)), len(damaged)])) - 1
        damaged[data.draw(st.integers(0, last))] = data.draw(st.integers(0, 255))
    end = st.one_of(st.just(len(damaged)), st.integers(0, len(damaged)))
    damaged = damaged[: data.draw(end)] + data.draw(st.sampled_from([b"", b"\0" * 4, payload]))
    try:
        wanted = unpack(codec.value, bytes(damaged))
    except BrokenPayloadError:
        with pytest.raises(BrokenPayloadError):
            unpack_into(codec.value, bytes(damaged), scratch)
    else:
        assert unpack_into(codec.value, bytes(damaged), scratch) == wanted


def framed(codec: Codec, plain: bytes, data: st.DataObject) -> bytes:
    """The payload as this project makes it, or with other settings that clients may use."""
    is_other = data.draw(st.booleans())
    if codec is Codec.LZ4 and is_other:
        return lz4.frame.compress(
            plain,
            block_size=data.draw(st.sampled_from([0, 4, 5, 6, 7])),
            block_linked=data.draw(st.booleans()),
            content_checksum=data.draw(st.booleans()),
            block_checksum=data.draw(st.booleans()),
            store_size=data.draw(st.booleans()),
        )
    if codec is Codec.ZSTD and is_other:
        stream = zstandard.ZstdCompressor(
            level=data.draw(st.sampled_from([-3, 1, 9])), write_checksum=data.draw(st.booleans())
        ).compressobj()
        return stream.compress(plain) + stream.flush()
    return bytes(compress(codec, plain))


def test_a_large_payload_needs_no_scratch() -> None:
    plain = bytes(17 << 20)
    scratch = Scratch()
    assert unpack_into(Codec.LZ4.value, compress(Codec.LZ4, plain), scratch) == plain
    assert len(scratch.at_least(0)) == 0
