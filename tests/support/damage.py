"""Damage for parsers: bytes and words of a sound input are changed, as a seed says."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

INPUTS = int(os.environ.get("EOS_FUZZ_INPUTS", "100000"))  # of each parser, in the nightly run
WORDS = [b"null", b"true", b"-1", b"1e999", b"NaN", b"9" * 5_000, b"[" * 5_000, b"{}", b'""', b"0"]
WORDS += [b"\xff", b"\0", b"\n", b"", b"\x80" * 9, b"\xff" * 8, b"\x7f\xff\xff\xff", b": ", b"- "]


def damaged(source: random.Random, raw: bytes) -> bytes:
    """One to three places are cut, replaced or filled."""
    for _ in range(source.randrange(1, 4)):
        low = source.randrange(len(raw) + 1)
        high = min(len(raw), low + source.choice([0, 1, 1, 3, 40]))
        word = source.choice(WORDS) if source.random() < 0.7 else source.randbytes(2)
        raw = raw[:low] + word + raw[high:]
    return raw


def inputs(name: str, sound: bytes) -> Iterator[bytes]:
    """The same ones each time, for this name."""
    source = random.Random(f"{name} 11")
    for _ in range(INPUTS):
        yield damaged(source, sound)
