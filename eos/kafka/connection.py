"""Connections to brokers that send requests in order, each before its deadline.

There is one IO thread, and one queue per broker. kafka-python's event loop and connection
manager do the networking. A queued request waits for its connection, for the end of a throttling
pause, and for earlier requests. It fails at its deadline at the latest, and its error states with
certainty whether it was sent.
"""

from __future__ import annotations

import itertools
import logging
import os
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from kafka import errors as kafka_errors
from kafka.net.selector import NetworkSelector

from eos.deadline import Deadline
from eos.errors import EosError
from eos.kafka import connection_cache
from eos.kafka.client_options import connection_options, security_options
from eos.kafka.connection_manager import DIRECT, Manager
from eos.kafka.exclusive_connection import CONNECT_MS, ExclusiveConnections
from eos.kafka.pending_request import Node, PendingRequest
from eos.kafka.refusals import message_of, refusal, version_not_offered
from eos.kafka.settings import KafkaSettings

_CLOSE_MS = 5_000
_PAUSE_STEP_S = 0.01
_FLUSH_STEP_S = 0.001
_RESPONSE_BYTES_MAX = 128 * 1024 * 1024

_numbers = itertools.count(1)


class _Channel:
    """Queue of requests for one broker, and its connection."""

    __slots__ = ("connection", "failure", "node", "pumping", "queue")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.queue: deque[PendingRequest] = deque()
        self.pumping = False
        self.connection: Any = None
        self.failure = ""  # cause of the last failed connection attempt


class Connections:
    """Connections to all brokers of a cluster.

    Guarantees: requests to one broker are sent in the order of the `submit` calls, each before its
    deadline or not at all. `close` leaves no thread and no file descriptor open, unless a name
    lookup blocks the IO thread for ten seconds.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        _silence_log()
        security = security_options(settings)  # may raise, so before a socket or thread exists
        self._settings = settings
        name = f"{settings.client_id}-{next(_numbers)}"
        self._net = NetworkSelector(client_id=name, slow_task_threshold_secs=0)
        self._manager = Manager(
            self._net,
            bootstrap_servers=list(settings.bootstrap),
            client_id=settings.client_id,
            client_software_name="spark-eos",
            receive_message_max_bytes=_RESPONSE_BYTES_MAX,
            request_timeout_ms=settings.request_timeout_ms,
            # No limit here, since a request above it would fail. The writer enforces the limit of
            # five record batches per partition.
            max_in_flight_requests_per_connection=100_000,
            proxy_url=DIRECT,
            **{"reconnect_backoff_max_ms": 1000, **connection_options(settings), **security},
        )
        self.exclusive = ExclusiveConnections(self._net, self._manager, settings, self.address)
        self._channels: dict[Node, _Channel] = {}
        self._lock = threading.Lock()
        self._closed = False
        # Time of the last answer of any broker, at first that of the start. Fetch responses on
        # exclusive connections do not count.
        self.answered_at = time.monotonic()
        self._pid = os.getpid()
        self._net.start()
        connection_cache.opened(self)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def bootstrap_nodes(self) -> list[Node]:
        return [broker.node_id for broker in self._manager.cluster.bootstrap_brokers()]

    @property
    def brokers(self) -> list[Node]:
        return [broker.node_id for broker in self._manager.cluster.brokers()]

    def knows(self, node: Node) -> bool:
        return self._manager.cluster.broker_metadata(node) is not None

    def address(self, node: Node) -> str:
        broker = self._manager.cluster.broker_metadata(node)
        return f"{broker.host}:{broker.port}" if broker else f"broker {node}"

    def learn(self, metadata_response: Any) -> None:
        """Store the brokers' addresses from a Metadata response."""
        self._manager.cluster.update_metadata(metadata_response)

    def submit(
        self,
        node: Node,
        request: Any,
        deadline: Deadline,
        after: PendingRequest | None = None,
        on_sent: Callable[[], None] | None = None,
    ) -> PendingRequest:
        """Send `request` to `node` after all earlier requests. Don't wait for the answer.

        If the request `after` has failed, don't send this one. Otherwise a record batch could reach
        the broker on a new connection although the previous batch was lost with the old one.
        """
        pending = PendingRequest(node, request, deadline, after)
        pending.on_sent = on_sent
        with self._lock:
            if self._closed or os.getpid() != self._pid:
                raise RuntimeError("this client is closed, or belongs to the parent process")
            channel = self._channels.get(node)
            if channel is None:
                channel = self._channels[node] = _Channel(node)
            channel.queue.append(pending)

            async def pump() -> None:
                await self._pump(channel)

            self._net.call_soon_threadsafe(pump)
        return pending

    def call(
        self,
        node: Node,
        request: Any,
        deadline: Deadline,
        on_sent: Callable[[], None] | None = None,
    ) -> Any:
        return self.submit(node, request, deadline, on_sent=on_sent).wait(deadline)

    def drop(self, node: Node) -> None:
        """Close the connection to `node`. Requests in flight on it fail."""
        channel = self._channels.get(node)
        if channel is None or self._closed:
            return

        async def close() -> None:
            if channel.connection is not None:
                channel.connection.close()

        self._net.call_soon_threadsafe(close)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if os.getpid() != self._pid:
            return  # the sockets belong to the parent process
        self.exclusive.close()
        closed = threading.Event()

        async def close_all() -> None:
            try:
                await self._close_all()
            finally:
                closed.set()

        self._net.call_soon_threadsafe(close_all)
        closed.wait(_CLOSE_MS / 1000)  # bounded, because a name lookup may block the IO thread
        io_thread = self._net._io_thread  # noqa: SLF001 - there is no public API
        self._net.stop(timeout_ms=_CLOSE_MS)
        if not io_thread.is_alive():  # else a name lookup blocks it, and `close` would raise
            self._net.close()
        connection_cache.closed(self)

    # -- on the IO thread --------------------------------------------------------------------

    async def _pump(self, channel: _Channel) -> None:
        """Send all requests of a broker's queue. If another pump of the queue runs, do nothing.

        No request is lost if it is submitted while this pump ends:

        1. This pump finds the queue empty.
        2. Another thread appends a request, then schedules its own pump on this thread.
        3. This pump ends without another `await`. Then the new pump runs and finds the request.
        """
        if channel.pumping:
            return
        channel.pumping = True
        try:
            while channel.queue:
                if channel.queue[0].deadline.has_passed:  # don't begin another name lookup for it
                    channel.queue.popleft().lose("its deadline passed")
                else:
                    await self._send_first(channel)
        finally:
            channel.pumping = False

    async def _send_first(self, channel: _Channel) -> None:
        pending = channel.queue[0]
        try:
            connection = await self._ready(channel, pending.deadline)
        except EosError as error:
            _fail_all(channel, error)
            return
        except kafka_errors.KafkaError as error:
            _drop_queue(channel, f"{self.address(channel.node)}: {message_of(error)}")
            return
        if connection is None:  # the broker throttled the connection until the deadline
            channel.queue.popleft().lose("the broker throttled the connection until the deadline")
            return
        # There is no `await` below, so the connection is still the one that was checked above.
        channel.queue.popleft()
        if pending.after is not None and pending.after.failed:
            pending.lose("an earlier request on this connection was lost")
        elif pending.deadline.has_passed:
            pending.lose("its deadline passed")
        else:
            self._send(connection, pending)

    def _send(self, connection: Any, pending: PendingRequest) -> None:
        request = pending.request
        offered = connection.broker_version_data.api_versions.get(request.API_KEY)
        if offered is None or not offered[0] <= request.API_VERSION <= offered[1]:
            version, address = request.API_VERSION, self.address(pending.node)
            pending.fail(version_not_offered(pending.api, version, offered, address))
            return
        if not pending.begin():
            return
        try:
            future = connection.send_request(
                request, request_timeout_ms=pending.deadline.left_ms + 1
            )
        except (ValueError, TypeError, AttributeError, struct.error) as error:
            # The request could not be encoded. This is not a network error.
            pending.fail(error)
            return
        future.add_errback(lambda error: pending.lose(message_of(error)))
        if pending.on_sent is None:
            future.add_callback(lambda response: self._answered(pending, response))
            return

        on_sent = pending.on_sent

        async def report() -> None:
            try:
                if await self._is_out(connection):
                    on_sent()
            finally:
                future.add_callback(lambda response: self._answered(pending, response))

        self._net.call_soon(report)

    def _answered(self, pending: PendingRequest, response: Any) -> None:
        self.answered_at = time.monotonic()
        pending.succeed(response)

    async def _is_out(self, connection: Any) -> bool:
        """Wait until the kernel has all bytes to send. Return False if the connection was closed.

        `send_request` only puts the bytes into a buffer. If the process were killed right after
        that call, the request would never be sent."""
        while not connection.closed:
            if not connection.transport._write_buffer:  # noqa: SLF001 - there is no public API
                return True
            await self._net.sleep(_FLUSH_STEP_S)
        return False

    async def _ready(self, channel: _Channel, deadline: Deadline) -> Any:
        """Return the broker's open connection, or None if it is throttled until the deadline."""
        while True:
            if channel.connection is None or channel.connection.closed:
                channel.connection = await self._connect(channel, deadline)
            if not channel.connection.paused:
                return channel.connection
            # Throttled by a quota: the broker reads nothing from this client until the pause ends.
            await self._net.sleep(_PAUSE_STEP_S)
            if deadline.has_passed:
                return None

    async def _connect(self, channel: _Channel, deadline: Deadline) -> Any:
        node = channel.node
        delay_s = self._manager.connection_delay(node)
        if delay_s > 0:  # backoff after a failed connection attempt
            if delay_s * 1000 >= deadline.left_ms:
                raise kafka_errors.KafkaConnectionError(channel.failure)
            await self._net.sleep(delay_s)
        timeout_ms = deadline.at_most_ms(CONNECT_MS)
        connection = self._manager.get_connection(
            node, timeout_ms=timeout_ms, refresh_metadata_on_err=False
        )
        try:
            await self._manager.wait_for(connection.init_future, timeout_ms + 1)
        except Exception as error:
            connection.close(error)
            self._manager.update_backoff(node)
            channel.failure = message_of(error)
            refused = refusal(error, self.address(node), self._settings)
            if refused is not None:
                raise refused from error
            raise kafka_errors.KafkaConnectionError(channel.failure) from error
        return connection

    async def _close_all(self) -> None:
        for channel in self._channels.values():
            _drop_queue(channel, "the connections were closed")
            if channel.connection is not None and not channel.connection.closed:
                channel.connection.close(kafka_errors.Cancelled())
        self._manager.close()


def _drop_queue(channel: _Channel, cause: str) -> None:
    while channel.queue:
        channel.queue.popleft().lose(cause)


def _fail_all(channel: _Channel, error: EosError) -> None:
    while channel.queue:
        channel.queue.popleft().fail(error)


def _silence_log() -> None:
    """Silence kafka-python's logger, unless the application has set its level.

    It logs ordinary reconnects as errors. This client raises errors instead."""
    logger = logging.getLogger("kafka")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL + 1)
