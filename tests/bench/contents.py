"""The records of the workloads: keys, and values of a size that compress about three times."""

from __future__ import annotations

import random

from bench.encoding import records

_CHANCE = random.Random(7)
_WORDS = [_CHANCE.randbytes(4).hex() for _ in range(300)]


def rows_of(count: int, value_bytes: int) -> tuple[list[bytes], list[bytes]]:
    """Return at most 100,000 distinct records, of 20 MB at most: JSON if they have 180 bytes."""
    if value_bytes == 180:
        return records(min(count, 100_000))
    rng = random.Random(5)
    count = min(count, 20_000_000 // value_bytes)
    keys = [b"c%06d" % rng.randrange(100_000) for _ in range(count)]
    many = value_bytes // 9 + 1
    texts = (" ".join(rng.choices(_WORDS, k=many)) for _ in range(count))
    return keys, [text[:value_bytes].encode() for text in texts]
