"""An HTTP connection to a schema registry or token endpoint, which stays open between requests.

With a new TLS session for each request, loading a thousand schema ids would take minutes. The
environment's proxies (`https_proxy`, `no_proxy`) apply, but not to addresses of this machine.
"""

from __future__ import annotations

import base64
import http.client
import io
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from eos.deadline import Deadline
from eos.errors import UsageError
from eos.login.addresses import is_own_machine

WAIT_MS_MAX = 10_000  # for each part of an answer
BYTES_MAX = 16 << 20
_PIECE_BYTES = 64 << 10
_PORTS = {"http": 80, "https": 443}
# TLS alerts about a client's certificate. Java sends the same alert for expired and unknown ones.
_ALERTS = (
    "BAD_CERTIFICATE",
    "UNSUPPORTED_CERTIFICATE",
    "CERTIFICATE_REVOKED",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_UNKNOWN",
    "CERTIFICATE_REQUIRED",
    "UNKNOWN_CA",
    "ACCESS_DENIED",
)


def is_about_our_certificate(error: ssl.SSLError) -> bool:
    """Return whether the server rejects the client's certificate, or requires one."""
    reason = str(error.reason or "")
    return "ALERT" in reason and reason.endswith(_ALERTS)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The PEM files of TLS connections: the authority that signed the server's certificate, and the
    client's own certificate and key. `block` is their block in the profile, for messages."""

    block: str
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    def context(self) -> ssl.SSLContext:
        """Load the files. Raise UsageError for a file that can't be used."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise UsageError(
                "ca_file_unusable",
                f"the file {self.ca} of `{self.block}.ca` can't be used: {error}",
                hint="the file must contain the certificate of the authority that signed the "
                "server's certificate, in PEM format, and be readable on this machine",
            ) from error
        if self.certificate is None:
            return context
        try:
            # Without a password function, OpenSSL would ask for it on the terminal.
            context.load_cert_chain(self.certificate, self.key or self.certificate, str)
        except (OSError, ValueError) as error:
            raise UsageError(
                "client_certificate_unusable",
                f"the certificate {self.certificate} of `{self.block}.certificate` can't be used "
                f"with its key: {error}",
                hint="both files must be PEM and readable on this machine, the key must have no "
                "password, and it must belong to the certificate",
            ) from error
        return context


@dataclass(slots=True)
class Connection:
    """A thread-safe HTTP connection. It connects at the first request and again after a failure."""

    url: str
    files: TlsFiles
    _open: http.client.HTTPConnection | None = None
    _tls: ssl.SSLContext | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    @property
    def is_open(self) -> bool:
        """Return whether the connection is still open from an earlier request.

        The peer may have closed it since, so a request on it may fail."""
        return self._open is not None

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        deadline: Deadline,
    ) -> tuple[int, bytes]:
        """Send a request, and return the HTTP status and the body of the answer.

        Raise OSError, HTTPException or ValueError on failure, and UsageError if a file of TLS is
        unusable. Redirects are not followed: they would send the password to another host.
        """
        with self._lock:
            try:
                return self._request(method, path, body, headers, deadline)
            except BaseException:
                self.close()
                raise

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        deadline: Deadline,
    ) -> tuple[int, bytes]:
        url = urlsplit(self.url)
        proxy = _proxy(url)
        connection = self._connect(url, proxy, deadline)
        target, headers = url.path + path, dict(headers)
        if proxy is not None and url.scheme == "http":
            target = f"{url.scheme}://{url.netloc}{target}"
            headers |= _proxy_login(proxy)
        sock: Any = connection.sock
        sock.deadline = deadline
        connection.request(method, target, body, headers)
        raw = bytearray()
        with connection.getresponse() as answer:
            while piece := answer.read1(_PIECE_BYTES):
                raw += piece
                if len(raw) > BYTES_MAX:
                    raise ValueError(f"the response exceeds {BYTES_MAX} bytes")
            if answer.length:  # http.client returns a truncated body without an error
                raise http.client.IncompleteRead(bytes(raw[:100]), answer.length)
        if connection.sock is None:  # the peer closes after each answer
            self._open = None
        return answer.status, bytes(raw)

    def _connect(
        self, url: SplitResult, proxy: SplitResult | None, deadline: Deadline
    ) -> http.client.HTTPConnection:
        if self._open is not None:
            return self._open
        peer = url if proxy is None else proxy
        host, port = peer.hostname or "", peer.port or _PORTS.get(peer.scheme, 80)
        limit_s = max(1, deadline.at_most_ms(WAIT_MS_MAX)) / 1000
        if url.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=limit_s, context=self._context()
            )
            if proxy is not None:
                connection.set_tunnel(url.hostname or "", url.port or 443, _proxy_login(proxy))
        else:
            connection = http.client.HTTPConnection(host, port, timeout=limit_s)
        self._open = connection
        connection.connect()
        connection.sock = _BoundedSocket(connection.sock)
        return connection

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = self.files.context()
        return self._tls


class _BoundedSocket:
    """A socket whose every wait ends at the request's deadline, or after `WAIT_MS_MAX`."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.deadline = Deadline.after_ms(0)

    def limit(self) -> None:
        if self.deadline.has_passed:
            raise TimeoutError("the response did not end in time")
        self._sock.settimeout(max(1, self.deadline.at_most_ms(WAIT_MS_MAX)) / 1000)

    def sendall(self, data: Any) -> None:
        self.limit()
        self._sock.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self, self._sock.makefile("rb", buffering=0)))

    def close(self) -> None:
        self._sock.close()


class _Reader(io.RawIOBase):
    def __init__(self, bounded: _BoundedSocket, raw: Any) -> None:
        super().__init__()
        self._bounded, self._raw = bounded, raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._bounded.limit()
        found: int | None = self._raw.readinto(buffer)
        return found

    def close(self) -> None:
        self._raw.close()
        super().close()


def _proxy(url: SplitResult) -> SplitResult | None:
    host = url.hostname or ""
    given = getproxies().get(url.scheme)
    if not given or is_own_machine(host) or proxy_bypass(host):
        return None
    found = urlsplit(given if "://" in given else f"http://{given}")
    return found if found.hostname else None


def _proxy_login(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
    return {"Proxy-Authorization": f"Basic {base64.b64encode(pair).decode()}"}
