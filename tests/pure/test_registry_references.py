"""Schemas that use types of other subjects: read as one, or refused with a sentence."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest
from support.errors import raises
from support.kafka.schemas import FakeRegistry, registry

from eos.config.registry import Registry
from eos.deadline import Deadline
from eos.formats import registry_references
from eos.formats.registry_client import RegistryClient
from eos.formats.registry_references import RegisteredSchema, Version, without_references

TODAY = Deadline.after_ms(86_400_000)  # made when this is imported: later than any test


def record(name: str, *fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    listed = [{"name": field, "type": kind} for field, kind in fields]
    return {"type": "record", "name": name, "fields": listed, **more}


COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED"]}
# A type within another's definition, a type that has itself in it, and a namespace of its own.
PLACE = record("Place", ("street", "string"), ("colour", COLOUR), namespace="com.places")
PERSON = record(
    "com.people.Person",
    ("home", "com.places.Place"),
    ("friends", {"type": "array", "items": "Person"}),
    ("paint", "com.places.Colour"),
)
ORDER = record(
    "Order",
    ("paint", "com.places.Colour"),
    ("by", ["null", "com.people.Person"]),
    ("to", {"type": "map", "values": "com.places.Place"}),
    ("own", record("Own", ("n", "int"))),
    ("again", "Own"),
    namespace="com.orders",
)
HOME = {"street": "a", "colour": "RED"}
ANN = {"home": HOME, "friends": [{"home": HOME, "friends": [], "paint": "RED"}], "paint": "RED"}
VALUE = {"paint": "RED", "by": ANN, "to": {"x": HOME}, "own": {"n": 1}, "again": {"n": 2}}


@pytest.fixture
def asked() -> Iterator[FakeRegistry]:
    with registry() as made:
        yield made


def client(of: FakeRegistry) -> RegistryClient:
    return RegistryClient(Registry(url=of.url))


def filled(asked: FakeRegistry) -> int:
    asked.add("place", PLACE)
    asked.add("person", PERSON, ("place", 1))
    return asked.add("orders-value", ORDER, ("person", 1), ("place", 1))


def test_a_schema_with_references_reads_what_was_written_by_it(asked: FakeRegistry) -> None:
    number = filled(asked)
    named: dict[str, Any] = {}
    for each in (PLACE, PERSON):
        fastavro.parse_schema(each, named)
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(ORDER, named), VALUE)
    of_id = client(asked).schema(number, TODAY)
    of_subject = client(asked).versions("orders-value", TODAY)[number]
    assert of_id == of_subject
    alone = fastavro.parse_schema(json.loads(of_subject))  # knows nothing else
    read = fastavro.schemaless_reader(io.BytesIO(written.getvalue()), alone, None)
    assert read == VALUE


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("PROTOBUF", 'syntax = "proto3"; package shop; import "line.proto"; message Order {}'),
        ("JSON", '{"type": "object", "properties": {"to": {"$ref": "place.json"}}}'),
    ],
)
def test_references_of_other_formats_are_not_followed(
    asked: FakeRegistry, kind: str, text: str
) -> None:
    """The columns are those of the pipeline, so an imported file changes nothing."""
    number = asked.add("orders-value", text, ("imported", 1))
    asked.kinds[number] = kind
    found = RegistryClient(Registry(url=asked.url), kind=kind)
    assert found.schema(number, TODAY) == text
    assert found.latest("orders-value", TODAY) == (number, text)
    assert not [each for each in asked.asked if "imported" in each]


def test_each_version_is_asked_for_once_for_all_of_a_subject(asked: FakeRegistry) -> None:
    filled(asked)
    asked.add("orders-value", {**ORDER, "doc": "newer"}, ("person", 1), ("place", 1))
    client(asked).versions("orders-value", TODAY)
    assert sorted(asked.asked) == [
        "GET /subjects/orders-value/versions",
        "GET /subjects/orders-value/versions/1",
        "GET /subjects/orders-value/versions/2",
        "GET /subjects/person/versions/1",
        "GET /subjects/place/versions/1",
    ]


def test_the_same_short_name_in_three_namespaces_is_three_types() -> None:
    kinds = [record(name, (name[0], "int")) for name in ("T", "a.T", "b.T")]
    main = record("a.Main", ("x", "T"), ("y", "b.T"), ("z", "T"))
    known = {Version("s", n): RegisteredSchema(json.dumps(each)) for n, each in enumerate(kinds)}
    whole = json.loads(
        without_references(RegisteredSchema(json.dumps(main), tuple(known)), known.get)
    )
    first, second, third = [each["type"] for each in whole["fields"]]
    assert [first["namespace"], second["namespace"], third] == ["a", "b", "a.T"]
    assert [each["fields"][0]["name"] for each in (first, second)] == ["a", "b"]


def test_subjects_that_refer_to_each_other_are_refused(asked: FakeRegistry) -> None:
    asked.add("place", PLACE, ("person", 1))
    asked.add("person", PERSON, ("place", 1))
    number = asked.add("orders-value", ORDER, ("person", 1))
    with raises("registry_schema_unusable") as refused:
        client(asked).latest("orders-value", TODAY)
    way = "'person' version 1 -> 'place' version 1 -> 'person' version 1"
    assert refused.value.message.startswith(
        "'orders-value', latest version, in the schema registry"
    )
    assert refused.value.message.endswith(f"cycle of references: {way}")
    assert len(asked.asked) == 3
    assert client(asked).schema(number, TODAY) is None


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ({"place": None}, "it refers to 'place' version 1, which does not exist"),
        ({"place": "no JSON"}, "references can't be resolved: Expecting value"),
    ],
)
def test_what_is_missing_or_no_schema_is_told(
    asked: FakeRegistry, broken: dict[str, str | None], told: str
) -> None:
    filled(asked)
    for subject, text in broken.items():
        if text is None:
            del asked.subjects[subject]
        else:
            asked.schemas[asked.subjects[subject][0]] = text
    with raises("registry_schema_unusable") as refused:
        client(asked).versions("orders-value", TODAY)
    assert told in refused.value.message
    assert "'orders-value' version 1" in refused.value.message


def test_how_much_is_followed_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Version] = []

    def deeper(at: Version) -> RegisteredSchema:
        asked.append(at)
        return RegisteredSchema('"int"', (Version("s", at.number + 1),))

    def wider(at: Version) -> RegisteredSchema:
        asked.append(at)
        return RegisteredSchema('"int"')

    monkeypatch.setattr(registry_references, "REFERRED_MAX", 50)
    with pytest.raises(ValueError, match="nested more than 20 deep"):
        without_references(RegisteredSchema('"int"', (Version("s", 1),)), deeper)
    assert len(asked) == 20
    many = tuple(Version("s", number) for number in range(51))
    with pytest.raises(ValueError, match="refers to more than 50 schemas"):
        without_references(RegisteredSchema('"int"', many), wider)
    assert len(asked) == 70


def test_what_many_ways_lead_to_is_followed_once() -> None:
    asked: list[Version] = []

    def ladder(at: Version) -> RegisteredSchema:
        asked.append(at)
        below = (Version("a", at.number + 1), Version("b", at.number + 1))
        return RegisteredSchema('"int"', below if at.number < 15 else ())

    assert without_references(RegisteredSchema('"int"', (Version("a", 1),)), ladder) == '"int"'
    assert len(asked) == len(set(asked)) == 29
