"""Stamps on their way to the validating tasks: cut by shard, bounded, packed and unpacked."""

from __future__ import annotations

import itertools
import pickle
import random
import zlib

import pyarrow as pa
import pytest
from support.dedup import Row, Sent, policy, stamps, versions_in

from eos.dedup import stamp_shards
from eos.dedup.buckets import SHARDS
from eos.dedup.stamp_shards import (
    STAMPS,
    Gather,
    chunks,
    schema,
    shards_of,
    split_by_shard,
    unpacked,
)

ONE = schema(is_of_one_topic=True)


def ids(*lengths):
    """One of each length, of any bytes."""
    made = random.Random(str(lengths))
    return [made.randbytes(length) for length in lengths]


@pytest.mark.parametrize(
    "given",
    [
        [],
        [b""],
        [None],
        ids(1, 2, 3, 0, 7, 64, 65, 63, 1000, 0, 200_000),
        ids(*[13] * 50),
        [*ids(*range(90)), None, *ids(5, 5)],
        ids(*[70] * 5),
    ],
)
def test_a_shard_is_crc32_of_the_id(given):
    """Equal to Spark's crc32, by which existing files were made. Null ids have the first shard."""
    wanted = [zlib.crc32(each or b"") % SHARDS for each in given]
    array = pa.array(given, pa.binary())
    assert shards_of(array).tolist() == wanted
    # A part of an array begins somewhere in its buffers.
    around = pa.array([b"before", *given, None, b"after"], pa.binary())
    assert shards_of(around.slice(1, len(given))).tolist() == wanted


def read(partition, count, topic="t", start=0):
    """Stamps of one partition, in its order, some of them of nobody."""
    rows = []
    for at in range(start, start + count):
        who = None if at % 11 == 7 else b"producer-%d" % (at % 23)
        rows.append(Row(at, Sent(partition, who, None if at % 13 == 5 else at % 3, at)))
    return stamps(rows, [topic] * count)


def in_batches(batch, size):
    return iter([batch.slice(at, size) for at in range(0, batch.num_rows, size)])


def by_shard(parts):
    found = {}
    for number, part in parts:
        found.setdefault(number, []).append(part)
    return {number: pa.Table.from_batches(own).combine_chunks() for number, own in found.items()}


def wanted_of(batch):
    """Each shard's rows, in their order."""
    found = {}
    for row in batch.to_pylist():
        found.setdefault(zlib.crc32(row["producer"] or b"") % SHARDS, []).append(row)
    return found


@pytest.mark.parametrize("rows_max", [1, 7, 100, 1 << 17])
def test_all_stamps_arrive_in_their_order(monkeypatch, rows_max):
    monkeypatch.setattr(stamp_shards, "CHUNK_ROWS_MAX", rows_max)
    batch = read(3, 250)
    packed = list(Gather(STAMPS)(in_batches(batch, 40)))
    for each in packed:
        numbers = each.column(0).to_pylist()
        assert numbers == sorted(set(numbers))  # a row for each shard that a chunk has
    found = by_shard(unpacked(iter(packed), STAMPS))
    assert {number: own.to_pylist() for number, own in found.items()} == wanted_of(batch)
    # And where one task has all of them.
    parts = stamp_shards.sorted_by_shard(in_batches(batch, 40), STAMPS)
    assert [number for number, _ in parts] == sorted(number for number, _ in parts)
    assert {n: own.to_pylist() for n, own in by_shard(parts).items()} == wanted_of(batch)


def test_a_chunk_is_bounded_by_rows_and_by_bytes(monkeypatch):
    batch = read(0, 100)
    monkeypatch.setattr(stamp_shards, "CHUNK_ROWS_MAX", 30)
    counts = [each.num_rows for each in chunks(in_batches(batch, 8), STAMPS)]
    assert counts == [24, 24, 24, 28]
    # One of Spark's batches that has more rows is cut up.
    assert [each.num_rows for each in chunks(iter([batch]), STAMPS)] == [30, 30, 30, 10]
    large = stamps([Row(n, Sent(0, bytes(1000), 0, n)) for n in range(20)])
    monkeypatch.setattr(stamp_shards, "CHUNK_BYTES_MAX", 5000)
    counts = [each.num_rows for each in chunks(in_batches(large, 2), STAMPS)]
    assert counts == [4] * 5
    monkeypatch.setattr(stamp_shards, "CHUNK_BYTES_MAX", 10)  # one batch is the least
    counts = [each.num_rows for each in chunks(in_batches(large, 2), STAMPS)]
    assert counts == [2] * 10


def test_without_rows_nothing_is_packed():
    nothing = read(0, 0)
    assert list(Gather(STAMPS)(iter([]))) == []
    assert list(Gather(STAMPS)(iter([nothing, nothing]))) == []
    assert stamp_shards.sorted_by_shard(iter([nothing]), STAMPS) == []
    assert list(split_by_shard(nothing)) == []
    (packed,) = Gather(STAMPS)(iter([nothing, read(0, 1), nothing]))
    assert [part.num_rows for _, part in unpacked(iter([packed]), STAMPS)] == [1]


def test_the_same_rows_make_the_same_bytes():
    """A task that runs again: Spark compares sums of what it shuffles."""
    batch = read(0, 500)
    gathered = pickle.loads(pickle.dumps(Gather(STAMPS)))
    first, second = (list(each(in_batches(batch, 50))) for each in (gathered, Gather(STAMPS)))
    assert first == second
    # Whatever the batches were that they came in.
    assert list(gathered(in_batches(batch, 7))) == first


def test_a_packed_row_has_no_more_than_its_own_rows():
    (packed,) = Gather(STAMPS)(iter([read(0, 10_000)]))
    sizes = [len(blob.as_buffer()) for blob in packed.column(1)]
    own = sum(part.nbytes for _, part in unpacked(iter([packed]), STAMPS))
    assert own <= sum(sizes) < own + 1000 * len(sizes)


def test_rows_have_a_topic_column_only_if_there_are_several_topics():
    batch = pa.RecordBatch.from_arrays(read(0, 9).columns[:4], schema=ONE)
    found = by_shard(unpacked(Gather(ONE)(iter([batch])), ONE))
    assert {number: own.to_pylist() for number, own in found.items()} == wanted_of(batch)
    assert "topic" not in ONE.names
    assert STAMPS.names == [*ONE.names, "topic"]


def test_offsets_of_64_bits_are_accepted():
    """`spark.sql.execution.arrow.useLargeVarTypes`: on the way in, and of the packed rows."""
    batch = read(0, 100)
    large = {pa.binary(): pa.large_binary(), pa.string(): pa.large_string()}
    columns = [each.cast(large.get(each.type, each.type)) for each in batch.columns]
    packed = Gather(STAMPS)(iter([pa.RecordBatch.from_arrays(columns, STAMPS.names)]))
    wide = (
        pa.RecordBatch.from_arrays([shard, blob.cast(pa.large_binary())], ["shard", "blob"])
        for shard, blob in (each.columns for each in packed)
    )
    assert {n: own.to_pylist() for n, own in by_shard(unpacked(wide, STAMPS)).items()} == (
        wanted_of(batch)
    )


def test_packed_and_sorted_stamps_get_the_same_verdicts(tmp_path, monkeypatch):
    """Two topics, a task for each partition, in either order, or one for all; small chunks or one:
    the same reports."""
    logs = [
        read(partition, 60 * (partition + 1), topic) for topic in ("a", "b") for partition in (0, 1)
    ]
    said = []
    for rows_max, order in itertools.product((5, 1 << 17), (logs, logs[::-1])):
        monkeypatch.setattr(stamp_shards, "CHUNK_ROWS_MAX", rows_max)
        opened = versions_in(tmp_path / str(len(said)), policy(window=9)).begin("")
        packed = [row for log in order for row in Gather(STAMPS)(in_batches(log, 16))]
        parts = sorted(unpacked(iter(packed), STAMPS), key=lambda part: part[0])
        opened.stage.validate(parts)
        said.append(summary_of(opened))
        opened = versions_in(tmp_path / f"{len(said)}-once", policy(window=9)).begin("")
        list(opened.stage.at_once(batch for log in order for batch in in_batches(log, 16)))
        said.append(summary_of(opened))
    assert all(each == said[0] for each in said)
    counts = {(topic, n): 60 * (n + 1) for topic in ("a", "b") for n in (0, 1)}
    assert said[0][0] == counts


def summary_of(opened):
    files = {"files", "notes"}  # they have names of their own
    reports = {
        home: {name: each for name, each in report.items() if name not in files}
        for home, report in opened.reports().items()
    }
    return dict(opened.lookup().counts), reports
