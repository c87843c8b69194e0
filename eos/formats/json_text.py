"""Write Arrow structs as JSON objects, in the Python tasks that encode records.

The bytes are those of Spark's `to_json` with the options of `spark/sink_columns.py`, except for
some numbers of type DOUBLE: they have the fewest digits that are read back as the same number. Java
before 19 writes a digit more in rare cases.

Every Python worker imports this module, so it loads neither pyspark nor the configuration.
"""

from __future__ import annotations

import ctypes
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.arrow import TYPES
from eos.kafka.records.native_rows import SourceColumn
from eos.native import library
from eos.native.memory import POOL
from eos.native.structs import NEEDS_ROOM, JsonWriter, WrittenColumn, address

# The Spark types that can be written, with the kinds of `json_write.c`.
KINDS = {
    "boolean": 0,
    "tinyint": 1,
    "smallint": 2,
    "int": 3,
    "bigint": 4,
    "double": 5,
    "string": 6,
}
_DECIMALS, _TEXTS = KINDS["double"], KINDS["string"]
_OF_TYPES = {TYPES[name]: kind for name, kind in KINDS.items()}
_NUMBER_BYTES = 24  # of most numbers; the memory grows if they are longer
_BYTES_MAX = (1 << 31) - 1


def json_objects(rows: Any, before: bytes = b"") -> Any:
    """Return the rows of a struct array as JSON objects, in an Arrow array of bytes.

    A null row stays null. `before` precedes each object."""
    native = library.load()
    assert native is not None, "asked by the caller"
    kept = [_Written(rows.field(at), _opening(rows.type, at)) for at in range(rows.type.num_fields)]
    columns = (WrittenColumn * len(kept))(*(each.struct for each in kept))
    offsets = np.empty(len(rows) + 1, np.int32)
    writer = JsonWriter(
        rows=len(rows),
        first_valid_bit=rows.offset,
        before=before,
        before_length=len(before),
        columns=columns,
        column_count=len(kept),
        offsets=address(offsets),
    )
    valid = rows.buffers()[0] if rows.null_count else None
    if valid is not None:
        writer.valid = valid.address
    capacity = len(rows) * (len(before) + 2) + sum(each.bytes_expected for each in kept) + 64
    while True:
        memory = POOL.lease(capacity)
        writer.data, writer.capacity = address(memory), capacity
        result = native.eos_json_write(ctypes.byref(writer))
        if result != NEEDS_ROOM:
            break
        capacity *= 2
    if result:
        raise ValueError(
            f"{len(rows)} JSON objects have more than {_BYTES_MAX} bytes, or a column is invalid"
        )
    data = pa.py_buffer(memory)
    bits = None if valid is None else pc.is_valid(rows).buffers()[1]
    buffers = [bits, pa.py_buffer(offsets), data]
    return pa.Array.from_buffers(pa.binary(), len(rows), buffers)


def _opening(kind: Any, at: int) -> bytes:
    """Return what is before a field's value: its name, and the comma after the field before."""
    name = json.dumps(kind.field(at).name, ensure_ascii=False)
    return f"{',' if at else ''}{name}:".encode()


class _Written:
    """A column that the library reads. `struct` is valid only as long as this object."""

    def __init__(self, array: Any, opening: bytes) -> None:
        kind = _OF_TYPES[array.type]
        self.struct = WrittenColumn(name=opening, name_length=len(opening), kind=kind)
        self.bytes_expected = len(array) * (len(opening) + _NUMBER_BYTES)
        self._kept: tuple[Any, ...] = (opening, array)
        if kind in (_DECIMALS, _TEXTS):
            # Arrow finds a number's shortest digits, and the library puts them into Java's form.
            texts = array.cast(pa.string()) if kind == _DECIMALS else array
            source = SourceColumn(texts, "json")
            self._kept = (opening, source)
            self.struct.texts = source.struct
            self.bytes_expected += int(source.struct.size) if kind == _TEXTS else 0
            return
        valid, values = array.buffers()
        width = array.type.bit_width
        self.struct.first_bit = array.offset if width == 1 else 0
        self.struct.values = values.address + (0 if width == 1 else array.offset * width // 8)
        if array.null_count:
            self.struct.valid, self.struct.first_valid_bit = valid.address, array.offset
