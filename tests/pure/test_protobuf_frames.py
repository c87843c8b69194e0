"""The bytes before a Protobuf message: those of Confluent's clients, and the place in a schema."""

from __future__ import annotations

import time

import pytest
from support.kafka.schemas import message

from eos.protobuf.frames import frame, frames, path_in, path_of, unframed

PROTO = """
// message No {
syntax = "proto3"; package shop; import "message No {";
option java_package = "a}";
message Line {
  string sku = 1;
  message Deep { oneof x { int32 message = 1; } enum E { A = 0; } message Deeper { } }
}
enum Kind { NEW = 0; }
/* message No { } */ message Order {
  map<string, Line> by = 1; message First {}
  Line message = 3 [(opt) = { a: "}" }]; message Second { }
}
service S { rpc Get (Line) returns (Order) { option x = {y: 1}; } }
message Last {}
"""
# As confluent-kafka 2.16 writes them (`ProtobufSerializer`).
WRITTEN = [
    ("shop.Line", 1000, "00000003e800"),
    ("shop.Order", 1000, "00000003e80202"),
    ("shop.Small", 1000, "00000003e80206"),
    ("old.Order.Part", 1001, "00000003e9040000"),
]


@pytest.mark.parametrize(("name", "schema_id", "written"), WRITTEN)
def test_the_bytes_before_a_message_are_those_of_confluents_client(name, schema_id, written):
    made = message(name)
    assert frame(schema_id, path_of(made)).hex() == written
    raw = made.type().SerializePartialToString()
    assert unframed([bytes.fromhex(written) + raw], frames(made, {schema_id: ""})) == [raw]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("shop.Line", (0,)),
        ("shop.Line.Deep", (0, 0)),
        ("shop.Line.Deep.Deeper", (0, 0, 0)),
        ("shop.Order", (1,)),
        ("shop.Order.Second", (1, 1)),
        ("shop.Last", (2,)),
        ("shop.No", None),
        ("Order", None),
        ("shop.Kind", None),
    ],
)
def test_a_message_is_found_in_the_text_of_its_file(name, path):
    assert path_in(PROTO, name) == path
    assert path_in(PROTO.replace("package shop;", ""), name.removeprefix("shop.")) == (
        (1,) if name == "Order" else path
    )


def test_only_a_record_of_the_message_under_a_known_id_is_one():
    order = message("shop.Order")
    known = frames(order, {7: PROTO, 8: "message Other {}", 9: 'syntax = "proto3"; package shop;'})
    assert list(known) == [b"\0\0\0\0\x07"]
    first = frames(message("shop.Line"), {7: PROTO})
    records = {
        b"\0\0\0\0\x07\x02\x02abc": b"abc",
        b"\0\0\0\0\x07\x02\x02": b"",
        b"\0\0\0\0\x07\x00abc": None,  # another message of the schema
        b"\0\0\0\0\x08\x00abc": None,
        b"\0\0\0\0\x07\x02": None,
        b"abc": None,
        b"": None,
    }
    assert unframed([*records, None], known) == [*records.values(), None]
    # The first message has a short form and a long one.
    assert unframed([b"\0\0\0\0\x07\x00a", b"\0\0\0\0\x07\x02\x00a"], first) == [b"a", b"a"]
    many = "".join(f"message M{n} {{}}" for n in range(200))
    assert frame(1, path_in(many, "M199") or ()) == b"\0\0\0\0\x01\x02\x8e\x03"


@pytest.mark.parametrize("odd", ["/*", '"\\', "'", "{", "message a {", "}", "message message"])
def test_any_text_is_searched_in_linear_time(odd):
    began = time.process_time()
    path_in(odd * 20_000, "a.b")
    few = max(time.process_time() - began, 0.005)
    began = time.process_time()
    path_in(odd * 100_000, "a.b")
    assert time.process_time() - began < 15 * few  # 25 if the time grew with the square
