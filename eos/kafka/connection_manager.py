"""Subclasses of kafka-python's connection manager and transports, which fix four defects:

- If a connection or a TLS handshake fails, the library leaves its socket to the garbage collector.
- The library waits for the end of a TLS handshake without a limit.
- If the first address of a host name does not answer, the library may never try the others.
- If a broker sends an answer and closes the connection, the library may discard the answer.

In addition, `detach` hands a transport's socket to the caller after the login.
"""

from __future__ import annotations

import ssl
import time
from typing import Any

from kafka.errors import KafkaConnectionError
from kafka.net.inet import KafkaNetSocket, create_connection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

# Addresses to which the last connection failed, and when. The next try begins with the others, in
# the resolver's order, and then takes that which failed first.
_failed_at: dict[Any, float] = {}
_ADDRESSES_MAX = 1000
DIRECT = "direct://"  # the proxy_url that selects `_Socket`: a connection without a proxy


class _Socket(KafkaNetSocket):  # type: ignore[misc]  # its base has no type hints
    """Socket that connects like its base class without a proxy, and closes on failure."""

    SCHEMES = ("direct",)

    def dns_lookup(self, *args: Any, **options: Any) -> list[Any]:
        # A connection attempt may spend all its time on the first address, if that one is silent.
        found: list[Any] = super().dns_lookup(*args, **options)
        return sorted(found, key=lambda each: _failed_at.get(each[-1], 0.0))

    async def sock_connect(self, net: Any, sock: Any, sockaddr: Any, **options: Any) -> Any:
        try:
            found = await super().sock_connect(net, sock, sockaddr, **options)
        except BaseException:
            sock.close()
            if len(_failed_at) >= _ADDRESSES_MAX:
                _failed_at.clear()
            _failed_at[sockaddr] = time.monotonic()
            raise
        _failed_at.pop(sockaddr, None)
        return found


def _without_loss(read: tuple[bytes, Exception | None]) -> tuple[bytes, Exception | None]:
    """Return the result of a read (data, error) without the error if there is data.

    A broker that rejects a login sends the reason and closes the connection. One read may return
    both. If the data were discarded, a wrong password would look like a network failure. The next
    read reports the closed connection again.
    """
    data, error = read
    return (data, None) if data else (data, error)


def _detach(transport: Any) -> Any:
    if transport._closed or transport._write_buffer:  # noqa: SLF001 - there is no public API
        raise KafkaConnectionError("the connection is closed, or a request is not sent yet")
    transport._net.cancel(transport._read_task)  # noqa: SLF001 - also leaves the selector
    sock, transport._sock = transport._sock, None  # noqa: SLF001
    transport.abort()
    return sock


class _TcpTransport(KafkaTCPTransport):  # type: ignore[misc]  # its base has no type hints
    def detach(self) -> Any:
        """Hand the socket to the caller. This transport no longer uses or closes it."""
        return _detach(self)

    def _sock_recv(self) -> tuple[bytes, Exception | None]:
        return _without_loss(super()._sock_recv())


class _TlsTransport(KafkaSSLTransport):  # type: ignore[misc]  # its base has no type hints
    def detach(self) -> Any:
        """Hand the socket to the caller. This transport no longer uses or closes it."""
        return _detach(self)

    def _sock_recv(self) -> tuple[bytes, Exception | None]:
        return _without_loss(super()._sock_recv())

    def write(self, data: Any) -> None:
        # The base class writes 16 KiB per call and slices the rest. A memoryview avoids the copies.
        super().write(memoryview(data))

    async def shake_hands(self, timeout_at: float | None) -> None:
        for _ in range(1000):  # a normal handshake needs only a few round trips
            try:
                self._sock.do_handshake()
            except ssl.SSLWantReadError:
                await self._net.wait_read(self._sock, timeout_at)
            except ssl.SSLWantWriteError:
                await self._net.wait_write(self._sock, timeout_at)
            else:
                return
        raise KafkaConnectionError("the TLS handshake did not complete")


class Manager(KafkaConnectionManager):  # type: ignore[misc]  # its base has no type hints
    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        """Connect to a broker, with TLS if configured. Return the transport, ready for the login.

        Unlike the base class, this closes the socket on failure and limits each wait."""
        sock = await create_connection(
            self._net,
            node.host,
            node.port,
            self.config["socket_options"],
            proxy_url=self.config["proxy_url"],
            timeout_at=timeout_at,
        )
        if not self.ssl_enabled:
            return _TcpTransport(self._net, sock, host=node.host)
        options = {key: value for key, value in self.config.items() if key.startswith("ssl_")}
        try:
            transport = _TlsTransport(self._net, sock, host=node.host, **options)
        except BaseException:
            sock.close()
            raise
        try:
            await transport.shake_hands(timeout_at)
        except BaseException:
            transport.abort()
            raise
        return transport
