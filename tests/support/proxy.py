"""A TCP proxy before a broker that knows Kafka's frames, and does to them what a network may do.

    with Proxy() as proxy:
        port = proxy.before(9092)  # for `advertised.listeners`
        rule = proxy.rule("EndTxn", Do.LOSE_ANSWER, client="the driver")
        ...
        assert rule.struck

A rule counts the requests that match it and strikes the nth, and as many after it as `times` is.
One proxy can serve several brokers, each with a port of its own: rules see the requests to all of
them, the brokers' own too.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
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


ANY = "*"
HOST = "127.0.0.1"
PATIENCE_S = 300  # a test that waits for longer has failed


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


class Rule:
    """`struck` are the requests that it was applied to, `answers` what a broker said to them."""

    def __init__(
        self, proxy: Proxy, do: Do, nth: int, times: int, matches: Callable[[Seen], bool]
    ) -> None:
        self.do = do
        self.struck: list[Seen] = []
        self.answers: list[bytes] = []
        self.is_released = False
        self._proxy = proxy
        self._matches = matches
        self._places = range(nth, nth + times)
        self._matched = 0

    def takes(self, seen: Seen) -> bool:
        if not self._matches(seen):
            return False
        self._matched += 1
        if self._matched not in self._places:
            return False
        self.struck.append(seen)
        return True

    def release(self) -> None:
        """Lets go of what is held, now and from now on."""
        self.is_released = True
        self._proxy.tell()

    def wait_struck(self, times: int = 1) -> None:
        self._proxy.wait(lambda: len(self.struck) >= times, f"not struck: {self.do}")

    def wait_answered(self, times: int = 1) -> None:
        """Until a broker has answered: what was struck is carried out, or refused."""
        self._proxy.wait(lambda: len(self.answers) >= times, f"not answered: {self.do}")

    def repeat(self) -> bytes:
        """Sends the same bytes once more, by a connection of their own: a ghost. Its answer."""
        seen = self.struck[-1]
        with socket.create_connection((HOST, seen.port), timeout=PATIENCE_S) as ghost:
            ghost.sendall(sized(seen.frame))
            answer = read_frame(ghost)
        assert answer is not None, f"the broker hung up on {seen}"
        return answer


class Proxy:
    """`seen` are the requests since the last `clear`, in the order in which they came."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self._rules: list[Rule] = []
        self._changed = threading.Condition()
        self._listeners: list[socket.socket] = []
        self._links: set[_Link] = set()
        self._threads: list[threading.Thread] = []
        self._numbers = itertools.count(1)
        self._is_closed = False

    def __enter__(self) -> Proxy:  # noqa: PYI034 - typing.Self begins with 3.11
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def before(self, port: int) -> int:
        """Stands before the broker at this port, which need not run yet. Returns its own port."""
        listener = socket.create_server((HOST, 0))
        self._listeners.append(listener)
        self._start(lambda: self._accept(listener, port))
        return int(listener.getsockname()[1])

    def rule(
        self, api: str, do: Do, *, client: str = "", port: int = 0, nth: int = 1, times: int = 1
    ) -> Rule:
        """For the nth request of this API (`ANY`: of all) from now on; `client`: of this client
        id only; `port`: to the broker there only. Of several rules the one that was made first
        has its way."""
        assert api == ANY or api in APIS.values(), api

        def matches(seen: Seen) -> bool:
            is_meant = api in (ANY, seen.api) and client in ("", seen.client)
            return is_meant and port in (0, seen.port)

        with self._changed:
            self._rules.append(Rule(self, do, nth, times, matches))
            return self._rules[-1]

    def clear(self) -> None:
        """Forgets what was seen, and the rules."""
        self.clear_rules()
        with self._changed:
            self.seen = []

    def clear_rules(self) -> None:
        """What is held goes on its way."""
        with self._changed:
            rules, self._rules = self._rules, []
        for rule in rules:
            rule.release()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            links, threads = list(self._links), list(self._threads)
            self._changed.notify_all()
        for listener in self._listeners:
            _shut(listener)
        for link in links:
            link.close()
        for thread in threads:
            thread.join(PATIENCE_S)

    def tell(self) -> None:
        """Something that `wait` or `hold` may wait for has changed."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, until: Callable[[], bool], otherwise: str) -> None:
        with self._changed:
            met = self._changed.wait_for(lambda: self._is_closed or until(), PATIENCE_S)
        assert met, otherwise

    # -- for links -------------------------------------------------------------------------------

    def hold(self, rule: Rule, is_over: Callable[[], bool]) -> None:
        """Has no limit of its own: `clear` and `close` end it."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or rule.is_released or is_over())

    def struck_by(self, seen: Seen) -> Rule | None:
        with self._changed:
            self.seen.append(seen)
            rule = next((rule for rule in self._rules if rule.takes(seen)), None)
            self._changed.notify_all()
            return rule

    def forget(self, link: _Link) -> None:
        with self._changed:
            self._links.discard(link)
            self._changed.notify_all()

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name="proxy", daemon=True)
        thread.start()
        with self._changed:
            self._threads = [*filter(threading.Thread.is_alive, self._threads), thread]

    def _accept(self, listener: socket.socket, port: int) -> None:
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                client, _ = listener.accept()
                try:
                    broker = socket.create_connection((HOST, port))
                except OSError:  # it is down, and so is the way to it
                    client.close()
                    continue
                link = _Link(self, next(self._numbers), client, broker, port)
                with self._changed:
                    self._links.add(link)
                    is_late = self._is_closed
                if is_late:
                    link.close()
                    return
                self._start(link.carry_requests)
                self._start(link.carry_answers)


class _Link:
    """A client's connection and the one to the broker that belongs to it. A thread each way."""

    def __init__(
        self, proxy: Proxy, number: int, client: socket.socket, broker: socket.socket, port: int
    ) -> None:
        self._proxy = proxy
        self._number = number
        self._client = client
        self._broker = broker
        self._port = port
        self._unanswered: dict[int, Rule | None] = {}  # by correlation id
        self._is_hung_up = self._is_closed = False
        for side in (client, broker):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def carry_requests(self) -> None:
        with contextlib.suppress(OSError):
            frame = read_frame(self._client)
            while frame is not None and self._request(parsed(frame, self._number, self._port)):
                frame = read_frame(self._client)
        self._hang_up()

    def carry_answers(self) -> None:
        with contextlib.suppress(OSError):
            frame = read_frame(self._broker)
            while frame is not None and self._answer(frame):
                frame = read_frame(self._broker)
        self.close()

    def close(self) -> None:
        self._is_closed = True
        self._hang_up()
        _shut(self._broker)
        self._proxy.forget(self)

    def _request(self, seen: Seen) -> bool:
        """False: it was the connection's last."""
        rule = self._proxy.struck_by(seen)
        do = rule.do if rule else Do.NOTHING
        if do is Do.DROP_REQUEST:
            return True
        if do is Do.CLOSE_BEFORE:
            return False
        if rule is not None and do is Do.HOLD_REQUEST:
            self._proxy.hold(rule, lambda: self._is_closed)
        self._unanswered[seen.correlation] = rule
        if do is Do.CLOSE_AFTER:
            self._hang_up()  # first, or the answer may be quicker
        self._broker.sendall(sized(seen.frame))
        return do is not Do.CLOSE_AFTER

    def _answer(self, frame: bytes) -> bool:
        """False: it was the connection's last."""
        rule = self._unanswered.pop(CORRELATION.unpack_from(frame)[0])
        do = rule.do if rule else Do.NOTHING
        if rule is not None:
            rule.answers.append(frame)
            self._proxy.tell()
            if do is Do.HOLD_ANSWER:
                self._proxy.hold(rule, lambda: self._is_hung_up)
        if self._is_hung_up:  # the broker answers all that it was sent, and then it is over
            return bool(self._unanswered)
        self._client.sendall(_arrives(frame, do))
        return do not in (Do.LOSE_ANSWER, Do.HALF_ANSWER)

    def _hang_up(self) -> None:
        """On the client. The broker first answers what it was sent: it all arrived."""
        self._is_hung_up = True
        _shut(self._client)
        if not self._unanswered:
            _shut(self._broker)
        self._proxy.tell()


def _arrives(frame: bytes, do: Do) -> bytes:
    """What of an answer gets to the client."""
    whole = sized(frame)
    if do in (Do.DROP_ANSWER, Do.LOSE_ANSWER):
        return b""
    if do is Do.HALF_ANSWER:
        return whole[: len(whole) // 2]
    if do is Do.GARBAGE_ANSWER:
        return whole[:8] + b"\xfe" * (len(whole) - 8)
    if do is Do.OTHER_ANSWER:
        (correlation,) = CORRELATION.unpack_from(frame)
        return whole[:4] + CORRELATION.pack(correlation + 1000) + whole[8:]
    return whole


def _shut(connection: socket.socket) -> None:
    """Wakes whoever reads from it, or accepts."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
