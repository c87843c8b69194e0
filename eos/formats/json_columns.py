"""Parse JSON keys or values into Arrow columns, in the Python tasks that read Kafka.

The native library parses only records for which the result is certainly that of Spark's
`from_json`. The bytes of all other records are left for Spark, in a column of their own:
`eos.formats.expressions` parses these in SQL. So which records the library can parse decides only
how long it takes. Every Python worker imports this module, so it loads neither pyspark nor the
configuration.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.arrow import TYPES
from eos.formats.json_schema import JsonField, left_of, parsed_of
from eos.kafka.records.native_rows import SourceColumn
from eos.native import library
from eos.native.memory import POOL, layout
from eos.native.structs import JsonColumn, JsonReader, address

_TYPES: dict[str, Any] = {
    **TYPES,
    "float": pa.float32(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_TEXTS_MAX = 8  # texts of a batch have at most so many times the bytes of its records together
_FIRST_POWER, _LAST_POWER = -300, 300


@dataclass(frozen=True, slots=True)
class JsonParser:
    """Parser of the JSON objects in the column `source`. It can be pickled."""

    source: str
    fields: tuple[JsonField, ...]

    @property
    def columns(self) -> dict[str, str]:
        """Return the Spark types of the added columns by name."""
        kinds = {left_of(self.source): "BINARY"}
        for number, each in enumerate(self.fields):
            # Spark reads its own name for this type by the setting spark.sql.timestampType.
            kind = "TIMESTAMP_LTZ" if each.kind == "timestamp" else each.kind
            kinds[parsed_of(self.source, number)] = kind
        return kinds

    def with_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with the parsed columns, and the column of what is left for Spark."""
        left, columns = self._parsed(batch.column(self.source))
        names = [parsed_of(self.source, number) for number in range(len(columns))]
        return pa.RecordBatch.from_arrays(
            [*batch.columns, left, *columns],
            names=[*batch.schema.names, left_of(self.source), *names],
        )

    def _parsed(self, texts: Any) -> tuple[Any, list[Any]]:
        native = library.load()
        if native is None:
            return texts, [pa.nulls(len(texts), _arrow_type(each)) for each in self.fields]
        source = SourceColumn(texts, self.source)
        rows = len(texts)
        buffers = _Buffers(self.fields, rows, source.struct.size)
        powers = _powers()
        reader = JsonReader(
            source.struct,
            buffers.columns,
            len(self.fields),
            address(powers),
            _FIRST_POWER,
            len(powers) // 2,
            buffers.is_left,
        )
        if native.eos_json(ctypes.addressof(reader)):
            raise ValueError("an invalid column of JSON texts")
        if not reader.left:
            return pa.nulls(rows, pa.binary()), buffers.arrays()
        is_left = pa.Array.from_buffers(pa.bool_(), rows, [None, buffers.left_bits()])
        return pc.if_else(is_left, texts, pa.nulls(1, texts.type)[0]), buffers.arrays()


class _Buffers:
    """The memory of the parsed columns, as one block. It is freed with the last Arrow array."""

    def __init__(self, fields: tuple[JsonField, ...], rows: int, text_bytes: int) -> None:
        self._rows = rows
        self._types = [_arrow_type(each) for each in fields]
        texts = sum(each.kind == "string" for each in fields)
        # All texts of a record are shorter than the record. Unused pages take no memory.
        self._capacity = min(text_bytes, _TEXTS_MAX * text_bytes // max(1, texts))
        self._bits = rows // 8 + 1
        sizes = [self._bits]
        for each in self._types:
            is_text = each == pa.string()
            sizes += [4 * (rows + 1) if is_text else _size(each, rows), self._bits]
            sizes += [self._capacity if is_text else 0]
        self._starts, total = layout(tuple(sizes))
        lease = POOL.lease(total)
        self._block = pa.py_buffer(lease)
        first = address(lease)
        self.is_left = first
        self.columns = (JsonColumn * len(fields))()
        for number, each in enumerate(fields):
            of, valid, data = (first + start for start in self._starts[1 + 3 * number :][:3])
            column, name = self.columns[number], each.name.encode()
            column.name, column.name_length = name, len(name)
            column.kind, column.is_required = each.number, each.is_required
            column.precision, column.scale = each.digits
            column.valid = valid
            if each.kind == "string":
                column.offsets, column.data, column.capacity = of, data, self._capacity
            else:
                column.values = of

    def left_bits(self) -> Any:
        return self._block.slice(0, self._bits)

    def arrays(self) -> list[Any]:
        """Return the parsed columns as Arrow arrays, which keep the block."""
        return [self._array(number, kind) for number, kind in enumerate(self._types)]

    def _array(self, number: int, kind: Any) -> Any:
        column, rows = self.columns[number], self._rows
        of, valid, data = self._starts[1 + 3 * number :][:3]
        bits = self._block.slice(valid, self._bits) if column.nulls else None
        if kind == pa.string():
            ends = self._block.slice(of, 4 * (rows + 1))
            buffers = [bits, ends, self._block.slice(data, column.used)]
        else:
            buffers = [bits, self._block.slice(of, _size(kind, rows))]
        return pa.Array.from_buffers(kind, rows, buffers, null_count=column.nulls)


def _arrow_type(field: JsonField) -> Any:
    return pa.decimal128(*field.digits) if field.digits[0] else _TYPES[field.kind]


def _size(kind: Any, rows: int) -> int:
    return rows // 8 + 1 if kind == pa.bool_() else rows * kind.bit_width // 8


@functools.cache
def _powers() -> Any:
    """Return the upper 128 bits of each power of ten as two 64-bit numbers, the low half first.

    The bits are rounded down, and the highest one is set."""
    halves = []
    for exponent in range(_FIRST_POWER, _LAST_POWER + 1):
        if exponent >= 0:
            exact = 10**exponent << 128
        else:
            divisor = 10**-exponent
            exact = (1 << 128 + divisor.bit_length()) // divisor
        bits = exact >> exact.bit_length() - 128
        halves += [bits & (1 << 64) - 1, bits >> 64]
    return np.array(halves, np.uint64)
