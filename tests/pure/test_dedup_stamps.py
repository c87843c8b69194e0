"""Stamps out of headers: the last header of a name, and numbers as SQL reads them.

`tests/spark/test_dedup_rows.py` compares the numbers with Spark's own.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from eos.dedup.header_stamps import numbers, stamps

NAMES = ("p", "e", "s")


def pairs(*records: list[tuple[bytes, bytes | None]], kind: Any) -> Any:
    """Headers as a task that reads records has them. No headers are a null list."""
    rows = [[{"key": k.decode(), "value": v} for k, v in each] or None for each in records]
    return pa.array(rows, pa.list_(pa.struct([("key", pa.string()), ("value", kind)])))


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_the_last_header_of_a_name_counts_wherever_it_is(kind):
    made = pairs(
        [(b"p", b"id"), (b"e", b"1"), (b"s", b"2")],
        [],
        [(b"s", b"4"), (b"x", b"p"), (b"p", b"a"), (b"e", b"3"), (b"p", b"b")],
        [(b"e", b"s"), (b"s", None)],
        [(b"p", b"was"), (b"p", None), (b"P", b"other")],
        [(b"e", b"5")],
        kind=kind,
    )
    wanted = (
        [b"id", None, b"b", None, None, None],
        [1, None, 3, None, None, 5],
        [2, None, 4] + ([None] * 3),
    )
    for start, stop in ((0, 6), (2, 4), (5, 6), (3, 3)):
        found = stamps(made.slice(start, stop - start), NAMES)
        assert [each.to_pylist() for each in found] == [each[start:stop] for each in wanted]


@pytest.mark.parametrize("start", [0, 2])
def test_numbers_of_a_part_of_a_column(start):
    """Plain or not: what lies outside does not count."""
    for texts in ([b"x", b"y", b"12", b"345", None], [b"x", b"y", b" 12", b"345 ", None]):
        made = pa.array(texts, pa.binary()).slice(start)
        assert numbers(made).to_pylist() == [None, None, 12, 345, None][start:]
    assert numbers(pa.array([None, None], pa.binary())).to_pylist() == [None, None]
    assert numbers(pa.array([], pa.binary())).to_pylist() == []
