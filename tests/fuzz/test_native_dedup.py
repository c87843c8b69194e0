"""The native library reads stamps, numbers ids and computes crc32 as Arrow, numpy and zlib do."""

from __future__ import annotations

import zlib
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from support.errors import examples

from eos.dedup import header_stamps
from eos.dedup.crc32 import crc32_of
from eos.dedup.native_stamps import native_stamps
from eos.dedup.producer_index import ProducerIndex
from eos.native import library

COLLIDES = 0  # with this seed, all ids have the same hash
LENGTHS = [0, 1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 1000, 1 << 16]
PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])

short = st.binary(max_size=3)
blobs = st.one_of(
    short,
    st.builds(
        lambda start, size, end: start + b"i" * size + end, short, st.sampled_from(LENGTHS), short
    ),
)
columns = st.lists(st.one_of(st.none(), blobs), max_size=40)
plain = st.integers(0, 10**18 - 1).map(lambda number: b"%d" % number)
ODD = [b"", b"-1", b"+7", b" 8", b"9\n", b"1.0", b"x", b"0" * 19, b"9" * 19, b"\xff", b"/", b":"]
odd = st.sampled_from(ODD)
names = st.sampled_from([None, "p", "e", "s", "pp", "", "header-long-name", "\u00e9"])


@st.composite
def headers(draw, numbers):
    values = st.one_of(st.none(), blobs, numbers)
    name = st.tuples(names, values)
    stamp = st.tuples(blobs, numbers, numbers).map(lambda s: [*zip("pes", s, strict=True)])
    row = st.one_of(st.none(), stamp, stamp, st.lists(name, max_size=6))
    rows = draw(st.lists(row, max_size=20))
    before = draw(st.lists(row, max_size=2))
    made = pa.array([*before, *rows, *before], pa.list_(PAIR))
    return made.slice(len(before), len(rows))


@settings(max_examples=examples(300), deadline=None)
@given(st.data(), st.sampled_from([("p", "e", "s"), ("e", "e", "p"), ("", "\u00e9", "pp")]))
def test_stamps_are_those_of_arrow(data, wanted):
    # A single odd number lets Arrow read all of them. So an example has odd ones of one kind.
    numbers = data.draw(st.sampled_from([plain, st.one_of(plain, st.just(data.draw(odd)))]))
    column = data.draw(headers(numbers))
    seen = []

    def noticed(*arguments):
        seen.append(native_stamps(*arguments))
        return seen[-1]

    with patch.object(header_stamps, "native_stamps", noticed):
        found = header_stamps.stamps(column, wanted)
    event("by Arrow" if seen == [None] else "by the library")
    with patch.object(library, "load", lambda: None):
        slow = header_stamps.stamps(column, wanted)
    for mine, other in zip(found, slow, strict=True):
        mine.validate(full=True)
        assert mine.type == other.type
        assert mine.null_count == other.null_count
        assert mine.to_pylist() == other.to_pylist()


@pytest.mark.parametrize("text", ODD)
def test_arrow_reads_all_other_numbers(text):
    given = pa.array([[("p", b"id"), ("e", b"1"), ("s", text)]], pa.list_(PAIR))
    found = header_stamps.stamps(given, ("p", "e", "s"))
    wanted = header_stamps.numbers(pa.array([text], pa.binary()))
    assert [each.to_pylist() for each in found] == [[b"id"], [1], wanted.to_pylist()]


def test_plain_stamps_are_read_by_the_library():
    row = [("x", b""), ("p", b"id"), ("e", b"0"), ("s", b"9" * 18)]
    given = pa.array([row, row[:2], None], pa.list_(PAIR))
    with patch.object(header_stamps, "numbers", wraps=header_stamps.numbers) as parsed:
        found = [each.to_pylist() for each in header_stamps.stamps(given, ("p", "e", "s"))]
    assert parsed.called == (library.load() is None)
    assert found == [[b"id", b"id", None], [0, None, None], [10**18 - 1, None, None]]


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(columns, max_size=5),
    st.lists(blobs, max_size=9, unique=True),
    st.sampled_from([COLLIDES, 1, 0x9E3779B97F4A7C15]),
)
@example([[b"%d" % n for n in range(700)], [b"%d" % n for n in range(650, 800)]], [b"5"], 1)
def test_ids_have_the_same_numbers(chunks, known, seed):
    mine, other = ProducerIndex(seed), ProducerIndex(seed)
    places: dict[bytes, int] = {}
    for at, chunk in enumerate(chunks):
        given = pa.array([b"before", *chunk], pa.binary()).slice(1)
        wanted = [places.get(each, -1) for each in chunk]
        assert numbers(mine, other, "find", given) == wanted
        for each in chunk:
            if each is not None:
                places.setdefault(each, len(places))
        wanted = [places.get(each, -1) for each in chunk]
        assert numbers(mine, other, "add", given) == wanted
        if at == 1:  # as a state file is added between chunks
            for each in (mine, other):
                each.extend(pa.array([i for i in known if i not in places], pa.binary()))
            for each in known:
                places.setdefault(each, len(places))
        assert mine.ids.to_pylist() == other.ids.to_pylist() == list(places)
    large = pa.chunked_array([pa.array(list(places), pa.large_binary())])
    assert numbers(mine, other, "find", large) == list(range(len(places)))


def test_of_two_known_ids_the_last_counts():
    """A damaged state file: both ways have the same result."""
    mine, other = ProducerIndex(), ProducerIndex()
    for each in (mine, other):
        each.extend(pa.array([b"a", b"b", b"a"], pa.binary()))
    assert numbers(mine, other, "add", pa.array([b"b", b"c", b"a"], pa.binary())) == [1, 3, 2]


def numbers(mine, other, what, ids):
    """The numbers by the library, which must be those by Arrow."""
    found = getattr(mine, what)(ids).tolist()
    with patch.object(library, "load", lambda: None):
        assert getattr(other, what)(ids).tolist() == found
    return found


@settings(max_examples=examples(200), deadline=None)
@given(columns)
@example([b"123456789", None, b""])
def test_crcs_are_those_of_zlib(texts):
    given = pa.array([b"before", *texts], pa.binary()).slice(1)
    wanted = [zlib.crc32(each or b"") for each in texts]
    assert crc32_of(given).tolist() == wanted
    with patch.object(library, "load", lambda: None):
        assert crc32_of(given).tolist() == wanted
