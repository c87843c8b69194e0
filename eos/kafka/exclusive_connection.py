"""Connections to brokers that a single thread uses, to fetch megabytes without the IO thread.

kafka-python copies each response several times, and its IO thread competes with the reading thread
for the interpreter. So a reader gets a socket of its own. kafka-python connects the socket and logs
in. After that the reader sends and receives on it with blocking calls.
"""

from __future__ import annotations

import itertools
import os
import ssl
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from typing import Any

from kafka import errors as kafka_errors
from kafka.net.connection import KafkaConnection

from eos.deadline import Deadline
from eos.errors import NoAnswerError
from eos.kafka.pending_request import GRACE_MS, Node, no_answer
from eos.kafka.refusals import message_of, refusal, version_not_offered
from eos.kafka.settings import KafkaSettings

RESPONSE_BYTES_MAX = 256 * 1024 * 1024
# Time limit of a connection attempt, including login. It is shorter than a request timeout. So a
# request can try a second connection if the first attempt gets no answer.
CONNECT_MS = 5_000
_PARKED_MAX = 16  # connections that no task uses, kept for the next one
_PARKED_BYTES_MAX = 8 * 1024 * 1024  # buffers of all parked connections
# A connection is replaced after this part of its login's lifetime, since it can't log in again.
_SESSION_USED = 0.8
_SIZE = struct.Struct(">i")


class ExclusiveConnection:
    """A connection that is logged in, for one thread. At most one request is in flight.

    Guarantees: `receive` fails if no byte arrives for the request timeout, or if the response is
    still incomplete when bytes arrive after the deadline. After any error the connection is closed.
    """

    def __init__(
        self, node: Node, sock: Any, settings: KafkaSettings, expires_at: float | None
    ) -> None:
        self.node = node
        self.client_id = settings.client_id
        self.buffer = bytearray()
        self.awaits_response = False
        self.resume_at = 0.0  # time.monotonic() until which the broker throttles this client
        self._sock = sock
        self._silence_ms = settings.request_timeout_ms
        self._expires_at = expires_at
        self._correlation = itertools.count(1)

    def next_correlation(self) -> int:
        return next(self._correlation) & 0x7FFFFFFF

    @property
    def has_ended(self) -> bool:
        """Return whether the connection is closed, or its login expires soon.

        The broker closes a connection whose login has expired."""
        is_over = self._expires_at is not None and time.monotonic() >= self._expires_at
        return self._sock is None or is_over

    @property
    def is_usable(self) -> bool:
        """Return whether the next task can use the connection.

        It must be idle and open, and its login must not expire soon."""
        if self.has_ended or self.awaits_response:
            return False
        try:
            self._sock.setblocking(False)
            self._sock.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            pass
        return False  # the broker closed the connection, or sent bytes without a request

    def send(self, frame: bytes, deadline: Deadline) -> None:
        try:
            self._limit(deadline)
            self.awaits_response = True  # before the first byte, since an interrupt may follow it
            self._sock.sendall(frame)
        except OSError as error:
            raise self._lost(error) from error

    def receive(self, deadline: Deadline) -> memoryview:
        """Return the next response without its size field. The next call overwrites its bytes."""
        try:
            self._limit(deadline)
            size = _SIZE.unpack(self._fill(memoryview(bytearray(_SIZE.size)), deadline))[0]
            if not _SIZE.size <= size <= RESPONSE_BYTES_MAX:
                raise ConnectionError(f"a response of {size} bytes")
            if len(self.buffer) < size:
                self.buffer = bytearray(size + size // 8)
            response = self._fill(memoryview(self.buffer)[:size], deadline)
        except OSError as error:
            raise self._lost(error) from error
        self.awaits_response = False
        return response

    def close(self) -> None:
        sock, self._sock = self._sock, None
        self.buffer = bytearray()
        if sock is not None:
            sock.close()

    def _limit(self, deadline: Deadline) -> None:
        self._sock.settimeout(max(1, deadline.at_most_ms(self._silence_ms)) / 1000)

    def _fill(self, view: memoryview, deadline: Deadline) -> memoryview:
        at = 0
        while at < len(view):
            received = self._sock.recv_into(view[at:])
            if not received:
                raise ConnectionError("the broker closed the connection")
            at += received
            if deadline.has_passed and at < len(view):
                raise TimeoutError("its deadline passed")
        return view

    def _lost(self, error: OSError) -> NoAnswerError:
        self.close()
        return no_answer("Fetch", self.node, message_of(error), sent=True)


class ExclusiveConnections:
    """Pool of exclusive connections to brokers: it opens them, and keeps idle ones for later tasks.

    `net` and `manager` are kafka-python's event loop and manager, as `Connections` uses them."""

    def __init__(
        self, net: Any, manager: Any, settings: KafkaSettings, address: Callable[[Node], str]
    ) -> None:
        self._net = net
        self._manager = manager
        self._settings = settings
        self._address = address
        self._parked: list[ExclusiveConnection] = []
        self._lock = threading.Lock()
        self._closed = False
        self._pid = os.getpid()

    def take(
        self, node: Node, api_key: int, version: int, deadline: Deadline
    ) -> ExclusiveConnection:
        """Return an exclusive connection to a broker: an idle one, or a new one.

        Raise UnsupportedBrokerError if the broker lacks this version of the request."""
        if self._closed or os.getpid() != self._pid:
            raise RuntimeError("this client is closed, or belongs to the parent process")
        while True:
            with self._lock:
                found = next((each for each in self._parked if each.node == node), None)
                if found is not None:
                    self._parked.remove(found)
            if found is None:
                return self._connect(node, api_key, version, deadline)
            if found.is_usable:
                return found
            found.close()

    def put_back(self, connection: ExclusiveConnection) -> None:
        """Keep the connection for the next task, or close it if it is not usable.

        If 16 connections are kept already, it is closed, too."""
        with self._lock:
            size = len(connection.buffer) + sum(len(each.buffer) for each in self._parked)
            is_kept = connection.is_usable and not self._closed and len(self._parked) < _PARKED_MAX
            if is_kept:
                self._parked.append(connection)
        if not is_kept:
            connection.close()
        elif size > _PARKED_BYTES_MAX:
            connection.buffer = bytearray()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            parked, self._parked = self._parked, []
        for connection in parked:
            connection.close()

    def _connect(
        self, node: Node, api_key: int, version: int, deadline: Deadline
    ) -> ExclusiveConnection:
        connected: Future[ExclusiveConnection] = Future()
        timeout_ms = deadline.at_most_ms(CONNECT_MS)

        async def connect() -> None:
            try:
                found = await self._log_in(node, api_key, version, timeout_ms)
            except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
                connected.set_exception(error)
            else:
                connected.set_result(found)

        self._net.call_soon_threadsafe(connect)
        try:
            return connected.result((timeout_ms + GRACE_MS) / 1000)
        except NotInTime as error:
            # Close a connection that is established later. A name lookup may take that long.
            connected.add_done_callback(_discard)
            raise no_answer("Fetch", node, "its deadline passed", sent=False) from error
        except kafka_errors.KafkaError as error:
            raise no_answer("Fetch", node, message_of(error), sent=False) from error

    # -- on the IO thread --------------------------------------------------------------------

    async def _log_in(
        self, node: Node, api_key: int, version: int, timeout_ms: int
    ) -> ExclusiveConnection:
        manager = self._manager
        broker = manager.cluster.broker_metadata(node)
        if broker is None:
            raise kafka_errors.KafkaConnectionError("its address is unknown")
        connection = KafkaConnection(
            self._net,
            node_id=node,
            broker_version_data=manager.broker_version_data,
            **manager.config,
        )
        timeout_at = time.monotonic() + timeout_ms / 1000
        self._net.call_soon(lambda: manager._connect(broker, connection, timeout_at=timeout_at))  # noqa: SLF001 - there is no public API
        try:
            await manager.wait_for(connection.init_future, timeout_ms + 1)
        except Exception as error:
            connection.close(error)
            refused = refusal(error, self._address(node), self._settings)
            if refused is not None:
                raise refused from error
            raise kafka_errors.KafkaConnectionError(message_of(error)) from error
        if connection.closed:  # by the broker, right after the login
            raise kafka_errors.KafkaConnectionError("the broker closed the connection")
        offered = connection.broker_version_data.api_versions.get(api_key)
        lifetime_ms = connection._reauth.session_lifetime_ms  # noqa: SLF001
        sock = connection.transport.detach()
        expires_at = None
        if lifetime_ms:
            expires_at = time.monotonic() + lifetime_ms * _SESSION_USED / 1000
        made = ExclusiveConnection(node, sock, self._settings, expires_at)
        if offered is None or not offered[0] <= version <= offered[1]:
            made.close()
            raise version_not_offered("Fetch", version, offered, self._address(node))
        return made


def _discard(connected: Future[ExclusiveConnection]) -> None:
    if connected.exception() is None:
        connected.result().close()
