"""The HTTP server of the metrics endpoint.

It answers a few connections at a time, each in a thread, and each has to end in time. So a client
that sends nothing, or reads nothing, can't use up the driver's threads and file descriptors.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

CONNECTIONS_MAX = 8
CONNECTION_S_MAX = 10.0  # from accepting a connection to closing it
_BUSY = b"the metrics endpoint has too many connections; try again later\n"
_REFUSAL = (
    b"HTTP/1.0 503 Service Unavailable\r\nContent-Type: text/plain\r\n"
    b"Retry-After: %d\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
) % (CONNECTION_S_MAX, len(_BUSY), _BUSY)


class MetricsServer(ThreadingMixIn, WSGIServer):
    """A server of one registry's metrics, with a bound on its connections and on their time.

    A connection above the bound gets status 503, from the thread that accepts connections.
    """

    daemon_threads = True
    request_queue_size = 64  # a connection that finds the queue full is not even refused

    def __init__(
        self,
        registry: CollectorRegistry,
        address: str,
        port: int,
        *,
        connection_s_max: float = CONNECTION_S_MAX,
    ) -> None:
        """Listen at the address. Raise OSError if it can't be used."""
        self._seconds_max = connection_s_max
        self._open: dict[socket.socket, float] = {}  # with the time at which it is closed
        self._lock = threading.Lock()
        kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
        found = socket.getaddrinfo(address, port, type=kind, flags=flags)[0]
        self.address_family = found[0]
        super().__init__((str(found[4][0]), port), _Handler)
        self.set_app(make_wsgi_app(registry))

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002
        """Return whether the connection is accepted. A rejected one has its answer."""
        with self._lock:
            if len(self._open) < CONNECTIONS_MAX:
                self._open[request] = time.monotonic() + self._seconds_max
                return True
        request.setblocking(False)
        with contextlib.suppress(OSError):
            request.send(_REFUSAL)
        # Closing a socket with unread data resets the connection, and the client may lose the
        # answer.
        with contextlib.suppress(OSError):
            request.recv(65536)
        return False

    def service_actions(self) -> None:
        """End the connections whose time is over. The server calls this twice a second."""
        self._end_connections(time.monotonic())

    def server_close(self) -> None:
        """Close the port and its connections."""
        super().server_close()
        self._end_connections(float("inf"))

    def _end_connections(self, now: float) -> None:
        # A shutdown wakes the connection's thread, which closes the socket. The entry is kept until
        # then, so the number of entries bounds the number of threads. The lock prevents that the
        # file descriptor is closed, and used for another file, between the check and the shutdown.
        with self._lock:
            for connection, ends_at in self._open.items():
                if ends_at <= now:
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection that is answered, rejected, or out of time."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore an error of one connection, such as a client that is gone."""


class _Handler(WSGIRequestHandler):
    """Handler that logs no requests."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Log nothing."""
