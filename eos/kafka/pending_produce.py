"""Handle of a Produce request in flight, which returns the broker's answer for each partition."""

from __future__ import annotations

from collections.abc import Mapping

from eos.deadline import Deadline
from eos.errors import NoAnswerError
from eos.kafka import requests
from eos.kafka.api import ProduceAnswer, TopicPartition
from eos.kafka.cluster import Cluster
from eos.kafka.pending_request import PendingRequest


class PendingProduce:
    """Handle of a Produce request in flight."""

    __slots__ = ("_cluster", "_partitions", "pending")

    def __init__(
        self, pending: PendingRequest, partitions: tuple[TopicPartition, ...], cluster: Cluster
    ) -> None:
        self.pending = pending
        self._partitions = partitions
        self._cluster = cluster

    @property
    def done(self) -> bool:
        """Return whether `wait` returns or raises immediately."""
        return self.pending.done

    def wait(self, deadline: Deadline) -> Mapping[TopicPartition, ProduceAnswer]:
        """Wait for the broker, and return its answer for each partition, or raise NoAnswerError.

        Repeated calls give the same result."""
        try:
            return requests.produced(self.pending.wait(deadline), self._partitions)
        except NoAnswerError as lost:
            self._cluster.lost(lost)
            raise
