"""The partitions that a micro-batch may write to, each with an index that all stages use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eos.kafka.api import TopicPartition


@dataclass(frozen=True, slots=True)
class Targets:
    """All partitions of all target topics, topic by topic in partition order.

    All stages refer to a target by its index in `partitions`. The list is fixed for an attempt, so
    the partition of a key can't change within it. If a topic gets more partitions, the next attempt
    uses them.
    """

    partitions: tuple[TopicPartition, ...]
    record_batch_bytes_max: tuple[int, ...]  # max.message.bytes of each target's topic

    def __post_init__(self) -> None:
        if len(self.partitions) != len(self.record_batch_bytes_max):
            raise ValueError("one record batch limit for each target")
        for index, (topic, partition) in enumerate(self.partitions):
            before = self.partitions[index - 1] if index else None
            follows = before is not None and before.topic == topic
            if partition != (before.partition + 1 if before is not None and follows else 0):
                raise ValueError(f"targets out of order at {topic}-{partition}")
        names = [topic for topic, partition in self.partitions if partition == 0]
        if len(names) != len(set(names)):
            raise ValueError("a topic occurs twice among the targets")

    @classmethod
    def of(cls, topics: Mapping[str, tuple[int, int]]) -> Targets:
        """Return the targets of a mapping: topic -> (number of partitions, max.message.bytes)."""
        partitions = []
        limits = []
        for topic, (count, bytes_max) in topics.items():
            partitions += [TopicPartition(topic, partition) for partition in range(count)]
            limits += [bytes_max] * count
        return cls(tuple(partitions), tuple(limits))

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(topic for topic, partition in self.partitions if partition == 0)

    def first(self, topic: str) -> int:
        """Return the index of the topic's partition 0."""
        return self.partitions.index(TopicPartition(topic, 0))

    def count(self, topic: str) -> int:
        """Return the number of the topic's partitions."""
        return sum(1 for each in self.partitions if each.topic == topic)
