"""Decode record batches of a partition into Arrow columns, with the schema of Spark's Kafka source.

The native library decodes them, or Python if there is no such library. Damaged bytes raise
BrokenPayloadError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from eos.arrow import array_of, text_of
from eos.kafka.records.batch_headers import Batch
from eos.kafka.records.column_buffers import HEADERS, TIMESTAMP, DecodedColumns
from eos.kafka.records.decompression import BrokenPayloadError
from eos.kafka.records.native_decoder import NativeDecoder
from eos.kafka.records.python_decoder import PythonDecoder
from eos.native import library

# The columns of Spark's Kafka source with `includeHeaders`.
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("timestampType", pa.int32()),
        pa.field("headers", HEADERS),
    ]
)


BYTES_LIMIT = (1 << 29) - 1  # the C decoder's counters are 32 bits wide


class ColumnReader:
    """Decoder of one partition's record batches into Arrow batches of a bounded size.

    An Arrow batch has at most `rows_max` rows, and at most `bytes_max` bytes in keys, values and
    headers. A larger record is a batch of its own. After an error the reader can't be used again.
    """

    def __init__(
        self, topic: str, partition: int, *, rows_max: int = 50_000, bytes_max: int = 8 << 20
    ) -> None:
        if not 0 < rows_max < 1 << 28 or not 0 < bytes_max <= BYTES_LIMIT:
            raise ValueError(f"limits of {rows_max} rows and {bytes_max} bytes")
        self.topic, self._partition = topic, partition
        native = library.load()
        self._decoder = (
            PythonDecoder(rows_max, bytes_max)
            if native is None
            else NativeDecoder(native, rows_max, bytes_max)
        )
        self._constant: tuple[Any, Any] | None = None

    def add(self, batch: Batch, records: Any, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Append the batch's records with start <= offset < end; yield each full Arrow batch.

        `records` has the batch's uncompressed bytes, which must not change before the iterator
        ends.
        """
        if not batch.is_sound:
            raise BrokenPayloadError("its checksum or its header is wrong")
        if batch.records:  # compaction may leave an empty batch
            for columns in self._decoder.add(batch, records, start, end):
                yield self._record_batch(columns)

    def flush(self) -> pa.RecordBatch | None:
        """Return the rows that were not yielded yet as an Arrow batch; None if there are none."""
        columns = self._decoder.flush()
        return None if columns is None else self._record_batch(columns)

    def _record_batch(self, columns: DecodedColumns) -> pa.RecordBatch:
        topic, partition = self._constants(len(columns.offset))
        first, rest = columns[:2], columns[2:]
        return pa.RecordBatch.from_arrays([*first, topic, partition, *rest], schema=SCHEMA)

    def _constants(self, rows: int) -> tuple[Any, Any]:
        """Return columns of `rows` rows with this partition's topic and number."""
        if self._constant is None or len(self._constant[0]) < rows:
            numbers = np.full(rows, self._partition, np.int32)
            self._constant = text_of(self.topic, rows), array_of(numbers, pa.int32())
        topic, partition = self._constant
        return topic.slice(0, rows), partition.slice(0, rows)
