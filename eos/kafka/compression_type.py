"""Kafka's compression types by number. Importing this loads no compression library."""

from __future__ import annotations

from enum import Enum


class Codec(Enum):
    """The value is the codec's number in a record batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of(cls, name: str) -> Codec:
        """By the name that Kafka's `compression.type` uses."""
        return cls[name.upper()]
