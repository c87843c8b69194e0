"""The metrics endpoint under clients that send nothing, send slowly or read nothing: few threads,
and each connection ends. Real sockets throughout."""

from __future__ import annotations

import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from urllib.error import HTTPError

import pytest
from prometheus_client import CollectorRegistry, Gauge
from support.waiting import WAIT_S_MAX, wait_until

from eos.bounded_server import CONNECTIONS_MAX
from eos.observe.exposition import Endpoint

CLIENTS = 5 * CONNECTIONS_MAX
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: eos\r\n\r\n"
SOON_S = 0.2  # of a connection, where the test waits for its end


def registry(help_text: str = "a test") -> CollectorRegistry:
    found = CollectorRegistry()
    Gauge("answer", help_text, registry=found).set(42)
    return found


def scrape(endpoint: Endpoint) -> str:
    with urllib.request.urlopen(endpoint.url, timeout=WAIT_S_MAX) as response:
        text: str = response.read().decode()
    assert "answer 42.0" in text
    return text


def scrape_again(endpoint: Endpoint) -> str:
    """Scrape until it works: a connection that has just ended may still count."""

    def scraped() -> str:
        with suppress(HTTPError):
            return scrape(endpoint)
        return ""

    return wait_until(scraped, "no scrape worked")


@contextmanager
def connections(endpoint: Endpoint, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        address = ("127.0.0.1", endpoint.port)
        opened = [socket.create_connection(address, timeout=WAIT_S_MAX) for _ in range(count)]
        for each in opened:
            stack.enter_context(each)
        yield opened


def answer(client: socket.socket) -> bytes:
    """Return what the server sends until it ends the connection."""
    return b"".join(iter(lambda: client.recv(65536), b""))


def test_idle_clients_get_few_threads_and_the_others_an_answer() -> None:
    with closing(Endpoint(registry(), "127.0.0.1", 0, connection_s_max=WAIT_S_MAX)) as endpoint:
        before = set(threading.enumerate())
        with connections(endpoint, CLIENTS) as clients:
            accepted, refused = clients[:CONNECTIONS_MAX], clients[CONNECTIONS_MAX:]
            for each in refused:
                assert answer(each).startswith(b"HTTP/1.0 503 Service Unavailable\r\n")
            assert len(set(threading.enumerate()) - before) == CONNECTIONS_MAX
            with pytest.raises(HTTPError, match="503") as caught:
                scrape(endpoint)
            assert b"too many connections" in caught.value.read()
            accepted[0].sendall(REQUEST)  # an accepted connection is still answered
            assert b"answer 42.0" in answer(accepted[0])
            scrape_again(endpoint)  # in its place
        scrape_again(endpoint)
        wait_until(lambda: set(threading.enumerate()) <= before, "threads of gone clients remain")


def test_clients_that_send_nothing_or_slowly_are_cut_off() -> None:
    with closing(Endpoint(registry(), "127.0.0.1", 0, connection_s_max=SOON_S)) as endpoint:
        before = set(threading.enumerate())
        with connections(endpoint, CONNECTIONS_MAX) as clients:
            slow = clients[0]

            def is_cut_off() -> bool:
                try:
                    slow.sendall(b"G")
                except OSError:
                    return True
                return False

            wait_until(is_cut_off, "a client that sends a byte at a time is kept")
            for each in clients[1:]:
                assert answer(each) == b""
            wait_until(lambda: set(threading.enumerate()) <= before, "a thread remains")
            scrape(endpoint)


def test_a_client_that_does_not_read_is_cut_off() -> None:
    large = registry("x" * 64 * 1024 * 1024)  # more than the buffers of two sockets hold
    with closing(Endpoint(large, "127.0.0.1", 0, connection_s_max=SOON_S)) as endpoint:
        before = set(threading.enumerate())
        with connections(endpoint, 1) as (client,):
            client.sendall(REQUEST)
            wait_until(lambda: set(threading.enumerate()) - before, "it was not accepted")
            wait_until(lambda: set(threading.enumerate()) <= before, "its thread remains")


def test_a_closed_endpoint_has_no_connections() -> None:
    before = set(threading.enumerate())
    endpoint = Endpoint(registry(), "127.0.0.1", 0, connection_s_max=WAIT_S_MAX)
    with connections(endpoint, 2) as clients:
        wait_until(lambda: len(set(threading.enumerate()) - before) == 3, "not accepted")
        endpoint.close()
        assert [answer(each) for each in clients] == [b"", b""]
        wait_until(lambda: set(threading.enumerate()) <= before, "a thread remains")


def test_the_endpoint_serves_ipv4_and_ipv6() -> None:
    addresses = {"127.0.0.1": "127.0.0.1"}
    with suppress(OSError), socket.socket(socket.AF_INET6) as probe:  # not all machines have IPv6
        probe.bind(("::1", 0))
        addresses["::1"] = "[::1]"
    for address, host in addresses.items():
        with closing(Endpoint(registry(), address, 0)) as endpoint:
            assert endpoint.url == f"http://{host}:{endpoint.port}/metrics"
            scrape(endpoint)
