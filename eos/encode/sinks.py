"""Select the rows and columns that a sink writes, and choose the target partition of each row."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.arrow import array_of, values_of
from eos.encode.partitioner import Turn, all_by_key, partitions
from eos.encode.record_errors import Refusal
from eos.encode.sink_spec import Partitioner, SinkSpec
from eos.errors import UsageError
from eos.kafka.records.columns import Columns, blobs
from eos.kafka.records.varint import Ints
from eos.kafka.target_partitions import Targets


def chosen(sink: SinkSpec, rows: pa.Table) -> pa.Table:
    """Return the rows that the sink writes, in their order."""
    if sink.where_column is None:
        return rows
    condition = _column(rows, sink.where_column)
    return rows if pc.all(condition).as_py() else rows.filter(condition).combine_chunks()


def read(sink: SinkSpec, rows: pa.Table) -> Columns:
    """Return the columns of a chunk that the sink writes: key, value, headers and timestamp."""
    headers = sink.headers_column
    return Columns(
        key=_column(rows, sink.key_column),
        value=_column(rows, sink.value_column),
        headers=_column(rows, headers) if headers and headers in rows.schema.names else None,
        timestamp=sink.timestamp_column and _milliseconds(rows, sink.timestamp_column),
    )


class _TopicRows(NamedTuple):
    topic: str
    rows: Ints | None  # row numbers; None: all rows


def targets_of(
    sink: SinkSpec,
    rows: pa.Table,
    columns: Columns,
    targets: Targets,
    bytes_max: int,
    turns: dict[str, Turn],
    first_turn: int,
    refusal: Refusal,
) -> Ints:
    """Return the index of each row's target partition, in `targets`.

    `turns` has, by topic, the sink's next partition for records without a key. The caller keeps it
    between chunks.
    """
    if sink.topic is not None and sink.partition_column is None:
        # Most sinks have one topic, and a key in each record. Then only the key column is needed.
        found = _only_by_key(sink, columns, targets, sink.topic)
        if found is not None:
            return found
    keys = blobs(columns.key, sink.key_column)
    byte_counts = keys.byte_counts + blobs(columns.value, sink.value_column).byte_counts
    chosen = np.zeros(len(columns), np.int64)
    firsts = np.zeros(len(columns), np.int64)
    counts = np.zeros(len(columns), np.int64)
    for topic, rows_of_topic in _by_topic(sink, rows, targets, refusal):
        count = targets.count(topic)
        turn = turns.setdefault(topic, Turn(first_turn % count))
        at: Any = slice(None) if rows_of_topic is None else rows_of_topic
        some = (
            keys
            if rows_of_topic is None
            else blobs(columns.key.take(array_of(rows_of_topic, pa.int64())), sink.key_column)
        )
        limit = min(bytes_max, targets.record_batch_bytes_max[targets.first(topic)])
        chosen[at] = partitions(some, byte_counts[at], count, limit, sink.partitioner, turn)
        firsts[at] = targets.first(topic)
        counts[at] = count
    if sink.partition_column is not None:
        _put_explicit(_column(rows, sink.partition_column), chosen, counts, refusal)
    return firsts + chosen


def _only_by_key(sink: SinkSpec, columns: Columns, targets: Targets, topic: str) -> Ints | None:
    if sink.partitioner is not Partitioner.KEY:
        return None
    chosen = all_by_key(columns.key, sink.key_column, targets.count(topic))
    if chosen is not None:
        chosen += targets.first(topic)
    return chosen


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
        rows_of_topic = np.flatnonzero(codes == code)
        if name not in known:
            refusal.unknown_topic(int(rows_of_topic[0]), name, sink.topic_column)
        groups.append(_TopicRows(name, rows_of_topic))
    return groups


def _put_explicit(explicit: Any, chosen: Ints, counts: Ints, refusal: Refusal) -> None:
    if not pa.types.is_integer(explicit.type) and not pa.types.is_null(explicit.type):
        raise UsageError(
            "partition_column_type_invalid",
            f"the partition column has the type {explicit.type}; expected an integer type",
            hint="cast it in the last transform; a null means that the partitioner chooses",
        )
    is_given = values_of(explicit.is_valid())
    numbers = values_of(explicit.cast(pa.int64()))
    invalid = is_given & ((numbers < 0) | (numbers >= counts))
    if invalid.any():
        row = int(np.argmax(invalid))
        refusal.unknown_partition(row, int(numbers[row]), int(counts[row]))
    np.copyto(chosen, numbers, where=is_given)


def _milliseconds(rows: pa.Table, name: str) -> Any:
    """Return the timestamps as int64 milliseconds, rounded down as in Spark's own sink, also before
    1970."""
    column = _column(rows, name)
    kind = column.type
    if pa.types.is_null(kind) or pa.types.is_integer(kind):
        return column.cast(pa.int64())
    if not pa.types.is_timestamp(kind):
        raise UsageError(
            "timestamp_column_type_invalid",
            f"the timestamp column {name} has the type {kind}; expected timestamp or integer",
            hint="cast it in the last transform; an integer means milliseconds since 1970",
        )
    values = values_of(column.cast(pa.int64()))
    per_ms = {"us": 1000, "ns": 1_000_000}.get(kind.unit, 1)
    values = values * 1000 if kind.unit == "s" else values // per_ms
    milliseconds = array_of(values, pa.int64())
    if not column.null_count:
        return milliseconds
    null = pa.nulls(1, pa.int64())[0]
    return pc.if_else(column.is_null(), null, milliseconds)


def _column(rows: pa.Table, name: str) -> Any:
    column = rows.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
