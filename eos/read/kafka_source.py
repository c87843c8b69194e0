"""Spark's Kafka source, with the options that exactly-once needs, and two that spare time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eos.transaction.port import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """What is read. `starts` are numbers for every partition, whatever the pipeline file says."""

    bootstrap: str
    topics: Sequence[str]
    records_max: int
    partitions_min: int | None
    starts: Mapping[TopicPartition, int]

    def stream(self, spark: SparkSession) -> DataFrame:
        """The streaming frame: key, value, headers, and each record's coordinates."""
        starts: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in sorted(self.starts.items()):
            starts.setdefault(topic, {})[str(partition)] = offset
        reader = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", ",".join(self.topics))
            .option("startingOffsets", json.dumps(starts))
            .option("maxOffsetsPerTrigger", self.records_max)
            .option("includeHeaders", "true")
            # Records of open and aborted transactions are not input.
            .option("kafka.isolation.level", "read_committed")
            # A consumer that comes to the end of a partition asks for more before it returns what
            # it has, and waits for that answer: half a second for each partition by default.
            # And after each poll Spark asks the broker for both ends of the partition, on the same
            # connection: so few polls, and a short wait. Nobody polls an idle stream.
            .option("kafka.fetch.max.wait.ms", "1")
            .option("kafka.max.poll.records", "10000")
            # Deleted before it was read: stop, never skip.
            .option("failOnDataLoss", "true")
        )
        if self.partitions_min:
            reader = reader.option("minPartitions", self.partitions_min)
        return reader.load()
