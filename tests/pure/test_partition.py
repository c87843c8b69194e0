"""Kafka's own vectors, long keys, and keyless records that don't crowd onto one partition."""

from __future__ import annotations

import time
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from eos.encode.partitioner import Turn, by_key, in_runs, partitions
from eos.encode.sink_spec import Partitioner
from eos.kafka.records.columns import blobs
from eos.kafka.records.murmur2 import murmur2

# From Kafka's UtilsTest.testMurmur2.
JAVA_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def hashes(keys: list[bytes]) -> list[int]:
    column = blobs(pa.array(keys, pa.binary()), "key")
    found = murmur2(column.data, column.offsets[:-1], np.diff(column.offsets))
    return found.view(np.int32).tolist()


@pytest.mark.parametrize("times", [1, 200])
def test_hashes_equal_javas(times: int) -> None:
    assert hashes(list(JAVA_VECTORS) * times) == list(JAVA_VECTORS.values()) * times


@pytest.mark.parametrize("key", JAVA_VECTORS)
def test_a_key_alone_hashes_as_in_company(key: bytes) -> None:
    assert hashes([key]) == [JAVA_VECTORS[key]]


def test_a_column_of_empty_keys_or_none_at_all() -> None:
    assert hashes([]) == []
    assert hashes([b"", b""]) == [275646681, 275646681]  # Utils.murmur2(new byte[0])


def test_a_partition_is_the_positive_hash_modulo_the_count() -> None:
    column = blobs(pa.array([b"21", b"foobar"], pa.binary()), "key")
    expected = [(hash_ & 0x7FFFFFFF) % 7 for hash_ in (-973932308, -790332482)]
    assert by_key(column, 7).tolist() == expected


def test_text_keys_are_partitioned_by_their_utf8_bytes() -> None:
    words = ["", "abc", "h\u00e9llo", "\u65e5\u672c"]
    text = blobs(pa.array(words, pa.string()), "key")
    raw = blobs(pa.array([word.encode() for word in words], pa.binary()), "key")
    assert by_key(text, 97).tolist() == by_key(raw, 97).tolist()


def test_one_long_key_among_short_ones_costs_its_own_bytes_only() -> None:
    def seconds(keys: list[bytes]) -> float:
        column = blobs(pa.array(keys, pa.binary()), "key")
        start = time.process_time()
        murmur2(column.data, column.offsets[:-1], np.diff(column.offsets))
        return time.process_time() - start

    short = [b"%d" % i for i in range(100_000, 150_000)]
    long = b"x" * 1_000_000
    alone = min(seconds(short) for _ in range(3))
    together = min(seconds([*short, long]) for _ in range(3))
    # Measured: 10 times. A round of numpy for every four bytes of the long key makes it 500.
    assert together < 100 * alone


def test_a_small_keyless_chunk_stays_in_one_run_and_the_next_moves_on() -> None:
    turn = Turn(3)
    assert set(in_runs(np.full(10, 100), 4, 1 << 20, turn).tolist()) == {3}
    assert set(in_runs(np.full(10, 100), 4, 1 << 20, turn).tolist()) == {0}


def test_a_large_keyless_chunk_reaches_every_partition_about_evenly() -> None:
    chosen = in_runs(np.full(50_000, 180), 16, 1 << 20, Turn(0))
    load = Counter(chosen.tolist())
    assert len(load) == 16
    assert max(load.values()) < 1.1 * min(load.values())


def test_keyless_runs_fit_into_a_record_batch() -> None:
    sizes = np.full(100_000, 180)
    chosen = in_runs(sizes, 2, 1 << 20, Turn(0))
    starts = [*np.flatnonzero(np.diff(chosen, prepend=-1)).tolist(), len(chosen)]
    assert max(np.diff(starts)) * (180 + 10) <= 1 << 20


def test_only_null_keys_take_turns_an_empty_key_is_a_key() -> None:
    column = blobs(pa.array([None, b"", None, b"k"], pa.binary()), "key")
    chosen = partitions(column, np.full(4, 10), 50, 1 << 20, Partitioner.KEY, Turn(7))
    assert chosen.tolist() == [7, by_key(column, 50)[1], 7, by_key(column, 50)[3]]


def test_round_robin_ignores_keys() -> None:
    column = blobs(pa.array([b"same"] * 5, pa.binary()), "key")
    chosen = partitions(column, np.full(5, 10), 3, 1 << 20, Partitioner.ROUND_ROBIN, Turn(2))
    assert chosen.tolist() == [2, 0, 1, 2, 0]
