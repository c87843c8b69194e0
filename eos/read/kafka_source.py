"""Spark's Kafka source, with the options that exactly-once needs, and two that spare time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eos.errors import UsageError
from eos.kafka.api import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ADMINS = 6
# What a task waits for a record. Spark's default follows spark.network.timeout, which is lowered to
# notice a lost executor sooner: that says nothing about a broker, or a busy machine.
_PATIENCE = ("kafkaConsumer.pollTimeoutMs", "120000")


@dataclass(frozen=True, slots=True)
class SparkKafkaSource:
    """What is read: topics by name, or by a pattern that a topic's whole name matches.

    `starts` are numbers for every partition, whatever the pipeline file says.
    """

    bootstrap: str
    topics: Sequence[str]
    records_max: int
    partitions_min: int | None
    starts: Mapping[TopicPartition, int]
    pattern: str | None = None
    security: Mapping[str, str] = field(default_factory=dict)  # options of Kafka's Java client

    def stream(self, spark: SparkSession) -> DataFrame:
        """The streaming frame: key, value, headers, and each record's coordinates."""
        starts = nested(self.starts)
        reader = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option(*self._subscription(spark))
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
            # Where the offsets' leader died, Spark's admin client asks nobody else until its time
            # is up: a minute by default. Then Spark makes another, which finds the new leader; the
            # query ends once `_ADMINS` of them got no answer. Not shorter than an election takes
            # (`broker.session.timeout.ms` is 9 s): the executors' consumers find leaders within it.
            .option("kafka.request.timeout.ms", "10000")
            .option("kafka.default.api.timeout.ms", "15000")
            .option("fetchOffset.numRetries", _ADMINS)
            .option(*_PATIENCE)
            # Deleted before it was read: stop, never skip.
            .option("failOnDataLoss", "true")
        )
        for name, value in self.security.items():
            reader = reader.option(f"kafka.{name}", value)
        if self.partitions_min:
            reader = reader.option("minPartitions", self.partitions_min)
        return reader.load()

    def records(self, spark: SparkSession, ends: Mapping[TopicPartition, int]) -> DataFrame:
        """The same columns as `stream`, of what lies between `starts` and these `ends`: what a
        micro-batch has read, once more."""
        reader = (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("assign", json.dumps(_listed(ends)))
            .option("startingOffsets", json.dumps(nested({tp: self.starts[tp] for tp in ends})))
            .option("endingOffsets", json.dumps(nested(ends)))
            .option("includeHeaders", "true")
            .option("kafka.isolation.level", "read_committed")
            .option("kafka.fetch.max.wait.ms", "1")
            .option(*_PATIENCE)
            .option("failOnDataLoss", "true")
        )
        for name, value in self.security.items():
            reader = reader.option(f"kafka.{name}", value)
        return reader.load()

    def _subscription(self, spark: SparkSession) -> tuple[str, str]:
        if self.pattern is None:
            return "subscribe", ",".join(self.topics)
        # Kafka's own clients match whole names, Spark is content with a part of one: then `orders`
        # would read `orders.out` as well.
        whole = f"^(?:{self.pattern})$"
        _require_java(spark, whole, self.pattern)
        return "subscribePattern", whole


def nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """`{topic: {"0": offset}}`, as Spark's options have it."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def _listed(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return found


def _require_java(spark: SparkSession, whole: str, pattern: str) -> None:
    """Spark would meet it in the query, where it looks like something that may pass."""
    from pyspark.errors import IllegalArgumentException

    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no public way
    try:
        jvm.java.util.regex.Pattern.compile(whole)
    except IllegalArgumentException as error:
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"Java can't read the pattern `{pattern}` of the source: {reason}",
            hint="Spark matches topics in Java: use what Java's and Python's expressions share",
        ) from error
