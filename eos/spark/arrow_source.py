"""A Kafka source whose Spark tasks read offset ranges in Python, without the JVM.

Each task fetches its ranges from the brokers and yields Arrow batches. Spark only schedules tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from eos.errors import EosError
from eos.formats.json_columns import JsonParser
from eos.kafka.api import TransactionProfile
from eos.kafka.client import KafkaClient
from eos.kafka.range_fetcher import Range
from eos.kafka.range_reader import BYTES_MAX, ROWS_MAX, read_columns
from eos.kafka.read_amounts import ReadAmounts
from eos.kafka.settings import KafkaSettings
from eos.seal import Seal, of_this_process
from eos.spark.fused_step import parsed
from eos.spark.header_validation import HeaderValidation
from eos.spark.read_report import ReadReport
from eos.spark.tasks import settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The columns of Spark's Kafka source with `includeHeaders`, and the same as a schema.
COLUMNS = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP_LTZ",  # TIMESTAMP depends on the setting spark.sql.timestampType
    "timestampType": "INT",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
SPARK_SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())


@dataclass(frozen=True, slots=True)
class ArrowSource:
    """The records of offset ranges, which tasks read from Kafka as Arrow batches.

    It can be pickled. `ranges` has one list of offset ranges for each task. A list may be empty.
    """

    settings: KafkaSettings
    profile: TransactionProfile | None  # the writers' profile, so that tasks share one client
    ranges: Sequence[Sequence[Range]]
    rows_max: int = ROWS_MAX
    bytes_max: int = BYTES_MAX
    seal: Seal = field(default_factory=of_this_process, repr=False, compare=False)
    report: ReadReport | None = None  # receives amounts and trace contexts of the records
    validation: HeaderValidation | None = None  # dedup: only accepted records are yielded
    parsers: tuple[JsonParser, ...] = ()  # add columns to the records
    columns: frozenset[str] | None = None  # those that the JVM gets; others are null. None: all

    @property
    def task_count(self) -> int:
        return len(self.ranges)

    def in_one_task(self) -> ArrowSource:
        return replace(self, ranges=[[each for task in self.ranges for each in task]])

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the records as a DataFrame with the schema of Spark's Kafka source, and the
        columns of the parsers.

        It has one partition for each task. In a partition, records are in the order of the task's
        ranges, and within a range in the order of their offsets.
        """
        tasks = spark.range(0, self.task_count, 1, self.task_count)
        kinds, read = self._kinds, self._read
        schema = ", ".join(f"{name} {kinds[name]}" for name in read)
        rows = tasks.mapInArrow(self, parsed(schema))
        if self.columns is None:
            return rows
        nulls = {name: f"CAST(NULL AS {kind}) AS {name}" for name, kind in kinds.items()}
        return rows.selectExpr(*(nulls | {name: name for name in read}).values())

    @property
    def _kinds(self) -> dict[str, str]:
        """Return the Spark types of all columns by name."""
        kinds = dict(COLUMNS)
        for parser in self.parsers:
            kinds |= parser.columns
        return kinds

    @property
    def _read(self) -> list[str]:
        """Return the names of the columns that the JVM gets. It gets one even if it needs none."""
        every = list(self._kinds)
        found = [name for name in every if self.columns is None or name in self.columns]
        return found or ["offset"]

    def __call__(self, tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        for batch in tasks:
            for task in batch.column(0).to_pylist():
                yield from self.rows(task)

    def rows(self, task: int, client: KafkaClient | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task's ranges. The driver gives its client, and a worker has one
        for all of its tasks."""
        try:
            client = client or KafkaClient.shared(self.settings, self.profile)
            fetcher = client.fetch_ranges(self.ranges[task])
            amounts = ReadAmounts()
            found = read_columns(
                fetcher, rows_max=self.rows_max, bytes_max=self.bytes_max, amounts=amounts
            )
            rows = found if self.report is None else self.report.noted(found, amounts)
            if self.validation is not None:
                rows = self.validation.accepted(rows)
            for parser in self.parsers:
                rows = map(parser.with_columns, rows)
            yield from rows if self.columns is None else self._selected(rows)
        except EosError as error:
            raise self.seal.crossing(error) from error

    def _selected(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = self._read
        return (batch.select(names) for batch in rows)
