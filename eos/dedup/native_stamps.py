"""Reading of stamps from record headers with the native library.

A stamp is a record's producer id, epoch and sequence. `header_stamps` does the same with Arrow.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from eos.kafka.records.native_rows import SourceColumn
from eos.native.structs import NOT_PLAIN, Field, Stamping, address
from eos.producers.sequences import Ints

_PARTS = 3  # id, epoch, sequence


def native_stamps(
    library: Any, lists: Ints, keys: Any, values: Any, names: Sequence[str]
) -> tuple[Any, Any, Any] | None:
    """Return id, epoch and sequence of each record. `lists` has the bounds of its headers.

    Return None if an epoch or sequence is not 1 to 18 digits: the caller must parse it then."""
    rows = len(lists) - 1
    columns = SourceColumn(keys, "headers"), SourceColumn(values, "headers")
    lists = np.ascontiguousarray(lists, np.int64)
    wanted = [np.frombuffer(name.encode(), np.uint8) for name in names]
    valid = np.empty((_PARTS, -(-rows // 8)), np.uint8)
    numbers = np.empty((_PARTS - 1, rows), np.int64)
    # The ids are a part of the values, so they fit. The caller combines batches, which frees this.
    offsets, data = np.empty(rows + 1, np.int32), np.empty(columns[1].struct.size, np.uint8)
    stamping = Stamping(
        rows=rows,
        lists=address(lists),
        name=columns[0].struct,
        value=columns[1].struct,
        wanted=(Field * _PARTS)(*(Field(address(name), len(name)) for name in wanted)),
        valid=(ctypes.c_void_p * _PARTS)(*map(address, valid)),
        id_offsets=address(offsets),
        id_data=address(data),
        id_bytes=len(data),
        numbers=(ctypes.c_void_p * _PARTS)(None, *map(address, numbers)),
    )
    result = library.eos_stamps(ctypes.byref(stamping))
    if result == NOT_PLAIN:
        return None
    if result:
        raise ValueError("the headers are no valid Arrow column")
    bitmaps = [
        pa.py_buffer(bits) if nulls else None
        for bits, nulls in zip(valid, stamping.nulls, strict=True)
    ]
    ids = [bitmaps[0], pa.py_buffer(offsets), pa.py_buffer(data[: offsets[-1]])]
    return (
        pa.Array.from_buffers(pa.binary(), rows, ids, null_count=stamping.nulls[0]),
        *(
            pa.Array.from_buffers(pa.int64(), rows, [bits, pa.py_buffer(part)], null_count=nulls)
            for bits, part, nulls in zip(bitmaps[1:], numbers, stamping.nulls[1:], strict=True)
        ),
    )
