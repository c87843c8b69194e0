"""The native library encodes to the same bytes as numpy: any columns, in any order of targets."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.errors import examples, raises

from eos.encode.grouping import grouped
from eos.encode.sink_spec import Partitioner, SinkSpec
from eos.encode.split import split
from eos.encode.stage import EncodeStage
from eos.errors import RecordRefusedError
from eos.kafka.compression_type import Codec
from eos.kafka.records.columns import Columns
from eos.kafka.records.murmur2 import murmur2, numpy_murmur2
from eos.kafka.records.record_batch import encode, encode_spans
from eos.kafka.records.sizes import layout
from eos.kafka.target_partitions import Targets
from eos.native import library

BASE_MS = 1_700_000_000_000
PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])
BYTES = st.sampled_from([pa.binary(), pa.large_binary()])
TEXT = st.sampled_from([pa.string(), pa.large_string()])
LISTS = st.sampled_from([pa.list_(PAIR), pa.large_list(PAIR)])

text = st.text("ab\u00e9", max_size=20)
blob = st.one_of(
    st.none(),
    text.map(str.encode),
    st.sampled_from([0, 6, 7, 8, 9, 15, 16, 17, 63, 64, 65, 8191, 8192]).map(lambda n: b"z" * n),
)
pair = st.tuples(text, blob)
header_list = st.one_of(st.none(), st.lists(pair, max_size=4), st.just([("", None)] * 70))
moment = st.one_of(st.none(), st.integers(-(2**62), 2**62), st.integers(BASE_MS - 70, BASE_MS + 70))
row = st.tuples(blob, blob, header_list, moment)


@st.composite
def tables(draw: st.DrawFn) -> Columns:
    """Columns of any types that are accepted, perhaps a slice out of longer ones."""
    rows = draw(st.lists(row, min_size=1, max_size=60))
    before, after = draw(st.integers(0, 3)), draw(st.integers(0, 1))
    padded = [(b"junk", b"junk", [("junk", b"junk")], 1)] * before + rows
    padded += [(None, None, None, None)] * after
    keys, values, lists, times = zip(*padded, strict=True)
    is_text = draw(st.booleans())
    key = pa.array(
        keys if not is_text else [k and k.decode() for k in keys], draw(TEXT if is_text else BYTES)
    )
    headers = pa.array(lists, draw(LISTS))
    if draw(st.booleans()):  # all names of a record, and then all values
        halves = [each and [k.encode() for k, _ in each] + [v for _, v in each] for each in lists]
        headers = pa.array(halves, pa.list_(pa.binary()))
    return Columns(
        draw(st.sampled_from([key, pa.nulls(len(padded))])),
        pa.array(values, draw(BYTES)),
        draw(st.sampled_from([headers, None, pa.nulls(len(padded))])),
        draw(st.sampled_from([pa.array(times, pa.int64()), None])),
    ).slice(before, before + len(rows))


def outcome(columns: Columns, targets: np.ndarray, bytes_max: int, codec: Codec) -> tuple:
    """All that the encode stage gets."""
    rows, groups, order = grouped(columns, targets, BASE_MS)
    spans = [span for _, *part in groups for span in split(rows, *part, bytes_max)]
    order = np.arange(len(columns)) if order is None else order
    encoded = encode_spans(rows, spans, codec)
    times = None if rows.timestamps is None else rows.timestamps.tolist()
    return groups, order.tolist(), spans, encoded, rows.sizes.tolist(), times


@settings(max_examples=examples(500), deadline=None)
@given(tables(), st.data(), st.integers(70, 20_000), st.sampled_from(Codec))
def test_the_bytes_are_those_of_numpy(columns, data, bytes_max, codec) -> None:
    target = st.integers(3, data.draw(st.sampled_from([3, 5, 70])))
    count = len(columns)
    targets = np.array(data.draw(st.lists(target, min_size=count, max_size=count)), np.int64)
    native = outcome(columns, targets, bytes_max, codec)
    with patch.object(library, "load", lambda: None):
        assert outcome(columns, targets, bytes_max, codec) == native
        alone = encode(columns, codec, BASE_MS)
    assert encode(columns, codec, BASE_MS) == alone


def stage_rows(columns: Columns, times: list[int | None], unit: str) -> pa.RecordBatch:
    """Rows as the stage gets them, with a timestamp of some unit."""
    named = {"key": columns.key, "value": columns.value}
    if columns.headers is not None and not pa.types.is_null(columns.headers.type):
        named["headers"] = columns.headers
    named["time"] = pa.array(times, pa.int64())
    if unit != "integer":
        named["time"] = named["time"].cast(pa.timestamp(unit, "UTC"))
    return pa.RecordBatch.from_pydict(named)


@settings(max_examples=examples(200), deadline=None)
@given(
    tables(),
    st.lists(st.one_of(st.none(), st.integers(-(2**45), 2**45)), min_size=60, max_size=60),
    st.sampled_from(["integer", "s", "ms", "us", "ns"]),
    st.sampled_from(Partitioner),
    st.integers(1, 9),
    st.integers(300, 5000),
)
def test_the_stage_yields_the_same_rows(
    columns, times, unit, partitioner, count, bytes_max
) -> None:
    some = SinkSpec("orders", timestamp_column="time", partitioner=partitioner)
    targets = Targets.of({"before": (3, 1 << 20), "orders": (count, bytes_max)})
    stage = EncodeStage((some,), targets, 2, BASE_MS, chunk_rows_max=23, source_topic="t")
    rows = stage_rows(columns, times[: len(columns)], unit)

    def encoded() -> list[dict] | str:
        try:
            return [row for batch in stage.encode(iter([rows]), 5) for row in batch.to_pylist()]
        except RecordRefusedError as error:  # a record that is too large
            return str(error)

    native = encoded()
    with patch.object(library, "load", lambda: None):
        assert encoded() == native


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=50), st.integers(0, 3))
def test_the_hashes_are_those_of_numpy(keys, before) -> None:
    data = np.frombuffer(b"abc"[:before] + b"".join(keys), np.uint8)
    ends = before + np.cumsum([0, *map(len, keys)]).astype(np.int32)
    wanted = numpy_murmur2(data, ends[:-1], np.diff(ends))
    assert murmur2(data, ends[:-1], np.diff(ends)).tolist() == wanted.tolist()


@pytest.mark.usefixtures("each_library")
class TestRefused:
    """What both refuse."""

    def test_a_null_name_of_a_header(self) -> None:
        lists = pa.array([[("a", b"")], None, [(None, b"")]], pa.list_(PAIR))
        some = Columns(pa.nulls(3), pa.array([b""] * 3), lists)
        with raises("header_key_null"):
            layout(some, 0)
        layout(some.slice(0, 2), 0)  # the record with it is outside

    def test_a_header_that_is_null(self) -> None:
        lists = pa.array([[None]], pa.list_(PAIR))
        with raises("header_key_null"):
            layout(Columns(pa.nulls(1), pa.array([b""]), lists), 0)

    def test_half_a_header(self) -> None:
        some = Columns(pa.nulls(1), pa.array([b""]), pa.array([[b"k"]], pa.list_(pa.binary())))
        with pytest.raises(ValueError, match="different numbers"):
            layout(some, 0)


def test_a_key_outside_of_its_bytes_is_refused() -> None:
    one = np.array([1])
    data = np.zeros(4, np.uint8)
    if library.load() is not None:
        for starts, lengths in ((one, one * 4), (one * -1, one), (one, one * -1), (one * 9, one)):
            with pytest.raises(ValueError, match="outside"):
                murmur2(data, starts, lengths)
