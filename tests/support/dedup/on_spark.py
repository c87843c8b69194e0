"""A pipeline with dedup on Spark, without Kafka: micro-batches of 400 rows, some of them resent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from eos.checkpoint.offset_log import Ranges
from eos.config.load import load_pipeline, load_profile
from eos.dedup.stamp_columns import StampPlace, StampRules
from eos.dedup.state_table import ProducersTable
from eos.dedup.state_versions import StateVersions
from eos.encode.stage import SPARK_SCHEMA, EncodeStage
from eos.errors import EosError
from eos.faults import CrashPlan
from eos.kafka.api import TopicPartition
from eos.kafka.target_partitions import Targets
from eos.ledger.record import Position
from eos.observe.bus import Bus
from eos.plan.plan import Plan, plan
from eos.spark.dedup_attempt import DedupAttempt
from eos.spark.dedup_run import DedupRun
from eos.spark.steps import encodable, mapped
from eos.spark.tasks import EncodeTask
from support.dedup import policy

TEXT = """\
version: 1
name: orders
source: {kafka: {topic: a}}
dedup: {producer: {id: header(p), epoch: header(e), sequence: header(s)}, scope: producer}
sink: {kafka: {topic: out}}
"""
# 400 rows of two partitions and 23 producers, each of which writes to both. Each turn continues
# after the one before. Rows with a number below `again` were in the turn before.
ROWS = """
  SELECT CAST(concat('k', id % 23) AS BINARY) AS key, 'a' AS topic,
    CAST(IF(id % 7 = 0, NULL, repeat('v', CAST(id % 400 AS INT))) AS BINARY) AS value,
    CAST(id % 400 DIV 200 AS INT) AS partition, id AS offset, TIMESTAMP'2026-11-22' AS timestamp,
    CAST(array(
      named_struct('key', 'p', 'value', CAST(id % 23 AS STRING)),
      named_struct('key', 'e', 'value', '0'),
      named_struct('key', 's', 'value',
        CAST(IF(id % 400 < {again}, id - 400, id) DIV 23 AS STRING))
    ) AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers
  FROM range({first}, {first} + 400, 1, 2)
"""
# 400 rows of two partitions, and of a producer in each. The first `again` of partition 0 were in
# the turn before, and continue with `next`.
ROWS_IN_ORDER = """
  SELECT CAST(NULL AS BINARY) AS key, 'a' AS topic, CAST(CAST(id AS STRING) AS BINARY) AS value,
    CAST(id % 400 DIV 200 AS INT) AS partition, id AS offset, TIMESTAMP'2026-11-22' AS timestamp,
    CAST(array(
      named_struct('key', 'p', 'value', CAST(id % 400 DIV 200 AS STRING)),
      named_struct('key', 'e', 'value', '0'),
      named_struct('key', 's', 'value',
        CAST(id % 200 + IF(id % 400 < 200, {next} - {again}, {first} DIV 2) AS STRING))
    ) AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers
  FROM range({first}, {first} + 400, 1, 2)
"""
HEADERS = StampPlace("header", "p"), StampPlace("header", "e"), StampPlace("header", "s")
DEDUP = StampRules(*HEADERS, policy(refused=("gap",), window=999))
IN_ORDER = StampRules(*HEADERS, policy(refused=("gap",)))
TASKS = 3
Make = Callable[[Any], DataFrame]


class Run:
    """A run of the pipeline: micro-batches of 400 rows, one after the other."""

    def __init__(self, spark: SparkSession, folder: Path, dedup: StampRules = DEDUP) -> None:
        self.spark = spark
        folder.mkdir(exist_ok=True)
        path = folder / "pipeline.yaml"
        path.write_text(TEXT)
        self.plan: Plan = plan(
            load_pipeline(path, {}), load_profile(None, folder, {}), ("a:1",), ()
        )
        table = ProducersTable(folder / "producers", "orders")
        made = StateVersions("orders", table, dedup.policy, dedup.reading, "a")
        self._made = dedup, made
        self.dedup = DedupRun(dedup, made, CrashPlan(), 2)
        self.position = Position({}, {})
        self.turn = -1
        self.attempt: DedupAttempt | None = None  # the latest one
        self.jobs = 0  # that validate
        self._rows = ROWS if dedup.policy.window else ROWS_IN_ORDER
        self._number = 0

    def restart(self) -> None:
        """Begin the next run, which has the ledger's position."""
        self.dedup = DedupRun(*self._made, CrashPlan(), 2)
        self.dedup.require(self.position)

    def next(self, again: int = 0) -> DataFrame:
        self.turn += 1
        self.dedup.forget_attempts()
        given = {"first": self.turn * 400, "again": again, "next": self._number}
        self._number += 200 - again
        return self.spark.sql(self._rows.format(**given))

    def try_once(
        self, frame: DataFrame, made: Make | None = None, *, in_one_task: bool = False
    ) -> list[Any]:
        """Return what an attempt writes, in the order of its rows."""
        self.jobs = 0

        def collect(job: DataFrame) -> Sequence[Any]:
            self.jobs += 1
            return job.collect()

        self.attempt = None
        begun = self.dedup.begin(lambda: frame, self.position, collect, in_one_task=in_one_task)
        self.attempt = begun
        rows = begun.rows(frame)
        job = encoding(self.plan, encodable(self.plan, rows)) if made is None else made(rows)
        after_write = begun.after_write(TASKS)
        written = job.collect()
        for task in range(TASKS):  # those that write
            after_write(task)
        first = self.turn * 400
        places = [TopicPartition("a", 0), TopicPartition("a", 1)]
        ranges = Ranges(dict.fromkeys(places, first), dict.fromkeys(places, first + 400))
        dead = begun.complete(job, frame, ranges, {})
        assert not dead
        return written

    def commit(self) -> dict[str, int]:
        """Commit, and return how many records got each verdict."""
        assert self.attempt is not None
        done, first = self.attempt.commit_states(), self.attempt.validate_first
        self.position = replace(self.position, producers=done.version, validate_first=first)
        self.dedup.committed(self.turn, Bus())
        return dict(done.summary["verdicts"])

    def retriable(self, error: EosError) -> EosError:
        """Return the error that the run raises for a failed attempt."""
        return error if self.attempt is None else self.attempt.retriable(error)


def encoding(made: Plan, out: Any) -> DataFrame:
    targets = Targets.of(dict.fromkeys(made.row_topics, (3, 1 << 20)))
    stage = EncodeStage(made.sinks, targets, 2, 1_763_800_000_000, source_topic="a")
    return mapped(out, EncodeTask(stage, CrashPlan().of_tasks(0)), SPARK_SCHEMA)


def offsets(rows: Sequence[Any]) -> list[int]:
    return [row["offset"] for row in rows]


def selected(rows: DataFrame) -> DataFrame:
    return rows.select("offset")
