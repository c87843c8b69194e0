"""The lookups in the source's cluster that a micro-batch needs, as an interface."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from eos.deadline import Deadline
from eos.kafka.api import TopicPartition
from eos.ledger.record import Ends


class SourceView(Protocol):
    """Read-only lookups in Kafka that a micro-batch needs. `startup/source_state.py` implements
    them."""

    def topic_ids(self, topics: Iterable[str]) -> Mapping[str, str]:
        """Return Kafka's topic id for each topic name. Raise PromiseBrokenError if a topic does not
        exist."""

    def earliest(self, partitions: Iterable[TopicPartition]) -> Ends: ...

    def group_offsets(
        self, partitions: Iterable[TopicPartition], deadline: Deadline | None = None
    ) -> Ends: ...
