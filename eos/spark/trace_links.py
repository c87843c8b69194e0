"""Trace contexts of source records, which tasks report to the driver while they read the records.

A context is the record header `traceparent` of W3C's Trace Context. A task adds the contexts that
it has found to an accumulator of Spark when it ends. So Spark delivers them before it reports the
end of the job.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from eos.observe.events import TRACE_CONTEXTS_MAX

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession

_HEADER, _SIZE = "traceparent", 55  # of version 00

Contexts = tuple[str, ...]


class _FirstDistinct:
    """How Spark adds two values of the accumulator."""

    def zero(self, _value: Contexts) -> Contexts:
        return ()

    def addInPlace(self, value: Contexts, more: Contexts) -> Contexts:  # noqa: N802 - Spark's name
        return tuple(dict.fromkeys((*value, *more)))[:TRACE_CONTEXTS_MAX]


class TraceContexts:
    """The first distinct contexts that tasks have found since the last `clear`.

    It can be pickled. A copy in a task only adds to it.
    """

    def __init__(self, spark: SparkSession) -> None:
        added: Any = _FirstDistinct()  # a subclass of PySpark's would load it in each worker
        self._found: Accumulator[Contexts] = spark.sparkContext.accumulator((), added)

    @property
    def found(self) -> Contexts:
        return self._found.value

    def clear(self) -> None:
        self._found.value = ()

    def noted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass the source's records on. After the last one, add the contexts in their headers."""
        found: dict[str, None] = {}
        for batch in batches:
            if len(found) < TRACE_CONTEXTS_MAX:
                found |= dict.fromkeys(contexts_of(batch.column("headers")))
            yield batch
        if found:
            self._found.add(tuple(found)[:TRACE_CONTEXTS_MAX])


def contexts_of(headers: Any) -> list[str]:
    """Return the first distinct contexts in an Arrow array of record headers, in their order."""
    each = headers.flatten()
    if not len(each):
        return []
    values = each.field("value").filter(pc.equal(each.field("key"), _HEADER))
    whole = values.filter(pc.equal(pc.binary_length(values), _SIZE))
    first = whole.unique().slice(0, TRACE_CONTEXTS_MAX).to_pylist()
    return [value.decode("ascii", "replace") for value in first]
