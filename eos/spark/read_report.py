"""Facts about source records, which tasks report to the driver while they read the records.

They are the amounts by topic, and the trace contexts: the record headers `traceparent` of W3C's
Trace Context. A task adds what it has found to accumulators of Spark when it ends. So Spark
delivers them before it reports the end of the job. Spark ignores those of a task that failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from eos.kafka.read_amounts import ReadAmounts
from eos.observe.events import TRACE_CONTEXTS_MAX

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession

_HEADER, _SIZE = "traceparent", 55  # of version 00

Contexts = tuple[str, ...]


class _Sum:
    """Rule by which Spark's accumulator adds the tasks' `ReadAmounts`."""

    def zero(self, _value: ReadAmounts) -> ReadAmounts:
        return ReadAmounts()

    def addInPlace(self, value: ReadAmounts, more: ReadAmounts) -> ReadAmounts:  # noqa: N802 - Spark's name
        return value + more


class _FirstDistinct:
    """Rule by which Spark's accumulator joins the tasks' trace contexts: the first ones."""

    def zero(self, _value: Contexts) -> Contexts:
        return ()

    def addInPlace(self, value: Contexts, more: Contexts) -> Contexts:  # noqa: N802 - Spark's name
        return tuple(dict.fromkeys((*value, *more)))[:TRACE_CONTEXTS_MAX]


class ReadReport:
    """The amounts, and the first distinct trace contexts, that tasks have read since the last
    `clear`. Contexts are only looked for if `with_traces`.

    It can be pickled. A copy in a task only adds to it.
    """

    def __init__(self, spark: SparkSession, *, with_traces: bool) -> None:
        # Subclasses of PySpark's AccumulatorParam would load it in each worker.
        total: Any = _Sum()
        first: Any = _FirstDistinct()
        context = spark.sparkContext
        self._amounts: Accumulator[ReadAmounts] = context.accumulator(ReadAmounts(), total)
        self._contexts: Accumulator[Contexts] | None = None
        if with_traces:
            self._contexts = context.accumulator((), first)

    @property
    def amounts(self) -> ReadAmounts:
        return self._amounts.value

    @property
    def contexts(self) -> Contexts:
        return () if self._contexts is None else self._contexts.value

    def clear(self) -> None:
        self._amounts.value = ReadAmounts()
        if self._contexts is not None:
            self._contexts.value = ()

    def noted(
        self, batches: Iterator[pa.RecordBatch], amounts: ReadAmounts
    ) -> Iterator[pa.RecordBatch]:
        """Pass the source's records on. After the last one, add `amounts`, which by then has those
        of all records, and the contexts in their headers."""
        found: dict[str, None] = {}
        for batch in batches:
            if self._contexts is not None and len(found) < TRACE_CONTEXTS_MAX:
                found |= dict.fromkeys(contexts_of(batch.column("headers")))
            yield batch
        if amounts.bytes:
            self._amounts.add(amounts)
        if self._contexts is not None and found:
            self._contexts.add(tuple(found)[:TRACE_CONTEXTS_MAX])


def contexts_of(headers: Any) -> list[str]:
    """Return the first distinct contexts in an Arrow array of record headers, in their order."""
    each = headers.flatten()
    if not len(each):
        return []
    values = each.field("value").filter(pc.equal(each.field("key"), _HEADER))
    whole = values.filter(pc.equal(pc.binary_length(values), _SIZE))
    first = whole.unique().slice(0, TRACE_CONTEXTS_MAX).to_pylist()
    return [value.decode("ascii", "replace") for value in first]
