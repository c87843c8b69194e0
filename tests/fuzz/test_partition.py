"""murmur2 of a column equals Java's of each key; turns are fair and repeatable."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.errors import examples

from eos.encode.partitioner import Turn, by_key, in_runs, in_turn, partitions
from eos.encode.sink_spec import Partitioner
from eos.kafka.records.columns import blobs
from eos.kafka.records.murmur2 import murmur2

pytestmark = pytest.mark.usefixtures("each_library")


def reference(key: bytes) -> int:
    """org.apache.kafka.common.utils.Utils.murmur2, word by word, as an unsigned number."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    rest = key[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


keys = st.lists(
    st.one_of(st.none(), st.binary(max_size=24), st.binary(min_size=100, max_size=400)),
    max_size=150,
)


@settings(max_examples=examples(300), deadline=None)
@given(keys=keys, before=st.integers(0, 3))
def test_a_column_of_keys_hashes_as_key_by_key(keys: list[bytes | None], before: int) -> None:
    column = blobs(pa.array([b"abc"] * before + keys, pa.binary()).slice(before), "key")
    found = murmur2(column.data, column.offsets[:-1], np.diff(column.offsets))
    assert found.tolist() == [reference(key or b"") for key in keys]


def test_a_key_of_many_thousand_bytes_hashes_like_any_other() -> None:
    key = random.Random(5).randbytes(300_003)
    column = blobs(pa.array([b"short", key, b""], pa.binary()), "key")
    found = murmur2(column.data, column.offsets[:-1], np.diff(column.offsets))
    assert found.tolist() == [reference(b"short"), reference(key), reference(b"")]


@settings(max_examples=examples(100), deadline=None)
@given(keys=keys, count=st.integers(1, 300), first=st.integers(0, 300))
def test_keyed_records_ignore_the_turn_and_the_company(keys, count: int, first: int) -> None:
    column = blobs(pa.array(keys, pa.binary()), "key")
    sizes = np.full(len(keys), 100)
    turn = Turn(first)
    chosen = partitions(column, sizes, count, 1 << 20, Partitioner.KEY, turn)
    assert all(0 <= partition < count for partition in chosen)
    for key, partition in zip(keys, chosen.tolist(), strict=True):
        if key is not None:
            assert partition == (reference(key) & 0x7FFFFFFF) % count
    assert by_key(column, count).tolist() == [
        (reference(key or b"") & 0x7FFFFFFF) % count for key in keys
    ]


@settings(max_examples=examples(200), deadline=None)
@given(
    sizes=st.lists(st.integers(0, 200_000), min_size=1, max_size=200),
    count=st.integers(1, 50),
    bytes_max=st.integers(1000, 1 << 20),
    first=st.integers(0, 50),
)
def test_runs_take_the_partitions_in_turn_and_leave_none_out(sizes, count, bytes_max, first):
    turn = Turn(first)
    chosen = in_runs(np.array(sizes), count, bytes_max, turn)
    changes = chosen[np.flatnonzero(np.diff(chosen, prepend=-1))]
    assert chosen[0] == first % count
    if count > 1:
        assert changes.tolist() == [(first + run) % count for run in range(len(changes))]
        assert turn.next == first + len(changes)  # the next chunk goes on where this one ended
    again = in_runs(np.array(sizes), count, bytes_max, Turn(first))
    assert chosen.tolist() == again.tolist()


@given(rows=st.integers(0, 500), count=st.integers(1, 50), first=st.integers(0, 50))
def test_round_robin_is_even_to_the_record(rows: int, count: int, first: int) -> None:
    turn = Turn(first)
    load = Counter(dict.fromkeys(range(count), 0))
    for part in (rows // 3, rows - rows // 3):  # two chunks: the turn goes on
        load.update(in_turn(part, count, turn).tolist())
    assert max(load.values()) - min(load.values()) <= 1
