"""Whatever a registry answers: a result of the right type, or one of the project's errors."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.errors import examples

from eos.config import avro
from eos.config.registry import Registry
from eos.deadline import Backoff, Deadline
from eos.errors import EosError
from eos.formats import registry_client as module
from eos.formats.registry_client import RegistryClient

SOON = 50  # milliseconds for an answer
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-1, 3)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["AVRO", "JSON", "record", "string", '{"type": "record"}', "[" * 5000]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "id",
                    "schema",
                    "schemaType",
                    "references",
                    "subject",
                    "version",
                    "name",
                    "type",
                    "fields",
                    "namespace",
                    "items",
                    "error_code",
                    "message",
                    "x",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
SCHEMA = JSON.map(json.dumps)  # inside of an answer it is a text
REFERENCE = st.fixed_dictionaries({"subject": st.sampled_from("ab"), "version": st.integers(1, 3)})
VERSION = st.fixed_dictionaries(
    {"id": st.integers(0, 5) | JSON, "schema": SCHEMA | JSON},
    optional={"schemaType": st.just("AVRO") | JSON, "references": st.lists(REFERENCE) | JSON},
)
RAW = ((JSON | VERSION | VERSION | st.lists(st.integers(1, 3))).map(json.dumps)).map(
    str.encode
) | st.binary(max_size=60)
STATUS = st.sampled_from([200, 200, 200, 200, 204, 302, 401, 404, 409, 500, 999])
ANSWERS = st.lists(st.tuples(STATUS, RAW), min_size=1, max_size=6)


def schema(client: RegistryClient, deadline: Deadline) -> None:
    found = client.schema(7, deadline)
    assert found is None or isinstance(found, str)


def versions(client: RegistryClient, deadline: Deadline) -> None:
    for number, text in client.versions("s", deadline).items():
        assert isinstance(number, int)
        assert isinstance(text, str)


def latest(client: RegistryClient, deadline: Deadline) -> None:
    number, text = client.latest("s", deadline)
    assert isinstance(number, int)
    with suppress(ValueError):
        avro.field_names(text)


def id_of(client: RegistryClient, deadline: Deadline) -> None:
    assert isinstance(client.id_of("s", "{}", deadline, registers=True), int)


def require_there(client: RegistryClient, deadline: Deadline) -> None:
    client.require_there(deadline)


CALLS = [schema, versions, latest, id_of, require_there]


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_MS_MAX", SOON)
    monkeypatch.setattr(Backoff, "sleep", lambda *_: None)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("call", CALLS)
@settings(
    max_examples=examples(200),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(answers=ANSWERS)
def test_any_answers(
    call: Callable[[RegistryClient, Deadline], None], answers: list[tuple[int, bytes]]
):
    """One after the other, the last one for ever."""
    client, waiting = RegistryClient(Registry(url="http://r")), list(answers)

    class Played:
        is_open = False

        @staticmethod
        def request(*_words: object) -> tuple[int, bytes]:
            return waiting.pop(0) if len(waiting) > 1 else waiting[0]

    object.__setattr__(client, "_connection", Played())
    with suppress(EosError):
        call(client, Deadline.after_ms(2 * SOON))


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, list[bytes]]]:
    """A peer that sends the same bytes to whoever connects, and hangs up."""
    sent = [b""]
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:  # until the server's socket is shut
                    connection, _ = server.accept()
                    with connection, suppress(OSError):
                        connection.recv(65_536)
                        connection.sendall(sent[0])

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", sent
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


HEADS = st.sampled_from(
    [
        b"",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 404 N\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n",
        b"HTTP/1.1 99999 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"\x15\x03\x03\x00\x02",
    ]
)


@pytest.mark.usefixtures("hurried")
@settings(
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(head=HEADS, body=RAW)
def test_any_bytes(served: tuple[str, list[bytes]], head: bytes, body: bytes) -> None:
    url, sent = served
    sent[0] = head + body
    with suppress(EosError):
        schema(RegistryClient(Registry(url=url)), Deadline.after_ms(2 * SOON))
