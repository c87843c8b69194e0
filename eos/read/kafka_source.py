"""With which options does Spark read from Kafka?

Some options are needed for exactly-once, such as `read_committed`. Others shorten waits.
"""

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
# How long a task waits for records, in ms. Spark's default is spark.network.timeout, which users
# lower to detect lost executors sooner. A broker or a busy machine may need longer.
_PATIENCE_MS = "120000"


@dataclass(frozen=True, slots=True)
class SparkKafkaSource:
    """The settings of Spark's Kafka source: topics by name, or by a pattern that matches whole
    names.

    `starts` has an offset for every partition, resolved from `start:` of the pipeline file.
    """

    bootstrap: str
    topics: Sequence[str]
    records_max: int
    partitions_min: int | None
    starts: Mapping[TopicPartition, int]
    pattern: str | None = None
    # The records that a micro-batch waits for, and the longest wait in ms; None: no wait.
    waits_for: tuple[int, int] | None = None
    client: Mapping[str, str] = field(default_factory=dict)  # options of Kafka's Java client

    def stream(self, spark: SparkSession) -> DataFrame:
        """Return the streaming frame: key, value, headers, and each record's topic, partition and
        offset."""
        starts = nested(self.starts)
        reader = (
            spark.readStream.format("kafka")
            .option(*self._subscription(spark))
            .option("startingOffsets", json.dumps(starts))
            .option("maxOffsetsPerTrigger", self.records_max)
            .option("kafka.max.poll.records", "10000")
            # If the leader dies, Spark's admin client keeps asking it until its timeout: a minute
            # by default. Then Spark creates a new client, which finds the new leader. The query
            # fails after `_ADMINS` clients without an answer. The timeout must be longer than an
            # election (`broker.session.timeout.ms` is 9 s): the executors' consumers share the
            # setting, and must find the new leader within it.
            .option("kafka.request.timeout.ms", "10000")
            .option("kafka.default.api.timeout.ms", "15000")
            .option("fetchOffset.numRetries", _ADMINS)
            .options(**self._options)  # last: `client` may replace the options above
        )
        if self.waits_for:
            records_min, delay_ms_max = self.waits_for
            reader = reader.option("minOffsetsPerTrigger", records_min)
            reader = reader.option("maxTriggerDelay", f"{delay_ms_max}ms")
        if self.partitions_min:
            reader = reader.option("minPartitions", self.partitions_min)
        return reader.load()

    def records(self, spark: SparkSession, ends: Mapping[TopicPartition, int]) -> DataFrame:
        """Return the records from `starts` up to `ends` as a batch frame with the columns of
        `stream`.

        It is used to read the records of a committed micro-batch again.
        """
        return (
            spark.read.format("kafka")
            .options(**self._options)
            .option("assign", json.dumps(_listed(ends)))
            .option("startingOffsets", json.dumps(nested({tp: self.starts[tp] for tp in ends})))
            .option("endingOffsets", json.dumps(nested(ends)))
            .load()
        )

    @property
    def _options(self) -> dict[str, str]:
        """Return the options of every read."""
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "includeHeaders": "true",
            # Skips records of open and aborted transactions.
            "kafka.isolation.level": "read_committed",
            # At the end of a partition a consumer sends another fetch before it returns its
            # records, and waits for the response: half a second for each partition by default. And
            # after each poll Spark requests the partition's first and last offset on the same
            # connection. So the wait is short, and a stream's polls are large. An idle stream does
            # not poll.
            "kafka.fetch.max.wait.ms": "1",
            "kafkaConsumer.pollTimeoutMs": _PATIENCE_MS,
            # If records were deleted before they were read, stop. Never skip them.
            "failOnDataLoss": "true",
            **{f"kafka.{name}": value for name, value in self.client.items()},
        }

    def _subscription(self, spark: SparkSession) -> tuple[str, str]:
        if self.pattern is None:
            return "subscribe", ",".join(self.topics)
        # Kafka's own clients match whole names, but Spark also matches a part of a name: without
        # the anchors, `orders` would also read `orders.out`.
        anchored = f"^(?:{self.pattern})$"
        _require_java(spark, anchored, self.pattern)
        return "subscribePattern", anchored


def nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return the offsets as `{topic: {"0": offset}}`, the form of Spark's options."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def _listed(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return found


def _require_java(spark: SparkSession, anchored: str, pattern: str) -> None:
    """Raise UsageError if Java can't compile the pattern. If the query met this error, it would
    look temporary, and a supervisor would restart the run for ever."""
    from pyspark.errors import IllegalArgumentException

    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no public way
    try:
        jvm.java.util.regex.Pattern.compile(anchored)
    except IllegalArgumentException as error:
        reason = str(error).splitlines()[0]
        raise UsageError(
            "source_pattern_unsupported",
            f"Java can't compile the source's pattern `{pattern}`: {reason}",
            hint="Spark matches topic names in Java: use only syntax that Java and Python share",
        ) from error
