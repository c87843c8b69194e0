"""How does `eos verify` read Kafka's logs, one partition at a time, with bounded memory?

The next fetch request runs while the previous response is decoded. Whatever a topic's size, memory
holds two responses and the decoded records of one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from eos.deadline import Deadline
from eos.dedup.stamp_columns import StampRules
from eos.errors import UnavailableError
from eos.kafka.admin import At
from eos.kafka.api import TopicPartition
from eos.kafka.client import KafkaClient
from eos.kafka.cluster import TopicInfo
from eos.kafka.fetch import FetchedBytes
from eos.kafka.read_errors import unreadable
from eos.kafka.records.batch_headers import (
    Batch,
    BatchHeader,
    Old,
    Visibility,
    batches,
    next_offset,
)
from eos.kafka.records.decompression import BrokenPayloadError, unpack
from eos.kafka.records.varint import Ints
from eos.kafka.refusals import refused
from eos.verify.records import Records, digests, parsed
from eos.verify.source import SourcePartition
from eos.verify.stamps import Stamps, stamps
from eos.verify.target import LogBounds, Retention, Target

_FETCH_BYTES_MAX = 8 * 1024 * 1024
_FETCH_BYTES_MORE = 256 * 1024  # room for records of others in between
_PLAIN_BYTES_MAX = 8 * 1024 * 1024  # uncompressed bytes of records decoded at once
TIMEOUT_MS = 60_000
_TRIES_MAX = 100  # fetches without a record batch; the broker delays each by half a second
_REFUSED = 29


class Reader:
    """Reader of partitions' logs.

    `moved` reports progress: after each fetch, it is called with the number of offsets read."""

    def __init__(
        self, client: KafkaClient, moved: Callable[[int], None] = lambda _offsets: None
    ) -> None:
        self.client = client
        self._moved = moved
        self._pool = ThreadPoolExecutor(1, "eos-verify")
        self._retention: dict[str, Retention] = {}

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogBounds]:
        """Return each partition's start, last stable offset and end; zeros if it is missing."""
        counts = self.partitions({tp.topic for tp in partitions})
        existing = [tp for tp in partitions if tp.partition < counts[tp.topic]]
        first = self._offsets(existing, "earliest", committed=False)
        stable = self._offsets(existing, "latest", committed=True)
        end = self._offsets(existing, "latest", committed=False)
        nothing = LogBounds(0, 0, 0)
        found = {tp: LogBounds(first[tp], stable[tp], end[tp]) for tp in existing}
        return {tp: found.get(tp, nothing) for tp in partitions}

    def _offsets(
        self, partitions: Collection[TopicPartition], at: At, *, committed: bool
    ) -> Mapping[TopicPartition, int]:
        if not partitions:
            return {}
        return self.client.list_offsets(
            partitions, at, committed=committed, deadline=short_deadline()
        )

    def partitions(self, topics: Collection[str]) -> Mapping[str, int]:
        """Return the number of partitions of each topic; 0 if it is missing."""
        found = self.client.topics(topics, short_deadline()) if topics else {}
        require_seen(found)
        return {name: 0 if info.is_missing else info.partitions for name, info in found.items()}

    def retention(self, topic: str) -> Retention:
        if topic not in self._retention:
            if not self.partitions([topic])[topic]:
                return Retention()
            policy, *limits = (
                self.client.topic_config(topic, name, short_deadline())
                for name in ("cleanup.policy", "retention.ms", "retention.bytes")
            )
            can_expire = "delete" in policy and any(limit != "-1" for limit in limits)
            self._retention[topic] = Retention("compact" in policy, can_expire)
        return self._retention[topic]

    def target(self, target: Target, end: int, bytes_hint: int = _FETCH_BYTES_MAX) -> None:
        """Call `target.see` with the record batches from its position to `end` (exclusive)."""
        group: list[BatchHeader | Old] = []
        payloads: dict[int, bytes | None] = {}
        size = 0
        for found in self.scan(target.at, target.position, end, bytes_hint):
            for header in found:
                if not isinstance(header, Old) and target.wants(header):
                    payload = _unpack(header)
                    payloads[len(group)] = payload
                    size += len(payload or b"")
                group.append(header)
                if size >= _PLAIN_BYTES_MAX:
                    _show(target, group, payloads)
                    group, payloads, size = [], {}, 0
            _show(target, group, payloads)
            group, payloads, size = [], {}, 0

    def source(self, source: SourcePartition, bounds: LogBounds) -> None:
        """Call `source.see` with the header of each record batch. Records are not decoded."""
        start = source.begin(bounds)
        until = min(source.end, bounds.stable)
        for found in self.scan(source.at, start, until):
            if found and _first(found[0]) > source.position:
                source.begins_at(self.bounds([source.at])[source.at].start)
            for header in found:
                source.see(header)
        source.finish(until)

    def stamps(self, at: TopicPartition, end: int, rules: StampRules) -> Iterator[Stamps]:
        """Yield the stamps of the visible records from the log's start to `end` (exclusive)."""
        for records, offsets in self.records(at, end):
            yield stamps(records, offsets, rules)

    def records(self, at: TopicPartition, end: int) -> Iterator[tuple[Records, Ints]]:
        """Yield the visible records from the log's start, with their offsets.

        The last record batch may extend past `end`.
        """
        for found in self.scan(at, self.bounds([at])[at].start, end):
            group: list[Batch] = []
            payloads: list[bytes] = []
            for header in found:
                if isinstance(header, Old) or not header.is_visible or not header.batch.records:
                    continue
                payload = _unpack(header)
                if payload is None:
                    continue  # skip a damaged record batch, which proves nothing
                group.append(header.batch)
                payloads.append(payload)
                if sum(map(len, payloads)) >= _PLAIN_BYTES_MAX:
                    yield from _parse(group, payloads)
                    group, payloads = [], []
            yield from _parse(group, payloads)

    def scan(
        self, at: TopicPartition, start: int, end: int, bytes_hint: int = _FETCH_BYTES_MAX
    ) -> Iterator[list[BatchHeader | Old]]:
        """Yield the record batches from `start` on that begin before `end`, in lists.

        `end` must not be above the last stable offset.
        """
        bytes_max = min(_FETCH_BYTES_MAX, bytes_hint + _FETCH_BYTES_MORE)
        position, tries = start, 0
        ahead: Future[FetchedBytes] | None = None
        while position < end:
            fetched = (ahead or self._fetch(at, position, bytes_max)).result()
            ahead = None
            read = list(batches(fetched.blob))
            following = next_offset(read)
            if fetched.blob and (following is None or following <= position):
                raise unreadable(at, position, "it contains no complete record batch")
            if following is None:
                tries += 1
                position = max(position, self._begins_later(at, position, tries))
                continue
            if following < end:
                ahead = self._fetch(at, following, bytes_max)
            visibility = Visibility(fetched.aborted)
            shown: list[BatchHeader | Old] = []
            for batch in read:
                if isinstance(batch, Old):
                    shown.append(batch)
                    continue
                header = BatchHeader(batch, visibility.of(batch))
                if start <= batch.last_offset and batch.offset < end:
                    shown.append(header)
            self._moved(min(following, end) - position)
            yield shown
            position, tries = following, 0

    def _fetch(self, at: TopicPartition, position: int, bytes_max: int) -> Future[FetchedBytes]:
        return self._pool.submit(self.client.fetch, at, position, short_deadline(), bytes_max)

    def _begins_later(self, at: TopicPartition, position: int, tries: int) -> int:
        """Return the offset to fetch after a response without record batches.

        It is the log's new start if retention deleted `position`, else `position`. Raise
        UnavailableError after `_TRIES_MAX` tries."""
        bounds = self.bounds([at])[at]
        if bounds.start > position:
            return bounds.start
        if tries > _TRIES_MAX:
            raise UnavailableError(
                "broker_returns_no_records",
                f"{at.topic}-{at.partition}: the broker returns no records from offset {position} "
                f"on, although the partition can be read up to {bounds.stable}",
                hint="is the partition's log damaged? Check the broker's own log",
            )
        return position


def _first(header: BatchHeader | Old) -> int:
    return header.last_offset if isinstance(header, Old) else header.batch.offset


def require_seen(topics: Mapping[str, TopicInfo]) -> None:
    """Raise if the user may not describe a topic, which would otherwise count as missing."""
    for name, info in topics.items():
        if info.error == _REFUSED:
            raise refused("Metadata", info.error, f"topic {name}")


def short_deadline() -> Deadline:
    return Deadline.after_ms(TIMEOUT_MS)


def _unpack(header: BatchHeader) -> bytes | None:
    try:
        return unpack(header.batch.codec, header.batch.payload)
    except BrokenPayloadError:
        return None


def _parse(group: list[Batch], payloads: list[bytes]) -> Iterator[tuple[Records, Ints]]:
    """Yield the records of consecutive record batches; skip record batches that are malformed."""
    found = parsed(payloads, [batch.records for batch in group]) if group else None
    if found is not None:
        records, deltas = found
        bases = np.repeat([batch.offset for batch in group], [batch.records for batch in group])
        yield records, bases + deltas
    elif len(group) > 1:
        for batch, payload in zip(group, payloads, strict=True):
            yield from _parse([batch], [payload])


def _show(
    target: Target, group: list[BatchHeader | Old], payloads: Mapping[int, bytes | None]
) -> None:
    """Call `target.see` with each record batch in log order, and its digest if it was decoded."""
    readable = [(place, payload) for place, payload in payloads.items() if payload is not None]
    counts = [
        header.batch.records
        for place, _ in readable
        if isinstance(header := group[place], BatchHeader)
    ]
    sums = digests([payload for _, payload in readable], counts)
    of_place = dict(zip((place for place, _ in readable), sums, strict=True))
    for place, header in enumerate(group):
        target.see(header, of_place.get(place))
