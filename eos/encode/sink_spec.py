"""The settings of a Kafka sink: its topics, columns, codec and partitioner.

This module loads no Arrow, so a pipeline can be planned without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from eos.kafka.compression_type import Codec

HEADERS_COLUMN = "headers"


class Partitioner(Enum):
    """The rule that assigns records to partitions."""

    KEY = "key"  # murmur2 of the key, as in Kafka's clients; without a key: in turn
    ROUND_ROBIN = "round_robin"  # ignores keys: each record goes to the next partition


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """The settings of one Kafka sink.

    The sink writes every row of the pipeline, or only the rows whose `where_column` is true. It
    writes all of them to `topic`, or each row to the topic that its `topic_column` names. That
    topic must be one of `topics`.
    """

    topic: str | None = None
    topic_column: str | None = None
    topics: tuple[str, ...] = ()  # empty: any target topic of the pipeline
    where_column: str | None = None  # boolean
    codec: Codec = Codec.LZ4
    partitioner: Partitioner = Partitioner.KEY
    key_column: str = "key"
    value_column: str = "value"
    # the default column may be absent; None: no headers
    headers_column: str | None = HEADERS_COLUMN
    # Column with a timestamp or integer milliseconds. A null in it: the attempt's time.
    timestamp_column: str | None = None
    partition_column: str | None = None  # a null: the partitioner decides

    def __post_init__(self) -> None:
        if (self.topic is None) == (self.topic_column is None):
            raise ValueError("a sink has either a topic or a topic column")

    @property
    def columns(self) -> frozenset[str]:
        """The names of the columns that the rows written to this sink must have.

        The default headers column is optional, so it is left out.
        """
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
