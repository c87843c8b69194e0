"""kafka-python's connection manager, made to close what it opened when a connection fails, and to
hear what a broker says before it hangs up.

The library leaves a socket whose connection or TLS handshake failed to the garbage collector,
waits for the end of a TLS handshake for ever, and throws away what was read together with the end
of the connection.
"""

from __future__ import annotations

import ssl
from typing import Any

from kafka.errors import KafkaConnectionError
from kafka.net.inet import KafkaNetSocket, create_connection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

DIRECT = "direct://"  # the proxy_url of a connection without proxy


class _Socket(KafkaNetSocket):  # type: ignore[misc]
    """Connects as the base does without a proxy."""

    SCHEMES = ("direct",)

    async def sock_connect(self, net: Any, sock: Any, *args: Any, **options: Any) -> Any:
        try:
            return await super().sock_connect(net, sock, *args, **options)
        except BaseException:
            sock.close()
            raise


def _without_loss(read: tuple[bytes, Exception | None]) -> tuple[bytes, Exception | None]:
    """What was read, first. The end of the connection is still there at the next look.

    A broker that refuses a login says so and hangs up: both may be read at once, and with the
    first thrown away a wrong password looks like a network that fails.
    """
    data, error = read
    return (data, None) if data else (data, error)


class _TcpTransport(KafkaTCPTransport):  # type: ignore[misc]
    def _sock_recv(self) -> tuple[bytes, Exception | None]:
        return _without_loss(super()._sock_recv())


class _TlsTransport(KafkaSSLTransport):  # type: ignore[misc]
    def _sock_recv(self) -> tuple[bytes, Exception | None]:
        return _without_loss(super()._sock_recv())

    def write(self, data: Any) -> None:
        # TLS takes 16 KiB at a time, and the base cuts each off the rest: a copy unless a view.
        super().write(memoryview(data))

    async def shake_hands(self, timeout_at: float | None) -> None:
        for _ in range(1000):  # a handshake takes a handful of flights
            try:
                self._sock.do_handshake()
            except ssl.SSLWantReadError:
                await self._net.wait_read(self._sock, timeout_at)
            except ssl.SSLWantWriteError:
                await self._net.wait_write(self._sock, timeout_at)
            else:
                return
        raise KafkaConnectionError("the TLS handshake does not end")


class Manager(KafkaConnectionManager):  # type: ignore[misc]
    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        """Replaces the base's: same steps, but nothing stays open and nothing waits for ever."""
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
