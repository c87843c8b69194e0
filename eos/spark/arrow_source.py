"""How do Spark's tasks read Kafka without the JVM?

Each task reads its offset ranges itself, and yields Arrow batches. Spark only schedules the tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from eos.errors import EosError
from eos.kafka.client import KafkaClient
from eos.kafka.range_fetcher import Range
from eos.kafka.range_reader import read_columns
from eos.kafka.settings import KafkaSettings
from eos.seal import Seal, of_this_process
from eos.spark.fused_step import parsed
from eos.spark.tasks import settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The columns of Spark's Kafka source with `includeHeaders`.
SPARK_SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "timestampType INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


@dataclass(frozen=True, slots=True)
class ReadTask:
    """The task of the source: numbers of tasks in, the records of their ranges out."""

    settings: KafkaSettings
    ranges: Sequence[Sequence[Range]]  # of each task
    seal: Seal = field(default_factory=of_this_process, repr=False, compare=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        try:
            client = KafkaClient.shared(self.settings)
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from read_columns(client.fetch_ranges(self.ranges[number]))
        except EosError as error:
            raise self.seal.crossing(error) from error


def frame(spark: SparkSession, task: ReadTask) -> DataFrame:
    """Return the records of the ranges, one partition for each task.

    The schema is that of Spark's Kafka source. In a partition, records are in the order of the
    task's ranges, and of their offsets.
    """
    tasks = len(task.ranges)
    return spark.range(0, tasks, 1, max(1, tasks)).mapInArrow(task, parsed(SPARK_SCHEMA))
