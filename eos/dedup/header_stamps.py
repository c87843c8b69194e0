"""How does a Python task read stamps from record headers, without SQL in the JVM?

A stamp is a record's producer id, epoch and sequence. The task has read the records from Kafka, as
Arrow columns with a list of (key, value) header structs per record. The result equals that of the
SQL in `StampRules.columns` exactly.

Every Python worker imports this module, so it must not load pyspark.sql or the configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.arrow import scalar_of, values_of
from eos.dedup.native_stamps import native_stamps
from eos.native import library
from eos.producers.sequences import Ints

# Spark strips these characters (spaces, control characters) from a text before it parses a number.
_BLANK = r"[\x00-\x20\x7f]*"
_NUMBER = rf"^{_BLANK}([+-]?)0*([0-9]{{1,19}}){_BLANK}$"


def stamps(headers: Any, names: Sequence[str]) -> tuple[Any, Any, Any]:
    """Return id, epoch and sequence of each record, from the headers with these names.

    They are null if the header is missing; epoch and sequence also if they are no whole number."""
    bounds = values_of(headers.offsets)
    pairs = headers.values.slice(bounds[0], bounds[-1] - bounds[0])
    keys, values = (part.cast(pa.binary()) for part in pairs.flatten())
    native = library.load()
    if native is not None:
        found = native_stamps(native, bounds - bounds[0], keys, values, names)
        if found is not None:
            return found
    producer, epoch, sequence = _values(bounds, keys, values, names)
    return producer, numbers(epoch), numbers(sequence)


def _values(bounds: Ints, keys: Any, values: Any, names: Sequence[str]) -> Iterator[Any]:
    """Yield, for each name, the value of each record's last header with that name."""
    rows = len(bounds) - 1
    row = np.repeat(np.arange(rows), np.diff(bounds))
    for name in names:
        found = np.flatnonzero(values_of(pc.equal(keys, scalar_of(name.encode(), pa.binary()))))
        value = np.full(rows, -1)
        value[row[found]] = found  # the last of equal names counts
        yield values.take(_or_null(value))


def _or_null(indexes: Any) -> Any:
    """Return the indexes as an Arrow array, with null in place of negative ones."""
    validity = pa.py_buffer(np.packbits(indexes >= 0, bitorder="little"))
    return pa.Array.from_buffers(pa.int64(), len(indexes), [validity, pa.py_buffer(indexes)])


def numbers(texts: Any) -> Any:
    """Parse texts exactly as Spark's `try_cast(CAST(... AS STRING) AS BIGINT)` does."""
    is_number = pc.match_substring_regex(texts, _NUMBER)
    digits = pc.replace_substring_regex(texts, _NUMBER, r"\1\2")
    digits = pc.if_else(is_number, digits, None).cast(pa.string())
    found = pc.replace_substring_regex(digits, r"^\+", "").cast(pa.decimal128(20))
    least, most = (pa.scalar(each, pa.decimal128(20)) for each in (-(2**63), 2**63 - 1))
    fits = pc.and_(pc.greater_equal(found, least), pc.less_equal(found, most))
    return pc.if_else(fits, found, None).cast(pa.int64())
