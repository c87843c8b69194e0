"""Protobuf messages as columns: which, what of them is told, and what is refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from support.kafka.schemas import add, descriptor_file, file_of, message, old, shop

from eos.protobuf.arrays import binaries
from eos.protobuf.decoder import read
from eos.protobuf.encoder import UnfitError, write
from eos.protobuf.fields import ddl
from eos.protobuf.message import message_in

ORDER, OLD = message("shop.Order"), message("old.Order")


def test_fields_are_columns_of_sparks_types() -> None:
    assert ddl(ORDER.fields).replace("`", "") == (
        "id BIGINT, name STRING, kind STRING, at TIMESTAMP, took INTERVAL DAY TO SECOND, "
        "lines ARRAY<STRUCT<sku: STRING, n: INT>>, by MAP<STRING, STRUCT<sku: STRING, n: INT>>, "
        "first STRUCT<sku: STRING, n: INT>, u32 BIGINT, u64 DECIMAL(20,0), weight FLOAT, "
        "price DOUBLE, ok BOOLEAN, raw BINARY, kinds ARRAY<STRING>, i32 INT, card STRING, "
        "voucher INT, seen MAP<DECIMAL(20,0), TIMESTAMP>"
    )


def test_what_is_not_there_is_its_default_or_null_if_that_can_be_told() -> None:
    (found,) = read(ORDER, binaries([b""])).to_pylist()
    assert found == {
        **dict.fromkeys(("name", "at", "took", "first", "card", "voucher")),
        **dict.fromkeys(("id", "u32", "u64", "weight", "price", "i32"), 0),
        **{name: [] for name in ("lines", "kinds", "by", "seen")},
        "kind": "NEW",
        "ok": False,
        "raw": b"",
    }
    (given,) = read(OLD, binaries([OLD.type(id=0, part={"n": 1}).SerializeToString()])).to_pylist()
    assert given == {"id": 0, "five": 5, "name": None, "kind": None, "part": {"n": 1}}


def test_what_has_no_name_or_no_field_is_kept_or_passed_over() -> None:
    raw = ORDER.type(kind=7, kinds=[1, -3]).SerializeToString() + b"\xa0\x06\x01"  # field 100
    (found,) = read(ORDER, binaries([raw])).to_pylist()
    assert found["kind"] == "UNKNOWN_ENUM_VALUE_Kind_7"
    assert found["kinds"] == ["OLD", "UNKNOWN_ENUM_VALUE_Kind_-3"]
    # An enum of proto2 is closed: to the library, such a number is a field that it does not know.
    (closed,) = read(OLD, binaries([b"\x08\x01\x20\x07"])).to_pylist()
    assert closed["kind"] is None


@pytest.mark.parametrize(
    ("of", "raw"),
    [
        (ORDER, b"\x0a"),  # cut off
        (ORDER, b"\x00\x00\x00\x00\x01"),  # no field has the number 0
        (ORDER, b"\x12\x01\xff"),  # a text that is no UTF-8
        (ORDER, b"\x22\x0a\x08" + b"\xff" * 8 + b"\x7f"),  # a time that has no microseconds
        (OLD, b""),  # a required field is not there
        (OLD, b"\x08\x01\x2a\x00"),  # one of what is in it
        (OLD, b"\x08\x01\x1a\x01\xff"),  # as above, which proto2 lets pass until it is asked for
    ],
)
def test_what_can_not_be_read_is_null(of: Any, raw: bytes) -> None:
    assert read(of, binaries([raw, None])).to_pylist() == [None, None]


def test_less_than_a_microsecond_is_cut_off() -> None:
    times = {"at": {"seconds": -1, "nanos": 1999}, "took": {"seconds": -1, "nanos": -1999}}
    found = read(ORDER, binaries([ORDER.type(**times).SerializeToString()]))
    assert found.field("at").cast(pa.int64()).to_pylist() == [-999_999]
    assert found.field("took").cast(pa.int64()).to_pylist() == [-1_000_001]


def rows(**given: Any) -> Any:
    """Two rows of shop.Order, with these columns in the place of defaults."""
    found = read(ORDER, binaries([b"", b""]))
    names = [field.name for field in found.type]
    columns = {**dict(zip(names, found.flatten(), strict=True)), **given}
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


LINE = pa.struct([("N", pa.int64()), ("sku", pa.string())])
BAD_TEXT = pa.StringArray.from_buffers(
    2, pa.py_buffer(b"\0\0\0\0\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")
)


@pytest.mark.parametrize(
    ("name", "array", "path", "told"),
    [
        (
            "i32",
            pa.array([1, 1 << 31]),
            "i32",
            "expected -2147483648 to 2147483647, got 2147483648",
        ),
        ("u32", pa.array([1, -1]), "u32", "expected 0 to 4294967295, got -1"),
        ("u64", pa.array([Decimal(1), Decimal(2**64)], pa.decimal128(38, 0)), "u64", "got 184467"),
        ("name", BAD_TEXT, "name", "expected UTF-8 text"),
        ("kind", pa.array(["OLD", "Old"]), "kind", "a name of the enum `shop.Kind`, got 'Old'"),
        ("kinds", pa.array([["OLD"], ["NEW", None]]), "kinds", "an element that is null"),
        ("kinds", pa.array([[], ["UNKNOWN_ENUM_VALUE_Kind_x"]]), "kinds", "a name of the enum"),
        (
            "lines",
            pa.array([[{"N": 1}], [{"N": 1}, {"N": 1 << 40}]], pa.list_(LINE)),
            "lines.n",
            "",
        ),
        ("by", pa.array([[], [("a", {"N": -1 << 40})]], pa.map_(pa.string(), LINE)), "by.n", ""),
        (
            "by",
            pa.array([[("a", {})], [("a", None)]], pa.map_(pa.string(), LINE)),
            "by",
            "a value that is null",
        ),
        ("seen", pa.array([[], [(-1, None)]], pa.map_(pa.int64(), pa.null())), "seen", "is null"),
        ("at", pa.array([0, 1 << 60], pa.timestamp("us")), "at", "seconds, got 1152921504606"),
        ("took", pa.array([0, -1 << 60], pa.duration("us")), "took", "seconds, got -1152921504607"),
    ],
)
def test_a_value_that_does_not_fit_is_told_by_row_and_field(name, array, path, told) -> None:
    with pytest.raises(UnfitError) as caught:
        write(ORDER, rows(**{name: array}))
    assert (caught.value.row, caught.value.path) == (1, path)
    assert told in caught.value.reason


def test_two_of_a_oneof_and_a_required_field_that_is_null_are_told() -> None:
    both = {"card": pa.array([None, "a"]), "voucher": pa.array([1, 0], pa.int32())}
    with pytest.raises(UnfitError, match="expected one of `paid`, got `card` and `voucher`"):
        write(ORDER, rows(**both))
    given = {"id": 1, "five": 1, "name": "", "kind": "OLD"}
    array = pa.array([{**given, "part": None}, {**given, "part": {"n": None}}])
    with pytest.raises(UnfitError, match=r"missing required fields: part\.n") as caught:
        write(OLD, array)
    assert caught.value.row == 1
    closed = pa.array([{**given, "kind": "UNKNOWN_ENUM_VALUE_Kind_7", "part": None}])
    with pytest.raises(UnfitError, match=r"kind: expected a name of the enum `old\.Kind`"):
        write(OLD, closed)
    assert write(OLD, array[:1]).to_pylist() == [b"\x08\x01\x10\x01\x1a\x00\x20\x01"]


def test_what_has_no_value_is_not_set_and_nulls_stay_nulls() -> None:
    nulls = pa.nulls(2)
    array = rows(**{field.name: nulls for field in ORDER.fields})
    assert write(ORDER, array).to_pylist() == [b"", b""]
    assert write(ORDER, pa.array([None, {}], array.type)).to_pylist() == [None, b""]


def test_the_order_of_a_maps_entries_makes_no_difference() -> None:
    entries = [(f"k{n:02}", {"N": n, "sku": ""}) for n in range(20)]
    turned = [entries, entries[::-1]]
    one, other = (rows(by=pa.array([each, []], pa.map_(pa.string(), LINE))) for each in turned)
    assert write(ORDER, one).equals(write(ORDER, other))
    values = [ORDER.type(by={key: {"n": 1}}).SerializeToString() for key, _ in entries]
    one, other = (read(ORDER, binaries([b"".join(each)])) for each in (values, values[::-1]))
    assert one.equals(other)
    assert [key for key, _ in one[0]["by"].as_py()] == [key for key, _ in entries]


@pytest.mark.parametrize(
    ("raw", "name", "told"),
    [
        (
            b"",
            "a",
            "expected a descriptor file with at least one .proto file: `protoc --include_imports",
        ),
        (b'syntax = "proto3";\nmessage A {}', "A", "expected a descriptor file"),
        (descriptor_file(shop()), "shop.Ordre", "`shop.Ordre` is none; did you mean `shop.Order`?"),
        (descriptor_file(shop()), "Part", "`Part` is none: it has `google.protobuf.Duration`, "),
        (descriptor_file(old()), "Part", "`Part` is none; did you mean `old.Order.Part`?"),
        (descriptor_file(shop()), "shop.Order.ByEntry", "is none; did you mean `shop.Order`?"),
        (
            descriptor_file(shop(), has_imports=False),
            "shop.Order",
            "expected the file `google/protobuf/timestamp.proto`, which `shop.proto` imports",
        ),
        (descriptor_file(shop()), "shop.Node", "`shop.Node` does, in `shop.Node.children`"),
        (descriptor_file(shop()), "shop.Nothing", "`shop.Nothing` has none"),
        (descriptor_file(shop()), "shop.Twice", "upper and lower case: `Some` occurs twice"),
    ],
)
def test_what_is_no_message_to_read_by_is_told(raw: bytes, name: str, told: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the words are compared
        message_in(raw, name)
    assert told in str(caught.value)


def test_files_that_do_not_fit_together_are_told() -> None:
    file = file_of("odd")
    add(file.message_type.add(name="A"), 1, "odd.B", "b")
    with pytest.raises(ValueError, match="expected a consistent set of files"):
        message_in(descriptor_file(file), "odd.A")


def test_a_message_that_unfolds_without_end_is_refused() -> None:
    file = file_of("wide")
    for level in range(20):
        made = file.message_type.add(name=f"A{level}")
        for number in range(1, 4):
            add(made, number, f"wide.A{level + 1}" if level < 19 else "int32", f"f{number}")
    with pytest.raises(ValueError, match="expected at most 10000 fields"):
        message_in(descriptor_file(file), "wide.A0")


def test_what_travels_is_what_the_message_needs() -> None:
    commented = shop()
    commented.source_code_info.location.add(leading_detached_comments=["c" * 100_000])
    raw = descriptor_file(commented, old())
    assert message_in(raw, "shop.Order").files == ORDER.files
    assert len(ORDER.files) < len(raw) / 10
