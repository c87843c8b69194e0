"""Kafka's compression types with their numbers. This module loads no compression library."""

from __future__ import annotations

from enum import Enum


class Codec(Enum):
    """Compression type. The value is its number in a record batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of(cls, name: str) -> Codec:
        """Return the codec with this name, in the notation of Kafka's `compression.type`."""
        return cls[name.upper()]
