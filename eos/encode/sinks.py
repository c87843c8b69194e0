"""Which columns a sink reads, and each row's target for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.arrow import array_of, values_of
from eos.encode.codec import Codec
from eos.encode.columns import Columns, blobs
from eos.encode.partition import Partitioner, Turn, partitions
from eos.encode.refusal import Refusal
from eos.encode.targets import Targets
from eos.encode.varint import Ints
from eos.errors import UsageError

HEADERS_COLUMN = "headers"


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """One Kafka sink: every row goes to it, or those of `where_column`. Either `topic`, or
    `topic_column` by row, which may name `topics` only."""

    topic: str | None = None
    topic_column: str | None = None
    topics: tuple[str, ...] = ()  # none: any of the targets
    where_column: str | None = None  # boolean
    codec: Codec = Codec.LZ4
    partitioner: Partitioner = Partitioner.KEY
    key_column: str = "key"
    value_column: str = "value"
    headers_column: str | None = HEADERS_COLUMN  # by this name it may be absent; None: no headers
    timestamp_column: str | None = None  # timestamp, or integer milliseconds; null: the attempt's
    partition_column: str | None = None  # null: the partitioner decides

    def __post_init__(self) -> None:
        if (self.topic is None) == (self.topic_column is None):
            raise ValueError("a sink has either a topic or a topic column")

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it can't do without."""
        names = (
            self.key_column,
            self.value_column,
            self.headers_column,
            self.timestamp_column,
            self.partition_column,
            self.topic_column,
            self.where_column,
        )
        return frozenset(name for name in names if name not in {None, HEADERS_COLUMN})

    def chosen(self, rows: pa.Table) -> pa.Table:
        """The rows that go to it, in their order."""
        if self.where_column is None:
            return rows
        where = _column(rows, self.where_column)
        return rows if pc.all(where).as_py() else rows.filter(where).combine_chunks()

    def read(self, rows: pa.Table) -> Columns:
        """Its columns of a chunk."""
        return Columns(
            key=_column(rows, self.key_column),
            value=_column(rows, self.value_column),
            headers=self._headers(rows),
            timestamp=self.timestamp_column and _milliseconds(rows, self.timestamp_column),
        )

    def _headers(self, rows: pa.Table) -> Any:
        name = self.headers_column
        return _column(rows, name) if name and name in rows.schema.names else None


class _TopicRows(NamedTuple):
    topic: str
    rows: Ints | None  # None: all of them


def targets_of(
    sink: SinkSpec,
    rows: pa.Table,
    columns: Columns,
    targets: Targets,
    bytes_max: int,
    turns: dict[str, Turn],
    first_turn: int,
) -> Ints:
    """The target of each row. `turns` is the sink's own, kept by the caller between chunks."""
    refusal = Refusal(rows, sink.key_column)
    keys = blobs(columns.key, sink.key_column)
    byte_counts = keys.byte_counts + blobs(columns.value, sink.value_column).byte_counts
    chosen = np.zeros(len(columns), np.int64)
    firsts = np.zeros(len(columns), np.int64)
    counts = np.zeros(len(columns), np.int64)
    for topic, where in _by_topic(sink, rows, targets, refusal):
        count = targets.count(topic)
        turn = turns.setdefault(topic, Turn(first_turn % count))
        at: Any = slice(None) if where is None else where
        some = (
            keys
            if where is None
            else blobs(columns.key.take(array_of(where, pa.int64())), sink.key_column)
        )
        limit = min(bytes_max, targets.record_batch_bytes_max[targets.first(topic)])
        chosen[at] = partitions(some, byte_counts[at], count, limit, sink.partitioner, turn)
        firsts[at] = targets.first(topic)
        counts[at] = count
    if sink.partition_column is not None:
        _put_explicit(_column(rows, sink.partition_column), chosen, counts, refusal)
    return firsts + chosen


def _by_topic(
    sink: SinkSpec, rows: pa.Table, targets: Targets, refusal: Refusal
) -> list[_TopicRows]:
    if sink.topic is not None:
        return [_TopicRows(sink.topic, None)]
    assert sink.topic_column is not None
    names = _column(rows, sink.topic_column)
    encoded = names.dictionary_encode()
    codes = values_of(encoded.indices, null=-1)
    if (codes < 0).any():
        refusal.no_topic(int(np.argmax(codes < 0)), sink.topic_column)
    groups = []
    known = frozenset(sink.topics or targets.topics)
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        where = np.flatnonzero(codes == code)
        if name not in known:
            refusal.unknown_topic(int(where[0]), name, sink.topic_column)
        groups.append(_TopicRows(name, where))
    return groups


def _put_explicit(wanted: Any, chosen: Ints, counts: Ints, refusal: Refusal) -> None:
    if not pa.types.is_integer(wanted.type) and not pa.types.is_null(wanted.type):
        raise UsageError(
            f"the partition column has the type {wanted.type}",
            hint="a partition is an integer, or null where the partitioner is to choose",
        )
    given = values_of(wanted.is_valid())
    numbers = values_of(wanted.cast(pa.int64()))
    wrong = given & ((numbers < 0) | (numbers >= counts))
    if wrong.any():
        row = int(np.argmax(wrong))
        refusal.unknown_partition(row, int(numbers[row]), int(counts[row]))
    np.copyto(chosen, numbers, where=given)


def _milliseconds(rows: pa.Table, name: str) -> Any:
    """int64 milliseconds. Rounded down, before 1970 too, as Spark's own sink does."""
    column = _column(rows, name)
    kind = column.type
    if pa.types.is_null(kind) or pa.types.is_integer(kind):
        return column.cast(pa.int64())
    if not pa.types.is_timestamp(kind):
        raise UsageError(
            f"the timestamp column {name} has the type {kind}",
            hint="a record's timestamp is a timestamp, or an integer of milliseconds since 1970",
        )
    values = values_of(column.cast(pa.int64()))
    per_ms = {"us": 1000, "ns": 1_000_000}.get(kind.unit, 1)
    values = values * 1000 if kind.unit == "s" else values // per_ms
    null = pa.nulls(1, pa.int64())[0]
    return pc.if_else(column.is_null(), null, array_of(values, pa.int64()))


def _column(rows: pa.Table, name: str) -> Any:
    column = rows.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
