"""JSON texts as Arrow columns, without Spark: of which schemas and records, with what values."""

from __future__ import annotations

import datetime as dt
import random
import struct
from decimal import Decimal
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    DateType,
    DecimalType,
    IntegerType,
    StringType,
    StructField,
)

from eos.formats.json_columns import JsonParser
from eos.formats.json_schema import JsonField, json_fields, left_of, parsed_of
from eos.native import library


def parsed(texts: list[bytes | None], *fields: JsonField) -> tuple[list, list[bytes | None]]:
    """The values of each field, and the texts that are left for Spark."""
    batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.binary())], names=["value"])
    found = JsonParser("value", fields).with_columns(batch)
    found.validate(full=True)
    assert found.column("value").equals(batch.column("value"))
    columns = [found.column(parsed_of("value", n)).to_pylist() for n in range(len(fields))]
    return columns, found.column(left_of("value")).to_pylist()


def test_each_type_has_its_values() -> None:
    values = {
        "boolean": (b"true", True),
        "tinyint": (b"-128", -128),
        "smallint": (b"32767", 32767),
        "int": (b"-2147483648", -(2**31)),
        "bigint": (b"-9223372036854775808", -(2**63)),
        "float": (b"0.25", 0.25),
        "double": (b"0.30000000000000004", 0.1 + 0.2),
        "decimal(10,2)": (b"-1.5", Decimal("-1.50")),
        "string": (b'"\\u00e9\\n\\ud83d\\ude00"', "\u00e9\n\U0001f600"),
        "date": (b'"2024-02-29"', dt.date(2024, 2, 29)),
        "timestamp": (
            b'"1969-12-31T23:59:59.5-01:00"',
            dt.datetime(1970, 1, 1, 0, 59, 59, 500_000, tzinfo=dt.timezone.utc),
        ),
    }
    fields = [JsonField(f"n{n}", kind) for n, kind in enumerate(values)]
    text = b", ".join(b'"n%d": %s' % (n, of) for n, (of, _) in enumerate(values.values()))
    columns, left = parsed([b"{%s}" % text, b"{}", None], *fields)
    assert left == [None, None, None]
    assert columns == [[value, None, None] for _, value in values.values()]


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b" ", b"{", b"[]", b"3", b"null", b"\xef\xbb\xbf{}", b"{} x", b'{"id": 1,}'),
        *(b'{"id": 1.0}', b'{"id": "1"}', b'{"id": 2147483648}', b'{"id": -0}', b'{"id": 01}'),
        *(b'{"id": 1, "id": 2}', b'{"i\\u0064": 1}', b'{"x": NaN}', b"{'id': 1}", b'{"id": [1]}'),
        *(b'{"x": "\xff"}', b'{"x": "\\ud83d"}', b'{"x": "\t"}', b'{"id": tru}', b'{"id": true}'),
        *(b'{"x": "\\x"}', b'{"x": ' + b"[" * 70 + b"]" * 70 + b"}", b'{"x": 1' + b"0" * 99 + b"}"),
    ],
)
def test_a_record_that_is_not_plain_is_left_for_spark(text: bytes) -> None:
    columns, left = parsed([b'{"id": 1}', text, b'{"id": 3}'], JsonField("id", "int"))
    assert left == [None, text, None]
    assert columns == [[1, None, 3]]


def test_a_record_without_a_required_field_is_left_for_spark() -> None:
    fields = JsonField("id", "int", is_required=True), JsonField("name", "string")
    texts: list[bytes | None] = [b'{"name": "x"}', b'{"id": null}', b'{"id": 1}', None]
    columns, left = parsed(texts, *fields)
    assert left == [*texts[:2], None, None]
    assert columns == [[None, None, 1, None], [None] * 4]


def test_doubles_are_the_nearest_ones() -> None:
    chance = random.Random(1)
    made = [
        *(repr(struct.unpack("<d", chance.randbytes(8))[0]) for _ in range(5000)),
        *(f"{chance.randrange(10**19)}e{chance.randint(-330, 310)}" for _ in range(20_000)),
        *(f"{chance.uniform(-999, 999):.{chance.randint(1, 17)}f}" for _ in range(5000)),
    ]
    texts = [text for text in made if "n" not in text]  # no nan and inf
    ((found,), left) = parsed([b'{"x": %s}' % t.encode() for t in texts], JsonField("x", "double"))
    bits = struct.Struct("<d").pack
    pairs = [(text, value) for text, value in zip(texts, found, strict=True) if value is not None]
    assert [text for text, value in pairs if bits(value) != bits(float(text))] == []
    assert left.count(None) == len(pairs) > len(texts) * 0.9


def test_any_number_of_rows_and_a_slice_of_them() -> None:
    texts: list[bytes | None] = [b'{"x": %d, "t": "%d"}' % (n, n) for n in range(100_000)]
    fields = JsonField("x", "int"), JsonField("t", "string"), JsonField("b", "boolean")
    (numbers, words, flags), left = parsed(texts, *fields)
    assert numbers == list(range(100_000))
    assert words == list(map(str, numbers))
    assert set(left) | set(flags) == {None}
    whole = pa.RecordBatch.from_arrays([pa.array(texts, pa.binary())], names=["value"])
    part = JsonParser("value", fields).with_columns(whole.slice(50_001, 7))
    assert part.column(parsed_of("value", 0)).to_pylist() == list(range(50_001, 50_008))
    assert parsed([], *fields) == ([[], [], []], [])


def test_without_the_library_everything_is_left_for_spark() -> None:
    with patch.object(library, "load", return_value=None):
        assert parsed([b'{"id": 1}', None], JsonField("id", "int")) == (
            [[None, None]],
            [b'{"id": 1}', None],
        )


def test_schemas_that_only_spark_can_parse() -> None:
    def fields(*types: object, metadata: dict | None = None) -> object:
        columns = [StructField(f"c{n}", each, metadata=metadata) for n, each in enumerate(types)]
        return json_fields(columns, ["c0"], has_old_times=False)

    assert fields(IntegerType(), DecimalType(10, 2), metadata={"comment": "x"}) == (
        JsonField("c0", "int", is_required=True),
        JsonField("c1", "decimal(10,2)"),
    )
    assert fields(ArrayType(IntegerType())) == "the column `c0` is of type array<int>"
    assert fields(DecimalType(38, 19)) == "the column `c0` is of type decimal(38,19)"
    assert fields(IntegerType(), metadata={"EXISTS_DEFAULT": "1"}) == (
        "the column `c0` has a default or a length"
    )
    assert fields() == "the schema has no columns"
    twice = [StructField("a", IntegerType()), StructField("a", StringType())]
    assert json_fields(twice, [], has_old_times=False) == "the column `a` is in the schema twice"
    old = json_fields([StructField("d", DateType())], [], has_old_times=True)
    assert old == "the column `d` is of type date"
