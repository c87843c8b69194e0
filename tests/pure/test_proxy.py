"""The proxy that fault tests stand before a broker: each fault is what it says, and is counted."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from support.kafka.proxy import Proxy
from support.kafka.proxy_rules import ALWAYS, ANY, HOST, Do, read_frame, sized

END_TXN, FETCH = 26, 1


class Echo:
    """Answers each request with its correlation id and its body in capitals."""

    def __init__(self) -> None:
        self.arrived: list[bytes] = []
        self._listener = socket.create_server((HOST, 0))
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._threads.append(
                    threading.Thread(target=self._serve, args=(connection,), daemon=True)
                )
                self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while (frame := read_frame(connection)) is not None:
                self.arrived.append(frame[12:])
                connection.sendall(sized(frame[4:8] + frame[12:].upper()))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(300)


class Client:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port), timeout=300)

    def ask(self, body: bytes, api: int = END_TXN, correlation: int = 7) -> bytes | None:
        """The answer without its size; None if the connection is closed instead."""
        self.send(body, api, correlation)
        with contextlib.suppress(OSError):
            return read_frame(self.socket)
        return None

    def send(self, body: bytes, api: int = END_TXN, correlation: int = 7) -> None:
        name = b"me"
        head = struct.pack(">hhih", api, 5, correlation, len(name)) + name
        self.socket.sendall(sized(head + body))

    def is_silent(self) -> bool:
        """Nothing came, and the connection stands: what is asked next is answered first."""
        return self.ask(b"next", FETCH, 8) == answer(b"NEXT", 8)


def answer(body: bytes, correlation: int = 7) -> bytes:
    return struct.pack(">i", correlation) + body


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    made = Proxy(seed=7)  # not every test here has its rules strike
    made.port = made.before(echo.port)
    yield made
    made.close()


@pytest.fixture
def client(proxy: Proxy) -> Iterator[Client]:
    made = Client(proxy.port)
    yield made
    made.socket.close()


def test_what_no_rule_matches_passes_and_is_seen(proxy, client):
    other = proxy.rule("Fetch", Do.DROP_REQUEST)
    stranger = proxy.rule(ANY, Do.DROP_REQUEST, client="stranger")
    assert client.ask(b"a") == answer(b"A")
    (seen,) = proxy.seen
    assert (seen.api, seen.version, seen.correlation, seen.client) == ("EndTxn", 5, 7, "me")
    assert not other.struck
    assert not stranger.struck
    proxy.clear()
    assert not proxy.seen


def test_a_rule_strikes_the_nth_and_as_many_as_it_says(proxy, client):
    rule = proxy.rule("EndTxn", Do.GARBAGE_ANSWER, client="me", nth=2, times=2)
    answers = [client.ask(b"%d" % number) for number in range(4)]
    assert answers == [answer(b"0"), answer(b"\xfe"), answer(b"\xfe"), answer(b"3")]
    assert [one.frame[-1:] for one in rule.struck] == [b"1", b"2"]
    assert rule.answers == [answer(b"1"), answer(b"2")]


@pytest.mark.parametrize(
    ("do", "arrives", "gets"),
    [
        (Do.DROP_REQUEST, False, "nothing"),
        (Do.CLOSE_BEFORE, False, "closed"),
        (Do.CLOSE_AFTER, True, "closed"),
        (Do.DROP_ANSWER, True, "nothing"),
        (Do.LOSE_ANSWER, True, "closed"),
        (Do.HALF_ANSWER, True, "closed"),
        (Do.GARBAGE_ANSWER, True, answer(b"\xfe")),
        (Do.OTHER_ANSWER, True, answer(b"A", 1007)),
        (Do.NOTHING, True, answer(b"A")),
    ],
)
def test_each_fault_is_what_it_says(proxy, client, echo, do, arrives, gets):
    rule = proxy.rule("EndTxn", do)
    if gets == "nothing":
        client.send(b"a")
        rule.wait_struck()
        assert client.is_silent()
    else:
        assert client.ask(b"a") == (None if gets == "closed" else gets)
    if arrives:
        rule.wait_answered()
        assert echo.arrived[0] == b"a"
    else:
        assert b"a" not in echo.arrived
    again = Client(proxy.port)  # whatever became of the connection: a new one works
    assert again.ask(b"b") == answer(b"B")
    again.socket.close()


def test_a_held_request_arrives_when_it_is_released(proxy, client, echo):
    rule = proxy.rule("EndTxn", Do.HOLD_REQUEST)
    client.send(b"a")
    rule.wait_struck()
    assert not echo.arrived
    rule.release()
    assert read_frame(client.socket) == answer(b"A")


def test_a_held_request_arrives_though_its_sender_is_gone(proxy, client, echo):
    rule = proxy.rule("EndTxn", Do.HOLD_REQUEST)
    client.send(b"a")
    client.socket.close()
    rule.wait_struck()
    rule.release()
    rule.wait_answered()
    assert echo.arrived == [b"a"]


def test_a_held_answer_reaches_who_still_waits(proxy, client, echo):
    rule = proxy.rule("EndTxn", Do.HOLD_ANSWER)
    client.send(b"a")
    rule.wait_answered()
    assert echo.arrived == [b"a"]
    rule.release()
    assert read_frame(client.socket) == answer(b"A")


def test_clear_lets_go_of_what_is_held(proxy, client):
    rule = proxy.rule("EndTxn", Do.HOLD_ANSWER)
    client.send(b"a")
    rule.wait_answered()
    proxy.clear()
    assert read_frame(client.socket) == answer(b"A")
    assert client.ask(b"b") == answer(b"B")


def test_a_ghost_is_the_same_bytes_on_a_connection_of_its_own(proxy, client, echo):
    rule = proxy.rule("EndTxn", Do.NOTHING)
    client.ask(b"a")
    client.socket.close()
    assert rule.repeat() == answer(b"A")
    assert echo.arrived == [b"a", b"a"]


def test_a_broker_that_is_down_is_a_connection_that_closes(proxy):
    port = proxy.before(1)  # nobody listens there
    client = Client(port)
    assert client.ask(b"a") is None
    client.socket.close()


def test_a_delayed_request_and_a_delayed_answer_arrive(proxy, client):
    rules = [proxy.rule("EndTxn", do, delay_s=0.05) for do in (Do.DELAY_REQUEST, Do.DELAY_ANSWER)]
    before = time.monotonic()
    assert [client.ask(b"a"), client.ask(b"b")] == [answer(b"A"), answer(b"B")]
    assert time.monotonic() - before >= 0.1
    assert [len(rule.struck) for rule in rules] == [1, 1]


def test_a_throttled_request_arrives_whole(proxy, client):
    rule = proxy.rule("EndTxn", Do.THROTTLE, bytes_per_s=200_000)
    before = time.monotonic()
    assert client.ask(b"a" * 20_000) == answer(b"A" * 20_000)
    assert time.monotonic() - before >= 0.1
    assert len(rule.struck) == 1


def test_a_black_hole_swallows_everything_until_it_is_cleared(proxy, client):
    rule = proxy.black_hole(client=("somebody", "me"))
    client.send(b"a")
    rule.wait_struck()
    proxy.clear()
    assert client.is_silent()


def test_the_end_of_a_rule_leaves_the_others(proxy, client):
    hole = proxy.black_hole()
    codes = proxy.rule("EndTxn", Do.GARBAGE_ANSWER)
    proxy.end(hole)
    assert client.ask(b"a") != answer(b"a")
    assert (len(hole.struck), len(codes.struck)) == (0, 1)


def test_the_seed_decides_which_requests_are_struck(proxy, client):
    rule = proxy.rule("EndTxn", Do.GARBAGE_ANSWER, times=ALWAYS, chance=0.5)
    bodies = [b"%d" % number for number in range(10)]
    found = [client.ask(body) == answer(body) for body in bodies]
    lots = random.Random("7-0")
    assert found == [lots.random() >= 0.5 for _ in bodies]
    assert len(rule.struck) == found.count(False) > 0


def test_a_rule_that_never_struck_is_reported_once(proxy, client):
    proxy.rule("Fetch", Do.OTHER_ANSWER)
    proxy.rule("Fetch", Do.NOTHING)  # it only watches
    client.ask(b"a", FETCH)
    proxy.check_struck()
    proxy.rule("EndTxn", Do.DROP_REQUEST)
    proxy.clear()
    with pytest.raises(AssertionError, match=r"never injected: \[DROP_REQUEST of .*'EndTxn'"):
        proxy.check_struck()
    proxy.check_struck()


def test_the_end_of_a_proxy_is_one_more_check(echo):
    with pytest.raises(AssertionError, match="never injected"), Proxy() as made:  # noqa: PT012
        made.before(echo.port)
        made.rule("EndTxn", Do.DROP_REQUEST)
