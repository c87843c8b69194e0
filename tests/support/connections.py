"""Which connections to a broker the processes of a Spark application have, by what /proc says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from support.processes import of_session

_ESTABLISHED, _LISTENS = "01", "0A"
_SOCKET = re.compile(r"socket:\[(\d+)\]")


@dataclass(frozen=True, order=True)
class Connection:
    """`who`: java, or the words of a Python process; `port` is of our side: another connection of
    the same process has another one."""

    who: str
    pid: int
    port: int


def connections(session: int, bootstrap: str) -> set[Connection]:
    """Of all processes of a session, to the brokers of these addresses."""
    brokers = {int(address.rpartition(":")[2]) for address in bootstrap.split(",")}
    there = dict(_established(brokers))
    return {
        Connection(_who(pid), pid, there[inode])
        for pid in of_session(session)
        for inode in sockets(pid)
        if inode in there
    }


def _established(brokers: set[int]) -> Iterator[tuple[str, int]]:
    """By inode, the port of this side."""
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, remote, state, *_, inode = line.split()[:10]
            if state == _ESTABLISHED and _port(remote) in brokers:
                yield inode, _port(local)


def listening(session: int) -> set[IPv4Address | IPv6Address]:
    """The addresses that processes of a session accept connections at."""
    ours = {inode for pid in of_session(session) for inode in sockets(pid)}
    return {address for inode, address in _listens() if inode in ours}


def _listens() -> Iterator[tuple[str, IPv4Address | IPv6Address]]:
    """The kernel writes an address as 32-bit words in the machine's byte order."""
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            words = re.findall("[0-9A-F]{8}", local.partition(":")[0])
            packed = b"".join(int(each, 16).to_bytes(4, sys.byteorder) for each in words)
            address = ip_address(packed)
            if state == _LISTENS:
                yield inode, getattr(address, "ipv4_mapped", None) or address


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)


def sockets(pid: int) -> Iterator[str]:
    """The inodes of the sockets that a process has open."""
    with suppress(OSError):  # the process, or the file, was closed meanwhile
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found = _SOCKET.fullmatch(str(link.readlink()))
                if found:
                    yield found[1]


def _who(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    if b"pyspark.worker" in words:
        return "worker"
    return "jvm" if words.split(b"\0")[0].endswith(b"java") else "driver"
