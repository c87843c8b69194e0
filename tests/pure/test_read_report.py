"""The amounts and trace contexts that a task reports of its records."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from eos.kafka.read_amounts import ReadAmounts
from eos.kafka.records.column_buffers import HEADERS
from eos.observe.events import TRACE_CONTEXTS_MAX
from eos.spark.read_report import ReadReport, _FirstDistinct, _Sum, contexts_of


def context(number: int) -> bytes:
    return b"00-%032x-%016x-01" % (number, number)


def batch(*records: Any) -> pa.RecordBatch:
    """Rows whose headers are lists of pairs, or None."""
    rows = [
        None if pairs is None else [{"key": key, "value": value} for key, value in pairs]
        for pairs in records
    ]
    return pa.RecordBatch.from_arrays([pa.array(rows, HEADERS)], names=["headers"])


class Added:
    """The accumulator of a task, without Spark."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def add(self, found: Any) -> None:
        self.calls.append(found)


def noted(*batches: pa.RecordBatch) -> list[tuple[str, ...]]:
    report = ReadReport.__new__(ReadReport)
    report._amounts, report._contexts = Added(), Added()
    assert list(report.noted(iter(batches), ReadAmounts())) == list(batches)
    assert report._amounts.calls == [], "a task that read nothing adds nothing"
    return report._contexts.calls


def test_contexts_are_found_among_other_headers() -> None:
    found = batch(
        [("origin", b"x"), ("traceparent", context(2))],
        None,
        [],
        [("Traceparent", context(9)), ("tracestate", context(9))],
        [("traceparent", None), ("traceparent", b"short"), ("traceparent", context(1))],
        [("traceparent", context(2))],
    )
    assert contexts_of(found.column(0)) == [context(2).decode(), context(1).decode()]
    assert contexts_of(found.slice(1, 3).column(0)) == []
    assert contexts_of(found.slice(4).column(0)) == [context(1).decode(), context(2).decode()]


def test_other_bytes_of_its_size_are_no_error() -> None:
    (found,) = contexts_of(batch([("traceparent", b"\xff" * 55)]).column(0))
    assert len(found) == 55


def test_a_task_without_contexts_adds_nothing() -> None:
    assert noted(batch(None, []), batch([("origin", b"x")])) == []


@pytest.mark.parametrize("rows", [1, 10, 100])
def test_a_task_adds_its_first_contexts_once(rows: int) -> None:
    each = [[("traceparent", context(1 + number // 2))] for number in range(200)]
    parts = [batch(*each[at : at + rows]) for at in range(0, len(each), rows)]
    wanted = [context(number).decode() for number in range(1, TRACE_CONTEXTS_MAX + 1)]
    assert noted(*parts) == [tuple(wanted)]


def test_the_driver_keeps_the_first_contexts_of_all_tasks() -> None:
    add = pickle.loads(pickle.dumps(_FirstDistinct()))
    first, more = ("a", "b"), tuple(map(str, range(99)))
    assert add.zero(first) == ()
    assert add.addInPlace(first, ("b", "c")) == ("a", "b", "c")
    found = add.addInPlace(first, more)
    assert found == (*first, *more[: TRACE_CONTEXTS_MAX - 2])


def test_a_task_adds_what_it_has_read_when_it_ends() -> None:
    report = ReadReport.__new__(ReadReport)
    report._amounts, report._contexts = added, _ = Added(), None
    amounts = ReadAmounts()

    def read() -> Iterator[pa.RecordBatch]:
        for row in range(3):
            amounts.records["in"] += 1
            amounts.bytes["in"] += 100
            yield batch([("traceparent", context(row))])

    passed = report.noted(read(), amounts)
    next(passed)
    assert added.calls == []
    assert len(list(passed)) == 2
    assert added.calls == [amounts]
    assert amounts == ReadAmounts(Counter({"in": 3}), Counter({"in": 300}))


def test_the_driver_adds_the_amounts_of_all_tasks() -> None:
    add = pickle.loads(pickle.dumps(_Sum()))
    first = ReadAmounts(Counter({"a": 1}), Counter({"a": 10}))
    more = pickle.loads(pickle.dumps(ReadAmounts(Counter({"a": 2, "b": 3}), Counter({"b": 30}))))
    assert add.zero(first) == ReadAmounts()
    found = add.addInPlace(add.zero(first), first)
    assert add.addInPlace(found, more) == ReadAmounts(
        Counter({"a": 3, "b": 3}), Counter({"a": 10, "b": 30})
    )
    assert first == ReadAmounts(Counter({"a": 1}), Counter({"a": 10}))
