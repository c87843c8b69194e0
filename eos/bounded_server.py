"""The bounds of a small HTTP server: how many connections it has, and how long each may last."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from socketserver import ThreadingMixIn
from typing import Any, ClassVar

CONNECTIONS_MAX = 8
CONNECTION_S_MAX = 10.0  # from accepting a connection to closing it


class BoundedConnections(ThreadingMixIn):
    """A mixin for a server that answers each connection in a thread.

    A connection above the bound gets `refusal`, from the thread that accepts connections. So a
    client that sends nothing, or reads nothing, can't use up threads and file descriptors.
    """

    daemon_threads = True
    request_queue_size = 64  # a connection that finds the queue full is not even refused
    refusal: ClassVar[bytes] = (
        b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )

    def bound(self, connection_s_max: float = CONNECTION_S_MAX) -> None:
        """Set for how long a connection may last. Call this before the server listens."""
        self._seconds_max = connection_s_max
        self._open: dict[socket.socket, float] = {}  # open connections, and when each is closed
        self._lock = threading.Lock()

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002
        """Return whether the connection is accepted. A rejected one has its answer."""
        with self._lock:
            if len(self._open) < CONNECTIONS_MAX:
                self._open[request] = time.monotonic() + self._seconds_max
                return True
        request.setblocking(False)
        with contextlib.suppress(OSError):
            request.send(self.refusal)
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
        super().shutdown_request(request)  # type: ignore[misc]  # the server class beside this mixin has it

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore an error of one connection, such as a client that is gone."""
