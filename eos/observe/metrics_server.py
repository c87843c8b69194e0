"""The HTTP server of the metrics endpoint.

It answers a few connections at a time, each in a thread, and each has to end in time.
"""

from __future__ import annotations

import socket
from typing import ClassVar
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from eos.bounded_server import CONNECTION_S_MAX, BoundedConnections

_BUSY = b"the metrics endpoint has too many connections; try again later\n"


class MetricsServer(BoundedConnections, WSGIServer):
    """A server of one registry's metrics, with a bound on its connections and on their time."""

    refusal: ClassVar[bytes] = (
        b"HTTP/1.0 503 Service Unavailable\r\nContent-Type: text/plain\r\n"
        b"Retry-After: %d\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
    ) % (CONNECTION_S_MAX, len(_BUSY), _BUSY)

    def __init__(
        self,
        registry: CollectorRegistry,
        address: str,
        port: int,
        *,
        connection_s_max: float = CONNECTION_S_MAX,
    ) -> None:
        """Listen at the address. Raise OSError if it can't be used."""
        self.bound(connection_s_max)
        kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
        found = socket.getaddrinfo(address, port, type=kind, flags=flags)[0]
        self.address_family = found[0]
        super().__init__((str(found[4][0]), port), _Handler)
        self.set_app(make_wsgi_app(registry))


class _Handler(WSGIRequestHandler):
    """Handler that logs no requests."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Log nothing."""
