"""What each part of a large micro-batch costs: the same records, each time one part further.

Spark reads them; makes Arrow columns of them for Python; Python encodes; the result is shuffled.
The next part is writing, which is what the whole pipeline does beyond the last of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from eos.config.load import load_pipeline, load_profile
from eos.encode.stage import SPARK_SCHEMA, EncodeStage
from eos.faults import CrashPlan
from eos.kafka.target_partitions import Targets
from eos.plan.plan import Plan, plan
from eos.spark.steps import projected
from eos.spark.tasks import EncodeTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# As `eos/read/kafka_source.py` has them.
SOURCE = {
    "startingOffsets": "earliest",
    "includeHeaders": "true",
    "kafka.isolation.level": "read_committed",
    "kafka.fetch.max.wait.ms": "1",
    "kafka.max.poll.records": "10000",
}


def _read(rows: DataFrame, _plan: Plan, _partitions: int) -> DataFrame:
    return rows


def _arrow(rows: DataFrame, made: Plan, _partitions: int) -> DataFrame:
    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        many = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pydict({"records": [many]})

    return projected(made, rows).mapInArrow(counted, "records bigint")


def _encode(rows: DataFrame, made: Plan, partitions: int) -> DataFrame:
    targets = Targets.of({made.sinks[0].topic or "": (partitions, 1 << 20)})
    stage = EncodeStage(made.sinks, targets, made.writers(partitions), base_timestamp_ms=0)
    crash = CrashPlan().of_tasks(0)
    return projected(made, rows).mapInArrow(EncodeTask(stage, crash), SPARK_SCHEMA)


def _shuffle(rows: DataFrame, made: Plan, partitions: int) -> DataFrame:
    writers = made.writers(partitions)
    shuffled = _encode(rows, made, partitions).repartitionById(writers + 1, "writer")
    return shuffled.sortWithinPartitions("target", "source", "position")


PARTS: dict[str, Callable[[DataFrame, Plan, int], DataFrame]] = {
    "read": _read,
    "arrow": _arrow,
    "encode": _encode,
    "shuffle": _shuffle,
}


def run(
    part: str,
    spark: SparkSession,
    bootstrap: str,
    source: str,
    pipeline: Path,
    partitions: int,
) -> None:
    """Up to this part, of the whole topic; what comes out goes nowhere."""
    files = load_pipeline(pipeline, {}), load_profile(None, pipeline.parent, {})
    made = replace(
        plan(*files, (bootstrap,), ()), parallelism=spark.sparkContext.defaultParallelism
    )
    reader: Any = spark.read.format("kafka").options(**SOURCE)
    rows = reader.options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": source}).load()
    PARTS[part](rows, made, partitions).write.format("noop").mode("overwrite").save()
