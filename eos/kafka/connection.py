"""Connections to brokers: one IO thread, one lane for each broker, requests in the order given.

kafka-python's event loop and connection manager do the networking. What they leave open is done
here: a request waits for its connection, for a pause (throttling) and for its turn; it fails
within its deadline, and its error tells for certain whether it left.
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
from eos.errors import EosError, UnsupportedBrokerError
from eos.kafka import connection_cache
from eos.kafka.client_options import security_options
from eos.kafka.connection_manager import DIRECT, Manager
from eos.kafka.pending_request import PendingRequest
from eos.kafka.refusals import refusal, words_of
from eos.kafka.settings import KafkaSettings

Node = int | str  # a broker's id, or "bootstrap-<n>"

# With login. Shorter than a request: whoever did not answer one is asked once more by a new
# connection, if the cluster has not missed it yet.
_CONNECT_MS = 5_000
_CLOSE_MS = 5_000
_PAUSE_STEP_S = 0.01
_FLUSH_STEP_S = 0.001
_RESPONSE_BYTES_MAX = 128 * 1024 * 1024

_numbers = itertools.count(1)


class _Lane:
    """The requests for one broker, and its connection."""

    __slots__ = ("connection", "failure", "node", "pumping", "queue")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.queue: deque[PendingRequest] = deque()
        self.pumping = False
        self.connection: Any = None
        self.failure = ""  # why the last try to connect failed


class Connections:
    """Guarantees: requests to one broker leave in the order of the `submit` calls, each within its
    deadline or not at all; `close` leaves neither thread nor file descriptor.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        _be_quiet()
        security = security_options(settings)  # may refuse: before anything is open
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
            reconnect_backoff_max_ms=1000,
            # Five is the limit of record batches a partition, and the writer's business. Here a
            # limit would turn the next request into an error.
            max_in_flight_requests_per_connection=100_000,
            proxy_url=DIRECT,
            **security,
        )
        self._lanes: dict[Node, _Lane] = {}
        self._lock = threading.Lock()
        self._closed = False
        self.answered_at = time.monotonic()  # of the last answer by any broker, or of the beginning
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
        """Takes the brokers' addresses from a Metadata response."""
        self._manager.cluster.update_metadata(metadata_response)

    def submit(
        self,
        node: Node,
        request: Any,
        deadline: Deadline,
        after: PendingRequest | None = None,
        on_sent: Callable[[], None] | None = None,
    ) -> PendingRequest:
        """Sends `request` to `node`, behind what was submitted for it before. Doesn't wait.

        With `after` it is sent only if that request has not failed: a record batch must not reach
        the broker by a new connection while the one before it was lost with the old.
        """
        pending = PendingRequest(node, request, deadline, after)
        pending.on_sent = on_sent
        with self._lock:
            if self._closed or os.getpid() != self._pid:
                raise RuntimeError("this Wire is closed, or belongs to the parent process")
            lane = self._lanes.get(node)
            if lane is None:
                lane = self._lanes[node] = _Lane(node)
            lane.queue.append(pending)

            async def pump() -> None:
                await self._pump(lane)

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
        """Closes the connection to `node`. What is in flight on it fails."""
        lane = self._lanes.get(node)
        if lane is None or self._closed:
            return

        async def close() -> None:
            if lane.connection is not None:
                lane.connection.close()

        self._net.call_soon_threadsafe(close)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if os.getpid() != self._pid:
            return  # the sockets belong to the parent process
        closed = threading.Event()

        async def close_all() -> None:
            try:
                await self._close_all()
            finally:
                closed.set()

        self._net.call_soon_threadsafe(close_all)
        closed.wait(_CLOSE_MS / 1000)  # a name lookup may hold the IO thread up
        self._net.stop(timeout_ms=_CLOSE_MS)
        self._net.close()
        connection_cache.closed(self)

    # -- on the IO thread --------------------------------------------------------------------

    async def _pump(self, lane: _Lane) -> None:
        """Sends what waits in the lane. One pump a lane: while it waits, later ones leave at once.

        A submit that comes between the last look at the queue and the end of this pump is not
        lost: its own pump is scheduled after its append, and runs on this same thread.
        """
        if lane.pumping:
            return
        lane.pumping = True
        try:
            while lane.queue:
                await self._send_first(lane)
        finally:
            lane.pumping = False

    async def _send_first(self, lane: _Lane) -> None:
        pending = lane.queue[0]
        try:
            connection = await self._ready(lane, pending.deadline)
        except EosError as error:
            _fail_all(lane, error)
            return
        except kafka_errors.KafkaError as error:
            _lose_all(lane, f"{self.address(lane.node)}: {words_of(error)}")
            return
        if connection is None:  # its time was up while the connection was paused
            lane.queue.popleft().lose("the broker throttled the connection until the deadline")
            return
        # Nothing below waits, so the connection is still the one that was looked at.
        lane.queue.popleft()
        if pending.after is not None and pending.after.failed:
            pending.lose("the request before it was lost")
        elif pending.deadline.has_passed:
            pending.lose("the time for it was up")
        else:
            self._send(connection, pending)

    def _send(self, connection: Any, pending: PendingRequest) -> None:
        request = pending.request
        offered = connection.broker_version_data.api_versions.get(request.API_KEY)
        if offered is None or not offered[0] <= request.API_VERSION <= offered[1]:
            pending.fail(_not_offered(pending, request, offered, self.address(pending.node)))
            return
        if not pending.begin():
            return
        try:
            future = connection.send_request(
                request, request_timeout_ms=pending.deadline.left_ms + 1
            )
        except (ValueError, TypeError, AttributeError, struct.error) as error:
            # Not a matter of the network: the request could not be encoded.
            pending.fail(error)
            return
        future.add_errback(lambda error: pending.lose(words_of(error)))
        if pending.on_sent is None:
            future.add_callback(lambda response: self._answered(pending, response))
            return

        on_sent = pending.on_sent

        async def tell() -> None:
            try:
                if await self._is_out(connection):
                    on_sent()
            finally:
                future.add_callback(lambda response: self._answered(pending, response))

        self._net.call_soon(tell)

    def _answered(self, pending: PendingRequest, response: Any) -> None:
        self.answered_at = time.monotonic()
        pending.succeed(response)

    async def _is_out(self, connection: Any) -> bool:
        """Whether the kernel took every byte. The library only notes what is to be sent: a process
        that was killed right behind `send_request` would not have sent it."""
        while not connection.closed:
            if not connection.transport._write_buffer:  # noqa: SLF001 - it tells nowhere else
                return True
            await self._net.sleep(_FLUSH_STEP_S)
        return False

    async def _ready(self, lane: _Lane, deadline: Deadline) -> Any:
        """The lane's connection, once requests can leave on it. None: paused until the deadline."""
        if lane.connection is None or lane.connection.closed:
            lane.connection = await self._connect(lane, deadline)
        while lane.connection.paused and not deadline.has_passed:
            # Throttled by a quota: the broker reads nothing from us until then anyway.
            await self._net.sleep(_PAUSE_STEP_S)
        return None if lane.connection.paused else lane.connection

    async def _connect(self, lane: _Lane, deadline: Deadline) -> Any:
        node = lane.node
        delay_s = self._manager.connection_delay(node)
        if delay_s > 0:  # refused a moment ago
            if delay_s * 1000 >= deadline.left_ms:
                raise kafka_errors.KafkaConnectionError(lane.failure)
            await self._net.sleep(delay_s)
        timeout_ms = deadline.at_most_ms(_CONNECT_MS)
        connection = self._manager.get_connection(
            node, timeout_ms=timeout_ms, refresh_metadata_on_err=False
        )
        try:
            await self._manager.wait_for(connection.init_future, timeout_ms + 1)
        except Exception as error:
            connection.close(error)
            self._manager.update_backoff(node)
            lane.failure = words_of(error)
            refused = refusal(error, self.address(node), self._settings)
            if refused is not None:
                raise refused from error
            raise kafka_errors.KafkaConnectionError(lane.failure) from error
        return connection

    async def _close_all(self) -> None:
        for lane in self._lanes.values():
            _lose_all(lane, "the connections were closed")
            if lane.connection is not None and not lane.connection.closed:
                lane.connection.close(kafka_errors.Cancelled())
        self._manager.close()


def _lose_all(lane: _Lane, cause: str) -> None:
    while lane.queue:
        lane.queue.popleft().lose(cause)


def _fail_all(lane: _Lane, error: EosError) -> None:
    while lane.queue:
        lane.queue.popleft().fail(error)


def _not_offered(
    pending: PendingRequest, request: Any, offered: tuple[int, int] | None, address: str
) -> UnsupportedBrokerError:
    has = "doesn't know it" if offered is None else f"offers {offered[0]} to {offered[1]}"
    return UnsupportedBrokerError(
        f"{pending.api} version {request.API_VERSION} is needed, and {address} {has}",
        hint="Kafka 3.6 is the oldest that is supported",
        api=pending.api,
        address=address,
    )


def _be_quiet() -> None:
    """kafka-python reports every ordinary reconnect as an error. Ours are raised, not logged."""
    logger = logging.getLogger("kafka")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL + 1)
