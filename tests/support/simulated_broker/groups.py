"""Consumer groups of the simulated broker: offsets that wait for their transaction's end."""

from __future__ import annotations

from collections.abc import Mapping

from eos.kafka.api import CommittedOffset, Identity, TopicPartition

OFFSET_METADATA_TOO_LARGE, METADATA_BYTES_MAX = 12, 4096


class Group:
    """One group. Nobody is ever a member of it."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, CommittedOffset] = {}
        self._epochs: dict[int, int] = {}
        self._pending: dict[int, dict[TopicPartition, CommittedOffset]] = {}

    def is_fenced(self, identity: Identity) -> bool:
        return identity.epoch < self._epochs.get(identity.producer_id, -1)

    def has_pending(self, identity: Identity) -> bool:
        """Then the coordinator is not asked again, as with a partition of records."""
        is_open = identity.producer_id in self._pending
        return is_open and self._epochs.get(identity.producer_id) == identity.epoch

    def note(self, identity: Identity, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        self._epochs[identity.producer_id] = identity.epoch
        self._pending.setdefault(identity.producer_id, {}).update(offsets)

    def mark(self, identity: Identity, is_commit: bool) -> None:
        """The last commit before the marker wins, whoever made it."""
        self._epochs[identity.producer_id] = identity.epoch
        ended = self._pending.pop(identity.producer_id, {})
        if is_commit:
            self.committed.update(ended)
