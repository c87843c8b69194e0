"""Convert numbers and bytes to Arrow columns and back, in Python workers.

`pyarrow.array`, `pyarrow.scalar`, `empty_table` and `to_numpy` import pandas at their first call,
for any argument. In every worker that costs 40 MB of memory and a large part of the first task's
time. So neither this module nor the stages call them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# Spark types that Arrow expressions compute with, and their Arrow types.
TYPES: Mapping[str, Any] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
}


def array_of(values: Any, kind: Any) -> Any:
    """Return an Arrow array of integers or booleans without nulls. A numpy array of the right type
    is not copied."""
    if kind == pa.bool_():
        data = np.packbits(np.asarray(values, np.bool_), bitorder="little")
    else:
        # kind.to_pandas_dtype() is numpy's type, without pandas
        data = np.ascontiguousarray(values, kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(data)], null_count=0)


def binaries(values: Sequence[bytes]) -> Any:
    """Return an Arrow array of byte strings, which have at most 2 GB together."""
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    return pa.BinaryArray.from_buffers(pa.binary(), len(values), buffers, null_count=0)


def scalar_of(value: int | bytes, kind: Any) -> Any:
    return (array_of([value], kind) if isinstance(value, int) else binaries([value]))[0]


def text_of(value: str, count: int) -> Any:
    """Return a column of `count` rows that all have this text."""
    return pa.repeat(binaries([value.encode()]).view(pa.string())[0], count)


def longs(values: Any) -> Any:
    return array_of(values, pa.int64())


def values_of(array: Any, null: int = 0) -> Any:
    """Return the numbers or booleans of an Arrow array as a numpy array, with `null` in place of
    nulls."""
    if isinstance(array, pa.ChunkedArray):
        chunks = array.chunks or [pa.nulls(0, array.type)]
        return np.concatenate([values_of(each, null) for each in chunks])
    if array.null_count:
        array = pc.fill_null(array, scalar_of(null, array.type))
    data = array.buffers()[1] or b""
    if array.type == pa.bool_():
        every = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").astype(np.bool_)
    else:
        every = np.frombuffer(data, array.type.to_pandas_dtype())
    return every[array.offset : array.offset + len(array)]


def ints_of(array: Any, null: int = 0) -> npt.NDArray[np.int64]:
    """Return the numbers of an Arrow array as a numpy array of 64-bit integers, always a copy."""
    found: npt.NDArray[np.int64] = values_of(array, null).astype(np.int64)
    return found


def never_null(lists: Any) -> Any:
    """Return a list array with empty lists in place of nulls, which takes no copy."""
    if not lists.null_count:
        return lists
    return pa.ListArray.from_arrays(lists.offsets, lists.values, type=lists.type)


def one_array(column: Any) -> Any:
    """Return a chunked Arrow column as one array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks or [pa.nulls(0, column.type)])


def no_rows(schema: pa.Schema) -> pa.Table:
    return pa.Table.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)
