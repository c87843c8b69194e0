"""What bends throughput: the size of records and of micro-batches, targets, and skew."""

from __future__ import annotations

import random
from dataclasses import dataclass

from bench.encoding import records

_CHANCE = random.Random(7)
_WORDS = [_CHANCE.randbytes(4).hex() for _ in range(300)]


@dataclass(frozen=True)
class Shape:
    """One source, and what is made of it. Its records are 720 MB at most."""

    name: str
    records: int
    batch: int
    value_bytes: int = 180
    partitions: int = 4
    hot: float = 0.0  # the part of all records that has one and the same key

    def rows(self) -> tuple[list[bytes], list[bytes]]:
        if self.value_bytes == 180:
            keys, values = records(min(self.records, 100_000))
        else:
            keys, values = _longer(min(self.records, 20_000_000 // self.value_bytes), self)
        chosen = random.Random(3)
        return [b"hot" if chosen.random() < self.hot else key for key in keys], values


def _longer(count: int, shape: Shape) -> tuple[list[bytes], list[bytes]]:
    """Text of words that lz4 makes about three times shorter, as it does short records."""
    rng = random.Random(5)
    keys = [b"c%06d" % rng.randrange(100_000) for _ in range(count)]
    many = shape.value_bytes // 9 + 1
    texts = (" ".join(rng.choices(_WORDS, k=many)) for _ in range(count))
    return keys, [text[: shape.value_bytes].encode() for text in texts]


SHAPES = (
    Shape("batch_1000", 40_000, 1_000),
    Shape("batch_10000", 200_000, 10_000),
    Shape("batch_100000", 1_000_000, 100_000),
    Shape("batch_1000000", 2_000_000, 1_000_000),
    Shape("batch_4000000", 4_000_000, 4_000_000),
    # Of about as many bytes each, in all and in a micro-batch.
    Shape("value_180b", 2_000_000, 500_000),
    Shape("value_1kb", 400_000, 100_000, value_bytes=1_000),
    Shape("value_10kb", 40_000, 10_000, value_bytes=10_000),
    Shape("value_1kb_few", 2_000, 100_000, value_bytes=1_000),
    Shape("targets_1", 1_000_000, 500_000, partitions=1),
    Shape("targets_4", 1_000_000, 500_000),
    Shape("targets_50", 1_000_000, 500_000, partitions=50),
    Shape("targets_200", 1_000_000, 500_000, partitions=200),
    Shape("skewed", 1_000_000, 500_000, hot=0.9),
)
