"""What a sink is, as values. Whoever plans a pipeline needs no Arrow for that."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from eos.kafka.compression_type import Codec

HEADERS_COLUMN = "headers"


class Partitioner(Enum):
    KEY = "key"  # Kafka's default: murmur2 of the key; records without one by turns
    ROUND_ROBIN = "round_robin"  # the key ignored: every record another partition


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """One Kafka sink: every row goes to it, or those of `where_column`. Either `topic`, or
    `topic_column` by row, which may name `topics` only."""

    topic: str | None = None
    topic_column: str | None = None
    topics: tuple[str, ...] = ()  # none: any of the targets
    where_column: str | None = None  # boolean
    codec: Codec = Codec.LZ4
    partitioner: Partitioner = Partitioner.KEY
    key_column: str = "key"
    value_column: str = "value"
    headers_column: str | None = HEADERS_COLUMN  # by this name it may be absent; None: no headers
    timestamp_column: str | None = None  # timestamp, or integer milliseconds; null: the attempt's
    partition_column: str | None = None  # null: the partitioner decides

    def __post_init__(self) -> None:
        if (self.topic is None) == (self.topic_column is None):
            raise ValueError("a sink has either a topic or a topic column")

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it can't do without."""
        names = (
            self.key_column,
            self.value_column,
            self.headers_column,
            self.timestamp_column,
            self.partition_column,
            self.topic_column,
            self.where_column,
        )
        return frozenset(name for name in names if name not in {None, HEADERS_COLUMN})
