"""What is asked of a schema registry, and what becomes of its answers."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from support.errors import raises
from support.kafka.schemas import FakeRegistry, registry

from eos.config.registry import Registry
from eos.deadline import Deadline
from eos.formats import registry_client as client_module
from eos.formats.registry_client import RegistryClient

TODAY = Deadline.after_ms(86_400_000)  # made when this is imported: later than any test
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def asked() -> Iterator[FakeRegistry]:
    with registry() as made:
        yield made


def client(of: FakeRegistry, **more: str) -> RegistryClient:
    return RegistryClient(Registry(url=of.url, **more))


def test_schemas_are_found_by_subject_and_by_id(asked: FakeRegistry) -> None:
    number = asked.add("orders/value", ORDER)
    assert client(asked).schema(number, TODAY) == json.dumps(ORDER)
    assert client(asked).schema(7, TODAY) is None


def test_a_subjects_name_is_quoted(asked: FakeRegistry) -> None:
    with raises("registry_subject_missing") as missing:
        client(asked).versions("orders/value", TODAY)
    assert "'orders/value'" in missing.value.message
    assert asked.asked == ["GET /subjects/orders%2Fvalue/versions"]


def test_all_versions_of_a_subject_by_id(asked: FakeRegistry) -> None:
    first = asked.add("orders-value", ORDER)
    second = asked.add("orders-value", {**ORDER, "doc": "newer"})
    found = client(asked).versions("orders-value", TODAY)
    assert list(found) == [first, second]
    assert json.loads(found[second])["doc"] == "newer"


def test_a_schema_is_looked_up_and_made_only_if_that_is_said(asked: FakeRegistry) -> None:
    with raises("registry_schema_not_registered") as caught:
        client(asked).id_of("orders-value", json.dumps(ORDER), TODAY, registers=False)
    assert "'orders-value'" in caught.value.message
    assert "register: true" in caught.value.hint
    made = client(asked).id_of("orders-value", json.dumps(ORDER), TODAY, registers=True)
    assert client(asked).id_of("orders-value", json.dumps(ORDER), TODAY, registers=False) == made


def test_a_user_shows_who_it_is(asked: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_PASSWORD", "s3cret")
    client(asked, user="eos", password="${REGISTRY_PASSWORD}").require_there(TODAY)
    assert asked.login == "Basic ZW9zOnMzY3JldA=="
    client(asked).require_there(TODAY)
    assert asked.login == ""


def test_what_passes_is_asked_again_and_what_does_not_is_told(asked: FakeRegistry) -> None:
    number = asked.add("orders-value", ORDER)
    asked.refusing[:] = [503, 429]
    assert client(asked).schema(number, TODAY) == json.dumps(ORDER)
    for status, code in (
        (401, "registry_login_rejected"),
        (403, "registry_access_denied"),
        (409, "registry_schema_incompatible"),
        (418, "registry_request_rejected"),
    ):
        asked.refusing[:] = [status]
        with raises(code) as told:
            client(asked).schema(7, TODAY)
        assert f"GET /schemas/ids/7: {status} not now" in told.value.message


def test_no_redirect_takes_the_password_along(asked: FakeRegistry) -> None:
    asked.refusing[:] = [302]
    with raises("registry_request_rejected") as redirected:
        client(asked).schema(7, TODAY)
    assert "302" in redirected.value.message
    assert asked.asked == ["GET /schemas/ids/7"]


def test_a_registry_that_is_not_there_is_told_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setattr(client_module, "ANSWER_MS_MAX", 1000)
        with raises("registry_unavailable") as refused:
            RegistryClient(Registry(url=url)).schema(7, TODAY)
        assert "Connection refused" in refused.value.message


def test_one_deadline_bounds_all_that_is_asked_together(
    asked: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(100):
        asked.add("orders-value", {**ORDER, "doc": f"{number}"})
    plain = asked.answer

    def slow(*request: object) -> object:
        time.sleep(0.05)
        return plain(*request)

    monkeypatch.setattr(asked, "answer", slow)
    with raises("registry_unavailable"):
        client(asked).versions("orders-value", Deadline.after_ms(500))
    assert len(asked.asked) < 50


def test_an_answer_that_drips_in_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece comes within the limit of a wait, and the whole of it never would."""
    monkeypatch.setattr(client_module, "ANSWER_MS_MAX", 1000)
    sent: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            with suppress(OSError), server.accept()[0] as connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                while len(sent) < 10_000:
                    connection.sendall(b" ")
                    sent.append(1)
                    time.sleep(0.01)

        thread = threading.Thread(target=drip)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with raises("registry_unavailable"):
            RegistryClient(Registry(url=url)).schema(7, TODAY)
        server.shutdown(socket.SHUT_RDWR)  # where nobody came
        thread.join()
    assert len(sent) < 10_000


@pytest.mark.parametrize(
    ("odd", "code"),
    [
        ({"id": 1, "schema": "{}", "schemaType": "PROTOBUF"}, "registry_schema_unusable"),
        ({"id": 1, "schema": "{}", "references": [{"name": "a"}]}, "registry_schema_unusable"),
        ({"schema": "{}"}, "registry_response_invalid"),
        ({"id": 1}, "registry_response_invalid"),
        ([1], "registry_response_invalid"),
    ],
)
def test_a_latest_version_that_is_not_understood_is_refused(
    asked: FakeRegistry, odd: dict[str, object], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked, "answer", lambda *_: odd)
    with raises(code):
        client(asked).latest("orders-value", TODAY)


@pytest.mark.parametrize(
    "odd",
    [
        {"url": "registry:8081"},
        {"url": "http://eos:secret@registry"},
        {"url": "http://registry", "user": "eos"},
        {"url": "http://registry:99999"},
        {"url": "http://registry", "user": "eos", "password": "${file:/run/secrets/a}"},
        {"url": "http://127.0.0.1.example", "user": "eos", "password": "${file:/run/secrets/a}"},
        {"url": "http://registry", "ca": "/etc/ca.pem"},
        {"url": "https://registry", "user": "eos", "password": "secret"},
    ],
)
def test_what_a_profile_may_not_say(odd: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Registry.model_validate(odd)
