"""Ids of schemas that mean nothing here: malformed records, never the end of a run."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator

import pytest
from support.errors import raises
from support.kafka.schemas import FakeRegistry, registry

from eos.config.registry import Registry
from eos.config.rejected_records import MALFORMED
from eos.deadline import Backoff, Deadline
from eos.errors import UnavailableError, UsageError
from eos.formats import registry_client as client_module
from eos.formats import schema_ids
from eos.formats.expressions import Format
from eos.formats.registry_client import RegistryClient
from eos.formats.schema_ids import Writers
from eos.read.decode import Decode
from eos.read.rejected_records import RejectedRecords

TODAY = Deadline.after_ms(86_400_000)
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def asked() -> Iterator[FakeRegistry]:
    with registry() as made:
        yield made


def client(of: FakeRegistry) -> RegistryClient:
    return RegistryClient(Registry(url=of.url))


@pytest.mark.parametrize("kind", ["PROTOBUF", "JSON"])
def test_an_id_of_another_type_has_no_avro_schema(asked: FakeRegistry, kind: str) -> None:
    number = asked.add("other-value", "{}")
    asked.kinds[number] = kind
    assert client(asked).schema(number, TODAY) is None


def test_an_id_whose_references_are_missing_has_no_avro_schema(asked: FakeRegistry) -> None:
    number = asked.add("other-value", ORDER, ("nobody", 1))
    assert client(asked).schema(number, TODAY) is None
    with pytest.raises(UsageError, match="'nobody' version 1, which does not exist"):
        client(asked).latest("other-value", TODAY)


@pytest.mark.parametrize("number", [1 << 31, (1 << 32) - 1])
def test_an_id_that_no_registry_assigns_is_a_miss_without_a_request(
    asked: FakeRegistry, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Confluent's registry answers it as a path that does not exist."""
    wrong_path = b'{"error_code": 404, "message": "HTTP 404 Not Found"}'
    monkeypatch.setattr(client_module.RegistryClient, "_once", lambda *_: (404, wrong_path))
    assert Writers({}, client(asked).schema).learn([number]) == []


def test_an_older_version_of_another_type_is_skipped_and_the_latest_is_not(
    asked: FakeRegistry,
) -> None:
    old, new = asked.add("orders-value", "old"), asked.add("orders-value", ORDER)
    asked.kinds[old] = "JSON"
    assert client(asked).versions("orders-value", TODAY) == {new: json.dumps(ORDER)}
    asked.kinds[new] = "JSON"
    with pytest.raises(UsageError, match=r"version 2 in the schema registry .* is of type JSON"):
        client(asked).versions("orders-value", TODAY)


@pytest.mark.parametrize("code", [401, 403, 500, 503, 429, 408])
def test_a_refusal_is_never_a_miss(
    asked: FakeRegistry, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "ANSWER_MS_MAX", 300)
    writers = Writers({}, client(asked).schema)
    asked.refusing[:] = [code] * 1000
    with pytest.raises((UsageError, UnavailableError)):
        writers.learn([7])
    asked.refusing.clear()
    asked.asked.clear()
    assert writers.learn([7]) == []
    assert asked.asked, "it was remembered"


@pytest.mark.parametrize(
    "other",
    [
        b"<html>404 Not Found</html>",
        b'{"error_code": 404, "message": "HTTP 404 Not Found"}',
        b'{"error_code": true}',
        b"",
    ],
)
def test_a_404_of_something_else_is_never_a_miss(
    asked: FakeRegistry, other: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a proxy, or of a path that no registry has."""
    made = client(asked)
    monkeypatch.setattr(client_module.RegistryClient, "_once", lambda *_: (404, other))
    with raises("registry_request_rejected"):
        made.schema(7, TODAY)


def test_two_thousand_unknown_ids_share_a_connection_and_are_remembered(
    asked: FakeRegistry,
) -> None:
    known = asked.add("orders-value", ORDER)
    writers = Writers({}, client(asked).schema)
    ids = [*range(5000, 7000), known]
    assert writers.learn(ids) == [known]
    assert len(asked.asked) == 2001
    assert asked.connections == 1
    assert writers.learn(ids) == []
    assert len(asked.asked) == 2001


def test_the_time_for_a_hundred_ids_is_that_of_a_hundred_ids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not that of all: a registry that answers makes progress, however many ids there are."""
    monkeypatch.setattr(schema_ids, "_PACE_IDS", 2)
    given: list[Deadline] = []
    assert Writers({}, lambda _, deadline: given.append(deadline)).learn(range(6)) == []
    assert [given.index(each) for each in given] == [0, 0, 2, 2, 4, 4]
    assert given[0].at < given[2].at < given[4].at


def test_misses_are_bounded_and_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_ids, "MISSES_MAX", 3)
    asked: list[int] = []
    writers = Writers({1: "known"}, lambda number, _: asked.append(number))
    writers.learn([1, 2, 3, 4, 5, 2, 5])
    assert asked == [2, 3, 4, 5, 2]


def test_a_connection_that_the_peer_closed_is_opened_again_at_once(
    asked: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, made = asked.add("orders-value", ORDER), client(asked)
    assert made.schema(number, TODAY)
    asked.drop()
    monkeypatch.setattr(Backoff, "sleep", None)  # it does not wait
    assert made.schema(number, TODAY)
    assert asked.connections == 2


def test_one_tls_context_serves_all_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    plain = ssl.create_default_context

    def counted(**words: object) -> ssl.SSLContext:
        made.append(words)
        return plain(**words)

    monkeypatch.setattr(ssl, "create_default_context", counted)
    monkeypatch.setattr(client_module, "ANSWER_MS_MAX", 500)
    closed = RegistryClient(Registry(url="https://127.0.0.1:1"))
    for _ in range(2):
        with pytest.raises(UnavailableError):
            closed.schema(7, TODAY)
    assert len(made) == 1


def test_a_file_of_authorities_that_is_none_is_a_usage_error(tmp_path: object) -> None:
    made = RegistryClient(Registry(url="https://127.0.0.1:1", ca=f"{tmp_path}/ca.pem"))
    with raises("ca_file_unusable"):
        made.schema(7, TODAY)


@pytest.mark.parametrize("subject", ["", "orders-value"])
@pytest.mark.parametrize("is_strict", [False, True])
def test_with_state_the_hint_names_the_subject_that_a_startup_reads(
    subject: str, is_strict: bool
) -> None:
    decode = Decode(value=Format("avro", json.dumps(ORDER), subject=subject), is_strict=is_strict)
    found = RejectedRecords(MALFORMED, "fail", 1, "orders", 0, 7)
    with raises("record_malformed") as caught:
        decode.require_none((found,), "orders")
    hint = caught.value.hint
    assert ("a startup reads the schemas of 'orders-value'" in hint) == (
        is_strict and subject != ""
    )
    assert ("set `on_error`" in hint) != ("start again" in hint)
