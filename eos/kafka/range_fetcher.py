"""Fetch offset ranges of many partitions, in a given order and with bounded memory.

Small ranges take one round trip: each leader gets one request for up to 1,000 of its partitions.
For large ranges, the next response is on its way while the previous one is read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable
from contextlib import suppress
from typing import NamedTuple

from eos.deadline import Backoff, Deadline
from eos.errors import NoAnswerError, UnavailableError
from eos.kafka import admin, read_errors
from eos.kafka.api import TopicPartition
from eos.kafka.cluster import LAST_MOMENTS_MS, Cluster
from eos.kafka.exclusive_connection import ExclusiveConnections
from eos.kafka.fetch import FETCH_BYTES_MAX, fetch_once
from eos.kafka.fetch_wire import FetchedPartition
from eos.kafka.leader_stream import LeaderStream, Piece, RangeProgress
from eos.kafka.outcomes import LEADER_RETRIED
from eos.kafka.refusals import refused

PATIENCE_MS = 120_000  # a longer wait without progress fails, as in Spark's Kafka source
_BUFFERS = 2  # responses in memory
_RESPONSE_BYTES_MIN = 64 * 1024
_RECORD_BYTES = 32  # a compressed record is rarely smaller
_OUT_OF_RANGE = 1
_PROBE_MS = 10_000
_PAUSE_MS, _PAUSE_MS_MAX = 20, 500
_LOOKUP_MS = 1_000  # a lookup with less time may fail although the cluster answers
_TRUSTED_MS = 1_000  # after this time without records, the leader is looked up again


class Range(NamedTuple):
    """Offsets of a partition to read: `start` inclusive, `end` exclusive."""

    partition: TopicPartition
    start: int
    end: int


class RangeFetcher:
    """Fetcher of record batches in offset ranges, one range after another.

    It reads up to the last stable offset, and lists aborted transactions. A "piece" is the part of
    a range that one Fetch response has. Guarantees: the pieces of a range follow each other without
    a gap in the log. If a leader moves or does not answer, requests are repeated for `patience_ms`
    since the last progress. Except for larger record batches, at most two responses of
    `fetch_bytes` are in memory.
    """

    def __init__(
        self,
        cluster: Cluster,
        connections: ExclusiveConnections,
        ranges: Iterable[Range],
        *,
        fetch_bytes: int = FETCH_BYTES_MAX,
        patience_ms: int = PATIENCE_MS,
    ) -> None:
        self._cluster = cluster
        self._connections = connections
        self._ranges: list[RangeProgress] = []
        offsets = 0
        for partition, start, end in ranges:
            self._ranges.append(RangeProgress(partition, start, end, start, offsets))
            offsets += max(0, end - start)
        self._fetch_bytes = fetch_bytes
        self._offsets_ahead = fetch_bytes // _RECORD_BYTES
        self._patience_ms = patience_ms
        self._streams: list[LeaderStream] = []
        self._stream_of: dict[int, LeaderStream] = {}  # by the index of a range in `_ranges`

    def pieces(self) -> Generator[Piece, None, None]:
        """Yield the received parts of all ranges, in order. Each is valid until the next one."""
        try:
            for number, wanted in enumerate(self._ranges):
                while wanted.position < wanted.end:
                    piece = self._next(number, wanted)
                    yield piece
                    wanted.position = piece.next_position
        finally:
            self._close_streams()

    def _next(self, number: int, wanted: RangeProgress) -> Piece:
        """Return the next piece of a range. Retry for `patience_ms`, counted from this call on."""
        deadline, backoff = Deadline.after_ms(self._patience_ms), Backoff(_PAUSE_MS, _PAUSE_MS_MAX)
        answer: FetchedPartition | None = None  # the leader's last answer without a record batch
        has_failed = False
        trusted = Deadline.after_ms(_TRUSTED_MS)
        while True:
            began_ms = deadline.left_ms
            try:
                if not self._streams:
                    self._open_streams(number, deadline)
                found = self._receive(number, wanted, deadline)
                if isinstance(found, Piece):
                    return found
                answer = found or answer
                has_failed = True
                is_moved = found is not None and self._is_moved(wanted, found, deadline)
            except NoAnswerError as lost:
                self._cluster.lost(lost)
                answer = None if deadline.left_ms > LAST_MOMENTS_MS else answer
                has_failed = is_moved = True
            except UnavailableError:
                # A lookup that had little time would hide the cause of earlier failures.
                if not has_failed or began_ms > _LOOKUP_MS:
                    raise
                is_moved = True
            if deadline.has_passed:
                raise self._too_late(wanted, answer)
            if is_moved or trusted.has_passed:
                self._close_streams()
                self._cluster.forget_leaders()
                trusted = Deadline.after_ms(_TRUSTED_MS)
            backoff.sleep(deadline)

    def _receive(
        self, number: int, wanted: RangeProgress, deadline: Deadline
    ) -> Piece | FetchedPartition | None:
        """Return the next piece of a range, or the leader's answer if it has no record batch.

        Return None if the response leaves the partition out, or the broker throttles the client."""
        stream = self._stream_of[number]
        piece, answer = stream.take(wanted), None
        if piece is None:
            self._request(wanted, deadline)
            answer = stream.receive(deadline)
            piece = stream.take(wanted)
        if piece is None:
            return answer
        self._request(wanted, deadline)
        return piece

    def _request(self, wanted: RangeProgress, deadline: Deadline) -> None:
        """Send the next request to each leader whose records will be read soon.

        Responses for later ranges would only wait at their broker. If sending fails here, `receive`
        sends the request again when its records are needed."""
        for stream in self._streams:
            first = stream.next_range
            ahead = 0 if first is None else first.offsets_before - wanted.offsets_before
            if first is not None and ahead <= self._offsets_ahead:
                with suppress(NoAnswerError):
                    stream.request(deadline)

    def _open_streams(self, number: int, deadline: Deadline) -> None:
        left = self._ranges[number:]
        leaders = self._cluster.leaders({each.partition for each in left}, deadline)
        led: defaultdict[int, list[RangeProgress]] = defaultdict(list)
        for each in left:
            if each.position < each.end:
                each.requested = each.position
                led[leaders[each.partition]].append(each)
        share = self._fetch_bytes * _BUFFERS // max(_BUFFERS, len(led))
        bytes_max = max(share, _RESPONSE_BYTES_MIN)
        streams = {
            node: LeaderStream(node, self._connections, ranges, bytes_max, self._offsets_ahead)
            for node, ranges in led.items()
        }
        self._streams = list(streams.values())
        self._stream_of = {
            each: streams[leaders[progress.partition]]
            for each, progress in enumerate(left, number)
            if progress.position < progress.end
        }

    def _close_streams(self) -> None:
        for stream in self._streams:
            stream.close()
        self._streams, self._stream_of = [], {}

    # -- answers without records -----------------------------------------------------------------

    def _is_moved(self, wanted: RangeProgress, found: FetchedPartition, deadline: Deadline) -> bool:
        """Return whether another broker may lead the partition now.

        `found` is the leader's answer without a whole record batch. Raise if a retry can't help.
        """
        if found.error == _OUT_OF_RANGE:
            self._require_in_log(wanted.partition, wanted.position, deadline)
        elif found.error and found.error not in LEADER_RETRIED:
            where = f"{wanted.partition} from offset {wanted.position}"
            raise refused("Fetch", found.error, where)
        elif found.records:
            cause = "it is not complete"
            raise read_errors.unreadable(wanted.partition, wanted.position, cause)
        return bool(found.error)

    def _require_in_log(self, partition: TopicPartition, offset: int, deadline: Deadline) -> None:
        """Raise PromiseBrokenError unless the offset is in the log of the current leader.

        A broker that does not know yet that it was replaced may have answered from an older log.
        """
        self._cluster.forget_leaders()
        earliest, latest = (
            admin.list_offsets(self._cluster, [partition], at, False, deadline)[partition]
            for at in ("earliest", "latest")
        )
        if not earliest <= offset <= latest:
            raise read_errors.outside_log(partition, offset, earliest, latest)

    def _too_late(self, wanted: RangeProgress, answer: FetchedPartition | None) -> Exception:
        partition, position, end = wanted.partition, wanted.position, wanted.end
        if answer is None or answer.error:
            error = None if answer is None else answer.error
            return read_errors.too_late(partition, position, end, error, committed=True)
        if answer.last_stable_offset < end <= answer.high_watermark:
            return read_errors.too_late(partition, position, end, 0, committed=True)
        if answer.high_watermark < end:
            self._require_not_lost(partition, end)
        known = f"its leader has records up to offset {answer.last_stable_offset}"
        return read_errors.no_leader(partition, position, end, known)

    def _require_not_lost(self, partition: TopicPartition, end: int) -> None:
        """Raise PromiseBrokenError if the log now ends before `end`, which was readable before.

        A new leader may have the records, but not serve them until its followers have them, too.
        Then its answer for offset `end` has no records. If its log ends before `end`, it answers
        OFFSET_OUT_OF_RANGE.
        """
        deadline = Deadline.after_ms(_PROBE_MS)
        found = fetch_once(self._cluster, partition, end, False, deadline)
        if found is not None and found.error_code == _OUT_OF_RANGE:
            self._require_in_log(partition, end, deadline)
