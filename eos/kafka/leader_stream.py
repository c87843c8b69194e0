"""Fetch offset ranges of partitions with the same leader, one response ahead of the reader."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from eos.deadline import Deadline
from eos.errors import NoAnswerError
from eos.kafka import fetch_wire
from eos.kafka.api import TopicPartition
from eos.kafka.exclusive_connection import ExclusiveConnection, ExclusiveConnections
from eos.kafka.fetch_wire import BrokenResponseError, FetchedPartition, FetchResponse, Position
from eos.kafka.outcomes import LEADER_RETRIED
from eos.kafka.records.batch_headers import end_offset
from eos.kafka.refusals import refused

_WAIT_MS = 100  # time that the broker waits if it has no records for the request
_PARTITIONS_MAX = 1_000  # of one request


@dataclass(slots=True)
class RangeProgress:
    """An offset range of one partition, and how far it was requested and read."""

    partition: TopicPartition
    position: int  # all offsets before it were read
    end: int
    requested: int  # all offsets before it were read or received
    offsets_before: int = 0  # number of offsets in all ranges that are read before this one


class Piece(NamedTuple):
    """The part of an offset range that one Fetch response has: whole record batches.

    `records` is valid until the next piece is requested."""

    progress: RangeProgress
    records: memoryview
    aborted: tuple[tuple[int, int], ...]
    next_position: int


class LeaderStream:
    """Fetch stream from one leader, for offset ranges that are read one after another.

    A response has all records of the first ranges, a part of the next range, and nothing of the
    rest. The reader takes these parts ("pieces") in order. The next request begins where they end,
    and is sent before they are read. Its response waits in the socket's buffer and at the broker,
    and later overwrites the previous response.
    """

    def __init__(
        self,
        node: int,
        connections: ExclusiveConnections,
        ranges: Iterable[RangeProgress],
        bytes_max: int,
        offsets_max: int,
    ) -> None:
        self._node = node
        self._connections = connections
        self._connection: ExclusiveConnection | None = None
        self._ranges = deque(ranges)  # not received completely yet
        self._bytes_max = bytes_max
        self._offsets_max = offsets_max
        self._requested: list[RangeProgress] = []
        self._correlation = 0
        self._received: deque[Piece] = deque()
        self._made_progress = True
        self._has_failed = False

    @property
    def next_range(self) -> RangeProgress | None:
        """Return the first range of the next request; None if no request should be sent.

        That is so if a request is in flight, all ranges are received, or sending has failed."""
        is_idle = self._ranges and not self._requested and not self._has_failed
        return self._ranges[0] if is_idle else None

    def request(self, deadline: Deadline) -> None:
        """Send the next Fetch request, unless the broker throttles this client.

        Raise NoAnswerError if it can't be sent."""
        self._has_failed = True
        connection = self._usable_connection(deadline)
        if time.monotonic() < connection.resume_at:
            self._has_failed = False
            return
        # If the last response had no records of the first range, request only this range.
        # Otherwise each retry would fetch the records of later ranges again and discard them.
        requested = self._next_ranges() if self._made_progress else [self._ranges[0]]
        self._correlation = connection.next_correlation()
        frame = fetch_wire.fetch_request(
            self._correlation,
            connection.client_id,
            [Position(each.partition, each.requested) for each in requested],
            self._bytes_max,
            deadline.at_most_ms(_WAIT_MS),
        )
        connection.send(frame, deadline)
        self._requested, self._has_failed = requested, False

    def take(self, wanted: RangeProgress) -> Piece | None:
        """Remove and return the first unread piece; None if it does not belong to this range."""
        if self._received and self._received[0].progress is wanted:
            return self._received.popleft()
        return None

    def receive(self, deadline: Deadline) -> FetchedPartition | None:
        """Receive a response and store its pieces. Return its part for the first requested range.

        Return None if it has no such part, or if the broker throttles this client until the
        deadline. All earlier pieces must have been read."""
        assert not self._received, "unread pieces would be overwritten"
        while not self._requested:
            self.request(deadline)
            if not self._requested and not self._throttled(deadline):
                return None
        response = self._response(deadline)
        requested, self._requested = self._requested, []
        first = response.partitions.get(requested[0].partition)
        self._made_progress = first is not None and self._keep(requested, response)
        return first

    def close(self) -> None:
        """Keep the connection for other streams, or close it if a response is outstanding."""
        connection, self._connection = self._connection, None
        self._received.clear()
        if connection is not None:
            self._connections.put_back(connection)

    def _next_ranges(self) -> list[RangeProgress]:
        """Return the ranges of the next request: the first ones, until they have more than one
        response is likely to hold.

        A request can't have two ranges of the same partition."""
        found: list[RangeProgress] = []
        partitions: set[TopicPartition] = set()
        offsets = 0
        for each in self._ranges:
            is_enough = offsets > self._offsets_max or len(found) == _PARTITIONS_MAX
            if is_enough or each.partition in partitions:
                break
            found.append(each)
            partitions.add(each.partition)
            offsets += each.end - each.requested
        return found

    def _throttled(self, deadline: Deadline) -> bool:
        """Wait until the broker's throttling ends. Return False if the deadline passed before."""
        assert self._connection is not None
        left_ms = int((self._connection.resume_at - time.monotonic()) * 1000) + 1
        time.sleep(deadline.at_most_ms(max(0, left_ms)) / 1000)  # the broker's throttle time
        return not deadline.has_passed

    def _usable_connection(self, deadline: Deadline) -> ExclusiveConnection:
        if self._connection is not None and self._connection.has_ended:
            self._connection.close()
            self._connection = None
        if self._connection is None:
            self._connection = self._connections.take(
                self._node, fetch_wire.API_KEY, fetch_wire.VERSION, deadline
            )
        return self._connection

    def _response(self, deadline: Deadline) -> FetchResponse:
        connection = self._connection
        assert connection is not None
        try:
            response = fetch_wire.fetch_response(connection.receive(deadline), self._correlation)
        except BrokenResponseError as error:
            connection.close()
            raise NoAnswerError(
                "request_unanswered",
                f"Fetch was answered by broker {self._node} with a malformed response: {error}",
                api="Fetch",
                node=self._node,
                sent=True,
            ) from error
        connection.resume_at = time.monotonic() + response.throttle_ms / 1000
        if response.error and response.error not in LEADER_RETRIED:
            raise refused("Fetch", response.error, str(self._requested[0].partition))
        return response

    def _keep(self, requested: list[RangeProgress], response: FetchResponse) -> bool:
        """Store the response's pieces, up to the first incomplete range. Return whether any exist.

        Records of later ranges are dropped and requested again: usually none, or one record batch.
        Keeping them would need a second buffer.
        """
        for each in requested:
            found = response.partitions.get(each.partition)
            if found is None or found.error:
                break
            after = end_offset(found.records, each.requested)
            if after == each.requested:
                break
            self._received.append(Piece(each, found.records, found.aborted, after))
            each.requested = after
            if after < each.end:
                break
            self._ranges.popleft()
        return bool(self._received)
