"""A TCP proxy before a broker that knows Kafka's frames, and does to them what a network may do.

    with Proxy() as proxy:
        port = proxy.before(9092)  # for `advertised.listeners`
        rule = proxy.rule("EndTxn", Do.LOSE_ANSWER, client="the driver")
        ...
        assert rule.struck

A rule counts the requests that match it and strikes the nth, and as many after it as `times` is;
with `chance`, it strikes some of these, which follow from the proxy's seed. One proxy can serve
several brokers, each with a port of its own: rules see the requests to all of them, the brokers'
own too. Clients of a broker that does not advertise the proxy reach it through `around`: the proxy
writes its own ports into each response that names brokers.

A rule that never struck proves nothing: `check_struck` fails for it, and so does the end of `with`.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
import threading
from collections.abc import Callable
from typing import Any

from support.kafka import kafka_frames
from support.kafka.proxy_rules import (
    ALWAYS,
    ANY,
    APIS,
    CORRELATION,
    HOST,
    NAMES_BROKERS,
    PATIENCE_S,
    Do,
    How,
    Rule,
    Seen,
    Which,
    parsed,
    read_frame,
    sized,
)

_PIECE_BYTES = 4096


class Proxy:
    """`seen` are the requests since the last `clear`, in the order in which they came; without
    `remembers` there are none, for runs of hours."""

    def __init__(self, seed: int = 0, *, remembers: bool = True) -> None:
        self.seen: list[Seen] = []
        self._seed, self._remembers = seed, remembers
        self._rules: list[Rule] = []
        self._made: list[Rule] = []  # since the last `check_struck`
        self._seeds = itertools.count()
        self._around: dict[tuple[str, int], int] = {}
        self._changed = threading.Condition()
        self._listeners: list[socket.socket] = []
        self._links: set[_Link] = set()
        self._threads: list[threading.Thread] = []
        self._numbers = itertools.count(1)
        self._is_closed = False

    def __enter__(self) -> Proxy:  # noqa: PYI034 - typing.Self begins with 3.11
        return self

    def __exit__(self, error: object, *_rest: object) -> None:
        self.close()
        if error is None:
            self.check_struck()

    def before(self, port: int, host: str = HOST) -> int:
        """Stands before the broker at this port, which need not run yet. Returns its own port."""
        listener = socket.create_server((HOST, 0))
        self._listeners.append(listener)
        self._start(lambda: self._accept(listener, (host, port)))
        return int(listener.getsockname()[1])

    def around(self, bootstrap: str) -> str:
        """The addresses by which clients reach these brokers through the proxy, whatever the
        brokers advertise. Each broker that a response names gets a port of the proxy, too."""
        found = []
        for address in bootstrap.split(","):
            host, _, port = address.rpartition(":")
            found.append(f"{HOST}:{self.port_around(host, int(port))}")
        return ",".join(found)

    def port_around(self, host: str, port: int) -> int:
        at = (HOST if host == "localhost" else host, port)
        with self._changed:
            if at[0] == HOST and port in self._around.values():
                return port  # it is one of the proxy's own
            if at not in self._around:
                self._around[at] = self.before(port, at[0])
            return self._around[at]

    def rule(
        self,
        api: str,
        do: Do,
        *,
        delay_s: float = 0,
        code: int = 0,
        bytes_per_s: int = 0,
        **which: Any,
    ) -> Rule:
        """For the `nth` request of this API (`ANY`: of all) from now on, and the `times` - 1 after
        it; `client`: of this client id only, or of these; `port`: to the broker there only;
        `partition`: that names this (topic, number); `chance`: the part of these that is struck.
        Of several rules the one that was made first has its way."""
        assert api == ANY or api in APIS.values(), api
        wants = {Do.DELAY_REQUEST: delay_s, Do.DELAY_ANSWER: delay_s, Do.THROTTLE: bytes_per_s}
        assert wants.get(do, 1) > 0, f"{do} needs its number"
        with self._changed:
            lots = random.Random(f"{self._seed}-{next(self._seeds)}")
            how = How(delay_s, code, bytes_per_s)
            made = Rule(self, do, Which(api, **which), how, lots)
            self._rules.append(made)
            self._made.append(made)
            return made

    def black_hole(self, **which: Any) -> Rule:
        """Connections stay, and nothing that is sent ever arrives."""
        return self.rule(ANY, Do.DROP_REQUEST, times=ALWAYS, **which)

    def check_struck(self) -> None:
        """Each rule since the last call has struck. Rules that only watch are no faults, and one
        with a chance has none for sure: its test says how often it must have struck."""
        with self._changed:
            made, self._made = self._made, []
        sure = [rule for rule in made if rule.do is not Do.NOTHING and rule.is_certain]
        missed = [rule for rule in sure if not rule.struck]
        assert not missed, f"these faults were never injected: {missed}"

    def clear(self) -> None:
        """Forgets what was seen, and the rules."""
        self.clear_rules()
        with self._changed:
            self.seen = []

    def end(self, *rules: Rule) -> None:
        """Remove these rules. What they hold continues."""
        with self._changed:
            self._rules = [rule for rule in self._rules if rule not in rules]
        for rule in rules:
            rule.release()

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
            if self._remembers:
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

    def wait_for(self, seconds: float, is_over: Callable[[], bool]) -> None:
        """A delay, which the end of the connection or of the proxy ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or is_over(), seconds)

    def rewrites(self, seen: Seen) -> bool:
        return bool(self._around) and seen.api in NAMES_BROKERS

    def _accept(self, listener: socket.socket, at: tuple[str, int]) -> None:
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                client, _ = listener.accept()
                try:
                    broker = socket.create_connection(at)
                except OSError:  # it is down, and so is the way to it
                    client.close()
                    continue
                link = _Link(self, next(self._numbers), client, broker, at[1])
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
        self._unanswered: dict[int, tuple[Seen, Rule | None]] = {}  # by correlation id
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
        if rule is not None and do is Do.DELAY_REQUEST:
            self._proxy.wait_for(rule.how.delay_s, lambda: self._is_closed)
        self._unanswered[seen.correlation] = seen, rule
        if do is Do.CLOSE_AFTER:
            self._hang_up()  # first, or the answer may be quicker
        if rule is not None and do is Do.THROTTLE:
            self._send_slowly(sized(seen.frame), rule.how.bytes_per_s)
        else:
            self._broker.sendall(sized(seen.frame))
        return do is not Do.CLOSE_AFTER

    def _send_slowly(self, whole: bytes, bytes_per_s: int) -> None:
        for at in range(0, len(whole), _PIECE_BYTES):
            piece = whole[at : at + _PIECE_BYTES]
            self._proxy.wait_for(len(piece) / bytes_per_s, lambda: self._is_closed)
            self._broker.sendall(piece)

    def _answer(self, frame: bytes) -> bool:
        """False: it was the connection's last."""
        seen, rule = self._unanswered.pop(CORRELATION.unpack_from(frame)[0])
        do = rule.do if rule else Do.NOTHING
        if rule is not None:
            rule.answers.append(frame)
            self._proxy.tell()
            if do is Do.HOLD_ANSWER:
                self._proxy.hold(rule, lambda: self._is_hung_up)
            if do is Do.DELAY_ANSWER:
                self._proxy.wait_for(rule.how.delay_s, lambda: self._is_hung_up)
            if do is Do.OTHER_CODE:
                frame = kafka_frames.with_error(frame, seen.key, seen.version, rule.how.code)
        if self._proxy.rewrites(seen):
            port_of = self._proxy.port_around
            frame = kafka_frames.with_addresses(frame, seen.key, seen.version, port_of)
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
