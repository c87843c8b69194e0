"""Protobuf's own library beside the columns that are made of its messages, and back."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from support.errors import examples
from support.kafka.schemas import message

from eos.protobuf import limits
from eos.protobuf.arrays import binaries
from eos.protobuf.decoder import read
from eos.protobuf.encoder import write

ORDER = message("shop.Order")
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
UINT64 = st.integers(0, (1 << 64) - 1)
TIME = st.builds(
    lambda seconds, micros: {"seconds": seconds, "nanos": micros * 1000},
    st.integers(-62_135_596_800, 253_402_300_799),
    st.integers(0, 999_999),
)
TOOK = st.builds(
    lambda seconds, micros, sign: {"seconds": seconds * sign, "nanos": micros * 1000 * sign},
    st.integers(0, 315_576_000_000 - 1),
    st.integers(0, 999_999),
    st.sampled_from([1, -1]),
)
LINE = st.fixed_dictionaries({}, optional={"sku": st.text(max_size=3), "n": INT32})
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "id": INT64,
    "name": st.text(max_size=3),
    "kind": st.integers(-2, 3),
    "at": TIME,
    "took": TOOK,
    "lines": st.lists(LINE, max_size=3),
    "by": st.dictionaries(st.text(max_size=2), LINE, max_size=3),
    "first": LINE,
    "u32": st.integers(0, (1 << 32) - 1),
    "u64": UINT64,
    "weight": st.floats(width=32, allow_nan=False),
    "price": st.floats(allow_nan=False),
    "ok": st.booleans(),
    "raw": st.binary(max_size=3),
    "kinds": st.lists(st.integers(-2, 3), max_size=3),
    "i32": INT32,
    "seen": st.dictionaries(UINT64, TIME, max_size=3),
}
PAID = st.fixed_dictionaries({}, optional={"card": st.text(max_size=3)}) | st.builds(
    lambda n: {"voucher": n}, INT32
)
TIMES = ("at", "took", "seen")  # a cut may make one that Spark has no number for
ORDERS = st.builds(
    lambda fields, paid: fields | paid, st.fixed_dictionaries({}, optional=FIELDS), PAID
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.none() | ORDERS, max_size=4), st.integers(0, 4))
def test_what_was_read_is_written_as_the_same_bytes(orders: list[Any], start: int) -> None:
    values = [
        None if each is None else ORDER.type(**each).SerializeToString(deterministic=True)
        for each in orders
    ]
    found = read(ORDER, binaries(values))
    found.validate(full=True)
    assert write(ORDER, found).to_pylist() == values
    # Of a part of an array, too.
    assert write(ORDER, found.slice(start, 2)).to_pylist() == values[start : start + 2]


@settings(max_examples=examples(60), deadline=None)
@given(ORDERS, st.integers(0, 60), st.binary(max_size=3))
def test_a_null_is_what_the_library_can_not_read(order: Any, cut: int, more: bytes) -> None:
    timeless = {name: value for name, value in order.items() if name not in TIMES}
    raw = ORDER.type(**timeless).SerializeToString()[:cut] + more
    try:
        ORDER.type.FromString(raw)
        is_read = True
    except DecodeError:
        is_read = False
    assert read(ORDER, binaries([raw]))[0].is_valid == is_read


@settings(max_examples=examples(100), deadline=None)
@given(ORDERS, st.binary(max_size=8))
def test_the_scan_for_size_takes_whatever_the_library_takes(order: Any, more: bytes) -> None:
    raw = ORDER.type(**order).SerializeToString() + more
    try:
        ORDER.type.FromString(raw)
    except DecodeError:
        return
    shapes, cost_per_byte = limits._shapes(ORDER)
    assert limits._cost(raw, shapes, 1 << 40) <= len(raw) * cost_per_byte
