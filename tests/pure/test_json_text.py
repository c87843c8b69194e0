"""JSON objects that tasks write from Arrow columns, without Spark."""

from __future__ import annotations

import json
import math
import random
import struct

import pyarrow as pa
import pytest

from eos.formats.json_text import json_objects


def written(values: list, kind: pa.DataType) -> list[str]:
    """The text of each value, as the only field of its object."""
    rows = pa.StructArray.from_arrays([pa.array(values, kind)], names=["x"])
    found = json_objects(rows)
    found.validate(full=True)
    return [each.decode().removeprefix('{"x":').removesuffix("}") for each in found.to_pylist()]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (100.0, "100.0"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9999999.999, "9999999.999"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (-1e-7, "-1.0E-7"),
        (0.1 + 0.2, "0.30000000000000004"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (math.nan, '"NaN"'),
        (math.inf, '"Infinity"'),
        (-math.inf, '"-Infinity"'),
        (None, "null"),
    ],
)
def test_numbers_have_the_form_of_java(value: float | None, text: str) -> None:
    assert written([value], pa.float64()) == [text]


def test_random_numbers_are_read_back_as_they_were() -> None:
    chance = random.Random(1)
    values = [struct.unpack("<d", chance.randbytes(8))[0] for _ in range(20_000)]
    values = [each for each in values if math.isfinite(each)]
    assert [json.loads(each) for each in written(values, pa.float64())] == values


def test_whole_numbers_and_booleans() -> None:
    assert written([-(2**63), 2**63 - 1, 0, None], pa.int64()) == [
        "-9223372036854775808",
        "9223372036854775807",
        "0",
        "null",
    ]
    assert written([-128, 127], pa.int8()) == ["-128", "127"]
    assert written([-(2**15)], pa.int16()) == ["-32768"]
    assert written([2**31 - 1], pa.int32()) == ["2147483647"]
    assert written([True, False, None], pa.bool_()) == ["true", "false", "null"]


def test_texts_are_escaped_as_jackson_does() -> None:
    texts = [
        'a"b',
        "\\",
        "\b\t\n\f\r",
        "\x00\x1f",
        "\x7f\u00e9\u2028\U0001f600",
        "/",
        "",
        "long " * 5 + '"',
    ]
    assert written(texts, pa.string()) == [
        '"a\\"b"',
        '"\\\\"',
        '"\\b\\t\\n\\f\\r"',
        '"\\u0000\\u001F"',
        '"\x7f\u00e9\u2028\U0001f600"',
        '"/"',
        '""',
        '"long long long long long \\""',
    ]


def test_a_text_of_escapes_needs_six_times_the_room() -> None:
    assert written(["\x01" * 100_000], pa.string()) == ['"' + "\\u0001" * 100_000 + '"']


def test_rows_may_be_null_and_a_part_of_an_array() -> None:
    columns = [pa.array([1, 2, 3, 4]), pa.array(["a", None, "c", "d"]), pa.array([True] * 4)]
    rows = pa.StructArray.from_arrays(
        columns, names=['n"', "t", "b"], mask=pa.array([False, True, False, False])
    )
    found = json_objects(rows.slice(1), b"\0\x01")
    found.validate(full=True)
    assert found.to_pylist() == [
        None,
        b'\0\x01{"n\\"":3,"t":"c","b":true}',
        b'\0\x01{"n\\"":4,"t":"d","b":true}',
    ]
