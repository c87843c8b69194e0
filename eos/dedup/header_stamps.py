"""Stamps out of a record's headers, in a task that has them as they are written: one list of byte
strings, all keys and then as many values (`spark/sink_columns.py`). So the JVM need not look for
them.

What a header says is what `Dedup.columns` makes of it in SQL, to the letter.

Imported by every Python worker, so nothing here loads pyspark.sql or the configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.arrow import array_of, scalar_of, values_of

# No number of so many digits is too large for 64 bits.
_DIGITS_MAX = 18
# What Spark strips off a text before it looks for a number: spaces and control characters.
_BLANK = r"[\x00-\x20\x7f]*"
_NUMBER = rf"^{_BLANK}([+-]?)0*([0-9]{{1,19}}){_BLANK}$"


def stamps(headers: Any, names: Sequence[str]) -> tuple[Any, Any, Any]:
    """Id, epoch and sequence of each record: null where there is none, or no number."""
    producer, epoch, sequence = _values(headers, names)
    return producer, numbers(epoch), numbers(sequence)


def _values(headers: Any, names: Sequence[str]) -> Iterator[Any]:
    """Of each name the last header's value."""
    bounds = values_of(headers.offsets).astype(np.int64)
    items = headers.values.cast(pa.binary())
    counts = np.diff(bounds) >> 1
    row = np.repeat(np.arange(len(counts)), counts)
    before = np.cumsum(counts) - counts  # keys of the records before
    key = np.arange(len(row)) + np.repeat(bounds[:-1] - before, counts)
    keys = items.take(array_of(key, pa.int64()))
    for name in names:
        found = np.flatnonzero(values_of(pc.equal(keys, scalar_of(name.encode(), pa.binary()))))
        value = np.full(len(counts), -1)
        value[row[found]] = key[found] + counts[row[found]]  # of equal ones the last one counts
        yield items.take(_or_null(value))


def _or_null(indexes: Any) -> Any:
    """Null where one is negative."""
    validity = pa.py_buffer(np.packbits(indexes >= 0, bitorder="little"))
    return pa.Array.from_buffers(pa.int64(), len(indexes), [validity, pa.py_buffer(indexes)])


def numbers(texts: Any) -> Any:
    """As Spark's `try_cast(CAST(... AS STRING) AS BIGINT)` reads them."""
    if _are_plain(texts):
        return texts.cast(pa.string()).cast(pa.int64())
    is_number = pc.match_substring_regex(texts, _NUMBER)
    bare = pc.replace_substring_regex(texts, _NUMBER, r"\1\2")
    bare = pc.if_else(is_number, bare, None).cast(pa.string())
    found = pc.replace_substring_regex(bare, r"^\+", "").cast(pa.decimal128(20))
    least, most = (pa.scalar(each, pa.decimal128(20)) for each in (-(2**63), 2**63 - 1))
    fits = pc.and_(pc.greater_equal(found, least), pc.less_equal(found, most))
    return pc.if_else(fits, found, None).cast(pa.int64())


def _are_plain(texts: Any) -> bool:
    """Digits alone, and few: as they nearly always are."""
    if texts.null_count:
        texts = texts.drop_null()
    lengths = values_of(pc.binary_length(texts))
    if not len(lengths):
        return True
    if lengths.min() < 1 or lengths.max() > _DIGITS_MAX:
        return False
    data = np.frombuffer(texts.buffers()[2], np.uint8)
    bounds = np.frombuffer(texts.buffers()[1], np.int32)
    data = data[bounds[texts.offset] : bounds[texts.offset + len(texts)]]
    return bool(((data - np.uint8(ord("0"))) < 10).all())  # below, it wraps around
