"""Stamps that `eos verify` reads out of record batches: those that dedup reads."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from eos.dedup.header_stamps import numbers
from eos.dedup.policy import Policy
from eos.dedup.stamp_columns import StampPlace, StampRules
from eos.kafka.compression_type import Codec
from eos.kafka.records.batch_headers import HEADER_BYTES
from eos.kafka.records.record_batch import Columns, encode
from eos.producers.state import Rules
from eos.verify.records import parsed
from eos.verify.stamps import Stamps, hash_of, stamps


@pytest.mark.parametrize("codec", [Codec.NONE])
def test_stamps_are_read_as_dedup_reads_them(codec):
    """The last header of a name, a path in JSON, and the key; what can't be meant is left out."""
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    rows = [
        ([("e", b"9"), ("e", b"1")], b'{"m": {"n": 7}}'),
        ([("e", b" +2 ")], b'{"m": {"n": "8"}}'),
        ([("e", b"-1")], b'{"m": {"n": 9}}'),  # negative
        ([("e", b"1.0")], b'{"m": {"n": 9}}'),  # not whole
        ([("e", b"3")], b'{"m": {"n": 9.5}}'),
        ([("e", None)], b'{"m": {"n": 9}}'),
        ([("f", b"1")], b'{"m": {"n": 9}}'),
        ([("e", b"4")], b"no json"),
        ([("e", b"%d" % 2**62)], b'{"m": {"n": 9}}'),
        ([("e", b"5")], b'{"m": {"n": 9}}'),
    ]
    keys = [b"k%d" % at for at in range(9)] + [None]
    headers = [[{"key": name, "value": value} for name, value in each] for each, _ in rows]
    columns = Columns(
        key=pa.array(keys, pa.binary()),
        value=pa.array([value for _, value in rows], pa.binary()),
        headers=pa.array(headers, pa.list_(pair)),
    )
    payload = bytes(encode(columns, codec, 0).blob[HEADER_BYTES:])
    records, deltas = parsed([payload, payload], [10, 10])
    assert deltas.tolist() == [*range(10), *range(10)]
    assert parsed([payload[:-1]], [10]) is None
    rules = StampRules(
        StampPlace("key"), StampPlace("header", "e"), StampPlace("value", "m.n"), Policy(Rules(), 1)
    )
    found = stamps(records, np.arange(100, 120), rules)
    assert found.offset.tolist() == [100, 101, 110, 111]
    assert found.epoch.tolist() == [1, 2, 1, 2]
    assert found.sequence.tolist() == [7, 8, 7, 8]
    assert found.producer.tolist() == [hash_of("k0"), hash_of("k1")] * 2


def stamped(values: list[bytes], place: StampPlace, headers: list | None = None) -> Stamps:
    """The stamps of records whose three parts all are in the same place."""
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    columns = Columns(
        key=pa.nulls(len(values), pa.binary()),
        value=pa.array(values, pa.binary()),
        headers=pa.array(headers or [[]] * len(values), pa.list_(pair)),
    )
    payload = bytes(encode(columns, Codec.NONE, 0).blob[HEADER_BYTES:])
    records, offsets = parsed([payload], [len(values)])
    return stamps(records, offsets, StampRules(place, place, place, Policy(Rules(), 1)))


def test_numbers_are_those_that_dedup_reads():
    """Such as the terminating NUL of a C program, and zeros in front."""
    texts = [
        b"5\x00",
        b"5\x0b",
        b"\x1f7",
        b"5\x7f",
        b"\t+6 ",
        b"0" * 50 + b"8",
        b"",
        b"\xa05",
        b"5 5",
    ]
    headers = [[{"key": "n", "value": text}] for text in texts]
    found = stamped([b""] * len(texts), StampPlace("header", "n"), headers)
    wanted = numbers(pa.array(texts, pa.binary())).to_pylist()
    assert wanted == [5, 5, 7, 5, 6, 8, None, None, None]
    read = dict(zip(found.offset.tolist(), found.sequence.tolist(), strict=True))
    assert read == {at: number for at, number in enumerate(wanted) if number is not None}


def test_a_json_field_is_the_one_that_spark_reads():
    values = {
        b'{"n": null, "n": 4, "n": 5}': 4,  # the first that is not null
        b'{"m": {"x": 1}, "m": {"n": 3}, "m": {"n": 9}}': None,  # not at the top
        b'{"n": "7"}': 7,
        b'{"n": {"a": 1}}': None,
        b'{"n": ' + b"[" * 100_000 + b"]" * 100_000 + b"}": None,
        b"[" * 100_000: None,
        '{"n": 5}'.encode("utf-16"): None,
        b'{"n": 6, "\xff": 1}': 6,
    }
    found = stamped(list(values), StampPlace("value", "n"))
    read = dict(zip(found.offset.tolist(), found.sequence.tolist(), strict=True))
    assert read == {at: n for at, n in enumerate(values.values()) if n is not None}
    nested = stamped(list(values)[1:2], StampPlace("value", "m.n"))
    assert nested.sequence.tolist() == [3]


def test_an_id_that_is_a_json_object_is_spelled_as_it_was_sent():
    value = '{"n": 1, "id": {"a": [1.5, "\u00e9", true], "a": null}}'.encode()
    pair = StampPlace("value", "id"), StampPlace("value", "n"), StampPlace("value", "n")
    nothing = pa.nulls(1, pa.binary())
    blob = encode(Columns(key=nothing, value=pa.array([value], pa.binary())), Codec.NONE, 0).blob
    records, offsets = parsed([bytes(blob[HEADER_BYTES:])], [1])
    found = stamps(records, offsets, StampRules(*pair, Policy(Rules(), 1)))
    assert found.producer.tolist() == [hash_of('{"a":[1.5,"\u00e9",true],"a":null}')]
