"""The Kafka client: it sends a transaction's requests, looks up offsets and settings, and reads."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from eos.deadline import Deadline
from eos.errors import UnavailableError
from eos.kafka import admin, cluster_shape, features, groups, record_reader
from eos.kafka.admin import At
from eos.kafka.api import (
    CommittedOffset,
    DescribedProducer,
    TopicPartition,
    TransactionProfile,
)
from eos.kafka.batch_samples import BatchSample, sample
from eos.kafka.cluster import Cluster, TopicInfo
from eos.kafka.cluster_shape import Shape
from eos.kafka.connection import Connections
from eos.kafka.connection_cache import reuse
from eos.kafka.fetch import FETCH_BYTES_MAX, FetchedBytes, fetch
from eos.kafka.range_fetcher import PATIENCE_MS, Range, RangeFetcher
from eos.kafka.record_reader import Marker, StoredRecord
from eos.kafka.settings import KafkaSettings
from eos.kafka.topic_creation import create_topic
from eos.kafka.transaction_client import TransactionClient


class KafkaClient(TransactionClient):
    """Client of a real Kafka cluster. Thread-safe. It implements `TransactionPort`.

    Guarantees: each call ends at its deadline. A request is retried automatically only if it is
    idempotent (lookups, creating a topic, deleting records) or was certainly never sent. The fields
    of `NoAnswerError` are `sent`, `api` and `node`.
    Not guaranteed: an unanswered request may have been executed, or may still be executed.
    """

    def __init__(self, settings: KafkaSettings, profile: TransactionProfile | None = None) -> None:
        self.settings = settings
        self._profile = profile
        self._connections = Connections(settings)
        self._cluster = Cluster(self._connections, settings)
        self._others: dict[KafkaSettings, KafkaClient] = {}
        self._lock = threading.Lock()

    @classmethod
    def shared(
        cls, settings: KafkaSettings, profile: TransactionProfile | None = None
    ) -> KafkaClient:
        """Return this process's client for these settings, which all callers share. A forked child
        gets its own client."""
        return cast("KafkaClient", reuse((settings, profile), lambda: cls(settings, profile)))

    @property
    def closed(self) -> bool:
        return self._connections.closed

    @property
    def answered_at(self) -> float:
        """Return when any broker last answered, or else when the client was created.

        The unit is seconds of `time.monotonic()`."""
        return self._connections.answered_at

    def close(self) -> None:
        with self._lock:
            others, self._others = list(self._others.values()), {}
        for each in others:
            each.close()
        self._connections.close()

    def of_cluster(self, settings: KafkaSettings) -> KafkaClient:
        """Return the client of another cluster, which is closed with this one. Return this client
        if the settings are its own."""
        if settings == self.settings:
            return self
        with self._lock:
            if settings not in self._others:
                self._others[settings] = KafkaClient(settings)
            return self._others[settings]

    def leaders(
        self, partitions: Iterable[TopicPartition], deadline: Deadline
    ) -> Mapping[TopicPartition, int]:
        """Return the broker id of each partition's leader. If all are known, no request is sent, so
        a leader may be out of date.

        After an error that a wrong leader causes, call `refresh_metadata` first."""
        return self._cluster.leaders(partitions, deadline)

    def refresh_metadata(self, topics: Iterable[str], deadline: Deadline) -> None:
        self._cluster.metadata(topics, deadline)

    def topics(
        self, names: Iterable[str] | re.Pattern[str], deadline: Deadline
    ) -> Mapping[str, TopicInfo]:
        """Return the metadata of the named topics, or of all topics whose name matches a pattern.

        A missing topic has an error code. A pattern must match the whole name, and omits internal
        topics."""
        return self._cluster.topics(names, deadline)

    def shape(self, names: Iterable[str], deadline: Deadline) -> Shape:
        return cluster_shape.shape(self._cluster, names, deadline)

    def operations(self, topics: Iterable[str], deadline: Deadline) -> Mapping[str, frozenset[str]]:
        """Return the operations that this user may perform on each topic that it may describe."""
        return cluster_shape.operations(self._cluster, topics, deadline)

    def list_offsets(
        self, partitions: Iterable[TopicPartition], at: At, *, committed: bool, deadline: Deadline
    ) -> Mapping[TopicPartition, int]:
        """Return each partition's offset `at` "earliest", "latest" or a time in milliseconds.

        For a time, this is the first offset with that timestamp or a later one, else -1. With
        `committed`, "latest" is the last stable offset."""
        return admin.list_offsets(self._cluster, partitions, at, committed, deadline)

    def committed_offsets(
        self,
        group: str,
        deadline: Deadline,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a consumer group, for these partitions or for all.

        While a transaction with offsets of a partition is open, wait until the deadline. Without
        `partitions`, the broker omits a partition whose first offset is in an open transaction.
        """
        return groups.committed_offsets(self._cluster, group, partitions, deadline)

    def commit_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], deadline: Deadline
    ) -> None:
        """Commit offsets of a consumer group without members, outside of a transaction."""
        groups.commit_offsets(self._cluster, group, offsets, deadline)

    def group_state(self, group: str, deadline: Deadline) -> str:
        """Return a consumer group's state, such as `Stable` or `Empty`; "" if it does not exist."""
        return groups.group_state(self._cluster, group, deadline)

    def describe_producers(
        self, partitions: Iterable[TopicPartition], deadline: Deadline
    ) -> Mapping[TopicPartition, tuple[DescribedProducer, ...]]:
        return admin.describe_producers(self._cluster, partitions, deadline)

    def delete_records(
        self, before: Mapping[TopicPartition, int], deadline: Deadline
    ) -> Mapping[TopicPartition, int]:
        """Delete all records below the given offsets. Return each partition's new first offset."""
        return admin.delete_records(self._cluster, before, deadline)

    def topic_config(self, topic: str, name: str, deadline: Deadline) -> str:
        return admin.topic_config(self._cluster, topic, name, deadline)

    def broker_config(self, name: str, deadline: Deadline) -> str:
        """Return a setting's value on the broker with the lowest id; other brokers may differ."""
        return admin.broker_config(self._cluster, name, deadline)

    def create_topic(
        self,
        name: str,
        partitions: int,
        replication: int,
        config: Mapping[str, str],
        deadline: Deadline,
    ) -> None:
        """Create a topic unless it exists, and wait for its leaders.

        `partitions` and `replication` of -1 mean the broker's defaults.
        """
        create_topic(self._cluster, name, partitions, replication, config, deadline)

    def cluster_id(self, deadline: Deadline) -> str:
        """Return the cluster's id, by which two names of one cluster are recognized."""
        return str(self._cluster.metadata((), deadline).cluster_id)

    def transaction_version(self, deadline: Deadline) -> int:
        """Return the cluster's finalized `transaction.version`; 0 without this feature."""
        return features.transaction_version(self._cluster, deadline)

    def agree_on_profile(self, deadline: Deadline) -> TransactionProfile:
        """Return the transaction profile, TV1 or TV2, that the cluster supports.

        Raise UnsupportedBrokerError if it supports neither. Call this before InitProducerId fences
        the running instance, so that a startup that can't run fences none. Call it again
        afterwards, because only then is the version reliable (KAFKA-18227). The first call fixes
        the profile for this client. If the cluster is upgraded meanwhile, it still serves TV1.
        """
        found = features.profile_of(self._cluster, deadline)
        if self._profile is TransactionProfile.TV2 and found is TransactionProfile.TV1:
            raise UnavailableError(
                "transaction_version_lowered",
                "the cluster's transaction.version was lowered during the startup",
                hint="start the pipeline again; it then uses the cluster's current version",
            )
        self._profile = self._profile or found
        return self._profile

    def read_records(
        self,
        partition: TopicPartition,
        offset_start: int,
        offset_end: int,
        *,
        committed: bool,
        deadline: Deadline,
        records_max: int = 100_000,
        bytes_max: int = sys.maxsize,
        markers: list[Marker] | None = None,
    ) -> Sequence[StoredRecord]:
        """Return the records with offset_start <= offset < offset_end, and add their `markers`.

        Stop after `records_max` records, or after the record that reaches `bytes_max`. With
        `committed`, leave out aborted transactions and wait for open ones.
        """
        bounds = offset_start, offset_end, committed, deadline, records_max, bytes_max
        return record_reader.read_records(self._cluster, partition, *bounds, markers)

    def fetch(
        self, partition: TopicPartition, position: int, deadline: Deadline, bytes_max: int
    ) -> FetchedBytes:
        """Return raw log bytes from `position` on, at most up to the last stable offset."""
        return fetch(self._cluster, partition, position, deadline, bytes_max)

    def sample(
        self, partition: TopicPartition, offset: int, deadline: Deadline
    ) -> BatchSample | None:
        """Return the size of the record batch at an offset, or of the next one; None at the end."""
        return sample(self._cluster, partition, offset, deadline)

    def fetch_ranges(
        self,
        ranges: Iterable[Range],
        *,
        fetch_bytes: int = FETCH_BYTES_MAX,
        patience_ms: int = PATIENCE_MS,
    ) -> RangeFetcher:
        """Return a fetcher of the record batches in offset ranges, for use by a single thread."""
        return RangeFetcher(
            self._cluster,
            self._connections.exclusive,
            ranges,
            fetch_bytes=fetch_bytes,
            patience_ms=patience_ms,
        )
