"""Rules of the proxy: which requests they strike, and what is done to a request or its answer."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from support.kafka import kafka_frames

_NAMES = """
0:Produce 1:Fetch 2:ListOffsets 3:Metadata 8:OffsetCommit 9:OffsetFetch 10:FindCoordinator
11:JoinGroup 15:DescribeGroups 18:ApiVersions 19:CreateTopics 21:DeleteRecords
22:InitProducerId 24:AddPartitionsToTxn 25:AddOffsetsToTxn 26:EndTxn 27:WriteTxnMarkers
28:TxnOffsetCommit 32:DescribeConfigs 42:DeleteGroups 60:DescribeCluster
61:DescribeProducers 65:DescribeTransactions 68:ConsumerGroupHeartbeat
"""
NAMES_BROKERS = {"Metadata", "FindCoordinator", "DescribeCluster", "Produce", "Fetch"}
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

    def concerns(self, topic: str, partition: int) -> bool:
        found = kafka_frames.partitions_of(self.frame, self.key, self.version)
        return bool(found & {(topic, partition), ("", partition)})

    @property
    def key(self) -> int:
        return int(_REQUEST.unpack_from(self.frame)[0])


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


ANY = "*"
HOST = "127.0.0.1"
PATIENCE_S = 300  # a test that waits for longer has failed
ALWAYS = 1_000_000_000


class Do(Enum):
    """What is done to a request, or to its answer."""

    NOTHING = "nothing: it is remembered, to be repeated later"
    DROP_REQUEST = "the request never arrives, the connection stays"
    CLOSE_BEFORE = "the connection closes, the request never arrives"
    CLOSE_AFTER = "the connection closes at once, the request arrives"
    HOLD_REQUEST = "the request arrives after `release`, even if nobody waits for it any more"
    DROP_ANSWER = "the answer never arrives, the connection stays"
    LOSE_ANSWER = "the answer never arrives, the connection closes in its place"
    HALF_ANSWER = "half of the answer arrives, then the connection closes"
    GARBAGE_ANSWER = "the answer arrives with its size and correlation id, and noise behind"
    OTHER_ANSWER = "the answer arrives with the correlation id of another request"
    HOLD_ANSWER = "the answer arrives after `release`, if somebody still waits for it"
    DELAY_REQUEST = "the request arrives `delay_s` later, and so do those after it"
    DELAY_ANSWER = "the answer arrives `delay_s` later, and so do those after it"
    OTHER_CODE = "the request is carried out, and the answer arrives with the error `code`"
    THROTTLE = "the request arrives with at most `bytes_per_s`"


@dataclass(frozen=True)
class Which:
    """The requests that a rule is for; an empty value or 0 stands for all. See `Proxy.rule`."""

    api: str
    client: str | tuple[str, ...] = ""
    port: int = 0
    partition: tuple[str, int] | None = None
    nth: int = 1
    times: int = 1
    chance: float = 1.0

    def matches(self, seen: Seen) -> bool:
        clients = (self.client,) if isinstance(self.client, str) else self.client
        is_meant = self.api in (ANY, seen.api) and bool({"", seen.client} & set(clients))
        is_meant = is_meant and self.port in (0, seen.port)
        return is_meant and (self.partition is None or seen.concerns(*self.partition))


@dataclass(frozen=True)
class How:
    """The numbers of the actions that have one."""

    delay_s: float = 0
    code: int = 0
    bytes_per_s: int = 0


class Links(Protocol):
    """What a rule asks of its proxy."""

    def tell(self) -> None: ...

    def wait(self, until: Callable[[], bool], otherwise: str) -> None: ...


class Rule:
    """`struck` are the requests that it was applied to, `answers` what a broker said to them."""

    def __init__(self, links: Links, do: Do, which: Which, how: How, lots: random.Random) -> None:
        self.do = do
        self.how = how
        self.struck: list[Seen] = []
        self.answers: list[bytes] = []
        self.is_released = False
        self._links = links
        self._which = which
        self._lots = lots
        self._matched = 0

    @property
    def is_certain(self) -> bool:
        return self._which.chance >= 1

    def __repr__(self) -> str:
        return f"{self.do.name} of {self._which}"

    def takes(self, seen: Seen) -> bool:
        which = self._which
        if not which.matches(seen):
            return False
        self._matched += 1
        if not which.nth <= self._matched < which.nth + which.times:
            return False
        if which.chance < 1 and self._lots.random() >= which.chance:
            return False
        self.struck.append(seen)
        return True

    def release(self) -> None:
        """Lets go of what is held, now and from now on."""
        self.is_released = True
        self._links.tell()

    def wait_struck(self, times: int = 1) -> None:
        self._links.wait(lambda: len(self.struck) >= times, f"not struck: {self.do}")

    def wait_answered(self, times: int = 1) -> None:
        """Until a broker has answered: what was struck is carried out, or refused."""
        self._links.wait(lambda: len(self.answers) >= times, f"not answered: {self.do}")

    def repeat(self) -> bytes:
        """Sends the same bytes once more, by a connection of their own: a ghost. Its answer."""
        seen = self.struck[-1]
        with socket.create_connection((HOST, seen.port), timeout=PATIENCE_S) as ghost:
            ghost.sendall(sized(seen.frame))
            answer = read_frame(ghost)
        assert answer is not None, f"the broker hung up on {seen}"
        return answer
