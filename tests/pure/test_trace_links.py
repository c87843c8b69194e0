"""The trace contexts that a task finds in the headers of its records."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from eos.kafka.records.column_buffers import HEADERS
from eos.observe.events import TRACE_CONTEXTS_MAX
from eos.spark.trace_links import TraceContexts, _FirstDistinct, contexts_of


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
        self.calls: list[tuple[str, ...]] = []

    def add(self, found: tuple[str, ...]) -> None:
        self.calls.append(found)


def noted(*batches: pa.RecordBatch) -> list[tuple[str, ...]]:
    traces = TraceContexts.__new__(TraceContexts)
    traces._found = added = Added()
    assert list(traces.noted(iter(batches))) == list(batches)
    return added.calls


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
