"""Kafka's frames as a stranger reads them: which request it is, whose, and where it ends."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass, field
from typing import NamedTuple

_NAMES = """
0:Produce 1:Fetch 2:ListOffsets 3:Metadata 8:OffsetCommit 9:OffsetFetch 10:FindCoordinator
11:JoinGroup 15:DescribeGroups 18:ApiVersions 19:CreateTopics 21:DeleteRecords
22:InitProducerId 24:AddPartitionsToTxn 25:AddOffsetsToTxn 26:EndTxn 27:WriteTxnMarkers
28:TxnOffsetCommit 32:DescribeConfigs 42:DeleteGroups 60:DescribeCluster
61:DescribeProducers 65:DescribeTransactions 68:ConsumerGroupHeartbeat
"""
APIS = {int(number): name for number, _, name in (n.partition(":") for n in _NAMES.split())}
SIZE = struct.Struct(">i")
CORRELATION = struct.Struct(">i")
_REQUEST = struct.Struct(">hhih")  # api, version, correlation id, length of the client id
_END = struct.Struct(">qh?")
_FRAME_BYTES_MAX = 128 * 1024 * 1024


@dataclass(frozen=True)
class Seen:
    """A request as it came. `link` numbers the connections, `port` is the broker's."""

    link: int
    port: int
    api: str
    version: int
    correlation: int
    client: str
    frame: bytes = field(repr=False)


def parsed(frame: bytes, link: int, port: int) -> Seen:
    api, version, correlation, length = _REQUEST.unpack_from(frame)
    client = frame[_REQUEST.size : _REQUEST.size + max(0, length)].decode()
    return Seen(link, port, APIS.get(api, f"Api{api}"), version, correlation, client, frame)


class End(NamedTuple):
    """What an EndTxn asked for."""

    producer_id: int
    epoch: int
    is_commit: bool


def end_asked(seen: Seen) -> End:
    """Of the versions with compact strings, 3 and later, and ids shorter than 127 bytes."""
    at = _REQUEST.size + len(seen.client) + 1  # no tagged fields in the header
    at += seen.frame[at]  # length of the id plus one, then the id
    return End(*_END.unpack_from(seen.frame, at))


def sized(frame: bytes) -> bytes:
    return SIZE.pack(len(frame)) + frame


def read_frame(connection: socket.socket) -> bytes | None:
    """The next one without its size; None at the end of the stream."""
    head = _exactly(connection, SIZE.size)
    if head is None:
        return None
    (size,) = SIZE.unpack(head)
    assert 0 < size <= _FRAME_BYTES_MAX, f"not Kafka's protocol: a frame of {size} bytes"
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    parts = []
    while size:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
