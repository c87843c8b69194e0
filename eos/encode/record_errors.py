"""Build the error for a record that can't be written.

The error names the record by its source topic, partition and offset, or else by its key.
"""

from __future__ import annotations

from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from eos.arrow import scalar_of
from eos.errors import RecordRefusedError
from eos.kafka.api import TopicPartition

# A row's source position: its topic (only if the rows have several), and one number with partition
# and offset, since each column costs a fifth of a microsecond per row on its way out of the JVM.
# From offset 2^47 on, the error would show a wrong offset.
SOURCE_COLUMNS = ("__topic", "__at")
AT = "(shiftleft(`offset`, 16) | `partition`)"
_KEY_BYTES_SHOWN = 40


def at_of(partition: Any, offset: Any) -> Any:
    """Return the source positions of rows, each as one number with offset and partition, as SQL's
    `AT` computes it."""
    shifted = pc.shift_left(offset, scalar_of(16, pa.int64()))
    return pc.bit_wise_or(shifted, partition.cast(pa.int64()))


class Refusal:
    """Raises RecordRefusedError for a row of one chunk that can't be written, with the reason."""

    __slots__ = ("_key_column", "_rows", "_source_topic")

    def __init__(self, rows: pa.Table, key_column: str, source_topic: str = "") -> None:
        self._rows = rows
        self._key_column = key_column
        self._source_topic = source_topic

    def too_large(
        self,
        row: int,
        target: TopicPartition,
        task: int,
        size: int,
        limit: int,
        setting: str,
    ) -> NoReturn:
        record, fields = self._record(row)
        raise RecordRefusedError(
            "record_too_large",
            f"{record} is too large for {target.topic}-{target.partition}: its record batch has "
            f"{size} bytes after compression, and {setting} allows {limit} (encode task {task})",
            hint=f"raise {setting}, use a stronger codec, or drop such records in a transform",
            target=target.topic,
            target_partition=target.partition,
            task=task,
            size_bytes=size,
            limit_bytes=limit,
            setting=setting,
            **fields,
        )

    def no_topic(self, row: int, column: str) -> NoReturn:
        record, fields = self._record(row)
        raise RecordRefusedError(
            "row_topic_null",
            f"{record} has a null in the topic column {column}",
            hint=f"fill {column} in a transform, or filter such rows out",
            column=column,
            **fields,
        )

    def unknown_topic(self, row: int, topic: str, column: str) -> NoReturn:
        record, fields = self._record(row)
        raise RecordRefusedError(
            "row_topic_unknown",
            f"{record} has the topic {topic!r} in column {column}, which is not one of the sink's "
            "topics",
            hint="add the topic to the sink's `topics`, or correct the column in a transform",
            column=column,
            target=topic,
            **fields,
        )

    def unknown_partition(self, row: int, partition: int, count: int) -> NoReturn:
        record, fields = self._record(row)
        last = count - 1
        raise RecordRefusedError(
            "row_partition_unknown",
            f"{record} has partition {partition}, but its topic has the partitions 0 to {last}",
            hint="correct the partition column, or set it to null to use the partitioner",
            target_partition=partition,
            partitions=count,
            **fields,
        )

    def _record(self, row: int) -> tuple[str, dict[str, Any]]:
        """Return a text that identifies the row, and the error's fields. They have the source
        position if the row has one, else the key."""
        topic, at = (self._value(name, row) for name in SOURCE_COLUMNS)
        topic = topic or self._source_topic
        if topic and at is not None:
            offset, partition = at >> 16, at & 0xFFFF
            fields = {
                "source_topic": topic,
                "source_partition": partition,
                "source_offset": offset,
            }
            return f"the record made from {topic}-{partition} at offset {offset}", fields
        # A text of the JVM may be no UTF-8.
        raw = self._rows.column(self._key_column)[row].cast(pa.binary()).as_py()
        if raw is None:
            return "a record without a key", {"key": None}
        shown = repr(raw[:_KEY_BYTES_SHOWN])[1:] + ("..." if len(raw) > _KEY_BYTES_SHOWN else "")
        return f"the record with the key {shown}", {"key": shown}

    def _value(self, name: str, row: int) -> Any:
        return self._rows.column(name)[row].as_py() if name in self._rows.schema.names else None
