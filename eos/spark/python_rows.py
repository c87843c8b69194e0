"""Tasks that read, process and encode a micro-batch's records in Python, without the JVM.

In Spark's plan each record becomes a row of the JVM. That is not needed if there is no step, if the
only step is a pandas or Arrow function, or if Arrow can compute what the steps and sinks compute.
Then each Python task reads its records from Kafka, runs the steps, and encodes the result. Spark
only starts the tasks. The driver may run the only task of a small micro-batch itself.

Every Python worker imports `PythonTask`, so nothing here loads pyspark.sql or the configuration.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from eos.arrow import never_null
from eos.encode.sink_spec import HEADERS_COLUMN
from eos.encode.stage import CountedRows
from eos.errors import AttemptFailedError
from eos.kafka.client import KafkaClient
from eos.spark.fused_step import Encode, SinkRows, parsed
from eos.spark.header_validation import HeaderValidation
from eos.transform.arrow_expression import NeedsSparkError
from eos.transform.arrow_steps import ArrowSteps
from eos.transform.batch_functions import Kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from eos.spark.arrow_source import ArrowSource

# A task that sends early computes this much of its result first. Few small micro-batches are
# larger, and if records need Spark before the first is sent, the attempt can go on.
_HELD_BYTES_MAX = 32 << 20


@dataclass(frozen=True, slots=True)
class ArrowPlan:
    """Dedup, and SQL steps on Arrow columns."""

    steps: ArrowSteps
    validation: HeaderValidation | None = None
    sends_early: bool = False  # the task sends record batches before it has read all records

    @property
    def calls_users_function(self) -> bool:
        return False

    def with_validation(self, validation: HeaderValidation | None) -> ArrowPlan:
        """Return the plan with the dedup of an attempt."""
        return replace(self, validation=validation)

    def in_one_task(self) -> ArrowPlan:
        """Return the plan for a task that sends record batches before it has read all records."""
        return replace(self, sends_early=True)

    def sink_rows(self, records: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows to encode. Raise AttemptFailedError if only Spark can compute them; its
        field `is_nothing_sent` says whether Spark can do so in the same attempt."""
        if self.validation is not None:
            records = self.validation.accepted(records)
        rows = self.steps.apply(records)
        held = computed_first(rows, _HELD_BYTES_MAX) if self.sends_early else rows
        is_nothing_sent = True
        try:
            for batch in held:
                yield batch
                is_nothing_sent = not self.sends_early
        except NeedsSparkError as error:
            raise AttemptFailedError(
                "steps_need_spark",
                f"Spark has to run the steps on some records: {error}",
                hint="nothing needs to be done; Spark runs the steps of the next attempt",
                is_nothing_sent=is_nothing_sent,
            ) from error


@dataclass(frozen=True, slots=True)
class PythonPlan:
    """Dedup, and a pandas or Arrow step if there is one."""

    rows: SinkRows
    kind: Kind = "arrow"
    time_zone: str = "UTC"  # of the timestamps that the step gets
    source: StructType | None = None  # the source's columns, for pandas
    validation: HeaderValidation | None = None

    @property
    def calls_users_function(self) -> bool:
        return self.rows.part is not None

    def with_validation(self, validation: HeaderValidation | None) -> PythonPlan:
        return replace(self, validation=validation)

    def in_one_task(self) -> PythonPlan:
        return self

    def sink_rows(self, records: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.validation is not None:
            records = self.validation.accepted(records)
        if self.rows.part is not None:
            records = map(_without_null_headers, records)
        if self.kind == "arrow":
            has_step = self.rows.part is not None
            return self.rows.of_arrow(map(self._in_zone, records) if has_step else records)
        return self.rows.of_pandas(map(self._data_frame, records))

    def _in_zone(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the session's time zone in the type of their timestamps, as Spark's
        `mapInArrow` would give them to the function. Functions such as `hour` use that zone."""
        at = batch.schema.get_field_index("timestamp")
        column = batch.column(at).cast(pa.timestamp("us", tz=self.time_zone))
        return batch.set_column(at, pa.field("timestamp", column.type), column)

    def _data_frame(self, batch: pa.RecordBatch) -> Any:
        """Return the DataFrame that Spark's `mapInPandas` would give the function."""
        from pyspark.sql.conversion import ArrowBatchTransformer
        from pyspark.sql.types import StructField, StructType

        assert self.source is not None, "a pandas step has it"
        (frame,) = ArrowBatchTransformer.to_pandas(
            ArrowBatchTransformer.wrap_struct(batch),
            timezone=self.time_zone,
            schema=StructType([StructField("_0", self.source)]),
            df_for_struct=True,
        )
        return frame


# The steps of a Python task between reading records and encoding them. It can be pickled.
TaskPlan: TypeAlias = "ArrowPlan | PythonPlan"


@dataclass(frozen=True, slots=True)
class PythonRows:
    """The source records of an attempt, which Python tasks will read, process and encode."""

    spark: SparkSession
    reader: ArrowSource
    plan: TaskPlan

    def coalesce(self, tasks: int) -> PythonRows:
        assert tasks == 1, "a small micro-batch is one task"
        return replace(self, reader=self.reader.in_one_task(), plan=self.plan.in_one_task())

    def mapped(self, encode: Encode, schema: str, *, barrier: bool = False) -> DataFrame:
        """Return the Spark job whose tasks read, process and `encode` the records.

        With `barrier`, all its tasks run at the same time."""
        tasks = self.spark.range(0, self.reader.task_count, 1, self.reader.task_count)
        task = PythonTask(self.reader, self.plan, encode)
        return tasks.mapInArrow(task, parsed(schema), barrier=barrier)

    def in_driver(self, encode: Encode, client: KafkaClient) -> Iterator[pa.RecordBatch]:
        """Read, process and `encode` the records of the only task in this process, the driver."""
        assert self.reader.task_count == 1, "a small micro-batch is one task"
        return PythonTask(self.reader, self.plan, encode).results(0, client)


@dataclass(frozen=True, slots=True)
class PythonTask:
    """The function that a Spark task calls to read, process and encode its records."""

    reader: ArrowSource
    plan: TaskPlan
    encode: Encode

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (task,) = (number for batch in numbers for number in batch.column(0).to_pylist())
        yield from self.results(task)

    def results(self, task: int, client: KafkaClient | None = None) -> Iterator[pa.RecordBatch]:
        """Yield what `encode` returns for the records of a task. `client` is the driver's."""
        records = CountedRows(self.reader.rows(task, client))
        return self.encode(records.through(self.plan.sink_rows))


def computed_first(batches: Iterator[pa.RecordBatch], bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches. Compute the first of them, up to `bytes_max`, before yielding any."""
    held, size = [], 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= bytes_max:
            break
    yield from held
    yield from batches


def _without_null_headers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with an empty list of headers in place of null.

    A step gets its rows in this form from Spark, too (`transform/batch_functions.py`)."""
    at = batch.schema.get_field_index(HEADERS_COLUMN)
    return batch.set_column(at, batch.schema.field(at), never_null(batch.column(at)))
