"""A check which brokers of a cluster are alive, without a Kafka client.

It sends a Metadata request over a plain socket. An open port proves little, because a broker
listens before it can serve. A response that lists every node shows that the cluster works.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence

_METADATA, _VERSION, _CORRELATION = 3, 1, 7
_ANSWER_BYTES_MAX = 1 << 20
_CONNECT_S = 3


def live_brokers(port: int, timeout_s: float = 1.0, host: str = "127.0.0.1") -> frozenset[int]:
    """Return the ids of the live nodes, as listed in a Metadata response of the broker at `port`.

    The result is empty if that broker does not respond within `timeout_s`."""
    client = b"eos-probe"
    body = struct.pack(">hhih", _METADATA, _VERSION, _CORRELATION, len(client)) + client
    body += struct.pack(">i", 0)  # no topics
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(struct.pack(">i", len(body)) + body)
            (size,) = struct.unpack(">i", _read(connection, 4))
            if not 8 <= size <= _ANSWER_BYTES_MAX:
                return frozenset()
            return _brokers(_read(connection, size))
    except (OSError, struct.error):
        return frozenset()


def silent(addresses: Sequence[str]) -> Mapping[str, str]:
    """Return the addresses that don't accept TCP connections, each with the reason.

    This reports a wrong address within seconds, where a Kafka client would retry until its
    deadline."""
    found = {address: _connect_error(address) for address in addresses}
    return {address: why for address, why in found.items() if why}


def _connect_error(address: str) -> str:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S):
            return ""
    except OSError as error:
        return str(error.strerror or error)
    except ValueError:  # such as an empty label, which Python's encoding of host names refuses
        return "no valid host and port"


def report_silent(addresses: Sequence[str], say: Callable[[str], None]) -> threading.Thread:
    """Check in a new thread whether a broker accepts connections; if none does, print that with
    `say`. Return the thread.

    The run waits for a broker in any case. The check has its own thread, so that neither a normal
    startup nor a stop is delayed by it."""

    def probe() -> None:
        for address in addresses:  # one listening broker is enough
            if not silent([address]):
                return
        tried = ", ".join(addresses)
        say(f"no broker listens at {tried} yet; waiting for one (`eos doctor` shows the cause)")

    probing = threading.Thread(target=probe, name="eos-probe", daemon=True)
    probing.start()
    return probing


def _read(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size > 0:
        part = connection.recv(min(size, 65536))
        if not part:
            raise ConnectionResetError("closed in the middle of an answer")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _brokers(answer: bytes) -> frozenset[int]:
    correlation, count = struct.unpack_from(">ii", answer)
    if correlation != _CORRELATION:
        return frozenset()
    at, found = 8, set()
    for _ in range(count):
        (node,) = struct.unpack_from(">i", answer, at)
        at = _after_string(answer, at + 4) + 4  # host, port
        at = _after_string(answer, at)  # rack
        found.add(node)
    return frozenset(found)


def _after_string(answer: bytes, at: int) -> int:
    length: int = struct.unpack_from(">h", answer, at)[0]
    return at + 2 + max(0, length)
