"""Dedup and encoding as one pass of Python, beside the two of Spark's plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from support.dedup import policy
from support.errors import in_turn
from support.spark_session import local_spark

from eos.config.load import load_pipeline, load_profile
from eos.dedup import stage as stage_file
from eos.dedup.stamp_columns import StampPlace, StampRules
from eos.dedup.state_attempt import StateAttempt
from eos.dedup.state_table import ProducersTable
from eos.dedup.state_versions import StateVersions
from eos.encode.stage import SPARK_SCHEMA, EncodeStage
from eos.errors import RecordRefusedError
from eos.faults import CrashPlan
from eos.kafka.target_partitions import Targets
from eos.plan.plan import Plan, plan
from eos.seal import crossed
from eos.spark import fused_dedup
from eos.spark.dedup_columns import accepted, in_one_pass, validating
from eos.spark.fused_dedup import FusedDedup
from eos.spark.steps import encodable, mapped
from eos.spark.tasks import EncodeTask
from eos.transform.functions import Function

pytestmark = pytest.mark.spark

TEXT = """\
version: 1
name: orders
source: {{kafka: {{{topics}}}}}
dedup: {{producer: {{id: header(p), epoch: header(e), sequence: header(s)}}}}
sink:
  kafka:
    - {sink}
"""
ONE, TWO = "topic: a", "topics: [a, b]"
# 400 rows of two partitions, one after the other, as a task reads them, and 23 producers. Every
# ninth is resent, every fiftieth has no stamp; others have no header, one that a later header
# replaces, or a number in another form that Spark reads, too.
ROWS = """
  SELECT CAST(concat('k', id % 23) AS BINARY) AS key, {topic} AS topic,
    CAST(IF(id % 7 = 0, NULL, repeat('v', CAST(id AS INT))) AS BINARY) AS value,
    CAST(id DIV 200 AS INT) AS partition, id AS offset, TIMESTAMP'2026-11-22' AS timestamp,
    CAST(IF(id % 61 = 0, NULL, IF(id % 31 = 0, array(), concat(
      IF(id % 3 = 0, array(), array(
        named_struct('key', 's', 'value', 'x'), named_struct('key', 'other', 'value', NULL))),
      array(
        named_struct('key', 'p', 'value', CAST(IF(id % 50 = 0, NULL, id % 23) AS STRING)),
        named_struct('key', 's', 'value', concat(
          IF(id % 4 = 0, ' +0', ''), CAST(IF(id % 9 = 0, 0, id DIV 23) AS STRING))),
        named_struct('key', 'e', 'value', '0'))
    ))) AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers
  FROM range(0, 400, 1, 1)
"""
DEDUP = StampRules(
    StampPlace("header", "p"), StampPlace("header", "e"), StampPlace("header", "s"), policy()
)
BY_KEY = replace(DEDUP, producer=StampPlace("key"))


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("one_pass") as session:
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "30")  # several of them
        yield session


def planned(folder: Path, sink: str, *steps: Function, topics: str = ONE) -> Plan:
    path = folder / "pipeline.yaml"
    path.write_text(TEXT.format(sink=sink, topics=topics))
    return plan(load_pipeline(path, {}), load_profile(None, folder, {}), ("a:1",), steps)


def rows(spark: SparkSession, topics: str = ONE) -> DataFrame:
    return spark.sql(ROWS.format(topic="'a'" if topics == ONE else "IF(id < 150, 'a', 'b')"))


def encoded(out: Any, made: Plan) -> list[tuple[Any, ...]]:
    targets = Targets.of(dict.fromkeys(made.row_topics, (3, 1 << 20)))
    topic = made.source_topics[0] if len(made.source_topics) == 1 else ""
    task = EncodeTask(
        EncodeStage(made.sinks, targets, 2, 1_763_800_000_000, source_topic=topic),
        CrashPlan().of_tasks(0),
    )
    try:
        found = mapped(out, task, SPARK_SCHEMA).collect()
    except Exception as error:
        raise (crossed(str(error)) or error) from error
    return [(*row[:-1], bytes(row.blob)) for row in found]


def opened(folder: Path, dedup: StampRules, topics: str = ONE) -> StateAttempt:
    table = ProducersTable(folder / "producers", "orders")
    topic = "a" if topics == ONE else ""
    return StateVersions("orders", table, dedup.policy, dedup.reading, topic).begin("")


def summary_of(begun: StateAttempt) -> dict[str, Any]:
    said = dict(begun.commit().summary)
    assert said["verdicts"]["duplicate"] > 10
    return said


SINKS = ("topic: out", "{topic: out, partition: partition}", "topic: out\n    - topic: again")


@pytest.mark.parametrize(
    ("sink", "dedup", "topics"), in_turn(product(SINKS, (DEDUP, BY_KEY), (ONE, TWO)), 4, every=3)
)
def test_one_pass_writes_and_reports_the_same(spark, tmp_path, sink, dedup, topics):
    made = planned(tmp_path, sink, topics=topics)
    frame = rows(spark, topics)
    short = opened(tmp_path / "short", dedup, topics)
    found = in_one_pass(made, dedup, short.stage, frame)
    assert isinstance(found, FusedDedup)
    in_one = encoded(found, made)
    long = opened(tmp_path / "long", dedup, topics)
    assert in_one == encoded(encodable(made, accepted(frame, dedup, long.stage)), made)
    said = summary_of(short)
    assert said == summary_of(long)
    dropped = said["verdicts"]["duplicate"]
    assert sum(row[4] for row in in_one) == (400 - dropped) * len(made.sinks)


def test_earlier_verdicts_are_looked_up(spark, tmp_path):
    """Spread producers; some rows are left out, as duplicates or as dead letters."""
    dedup = replace(DEDUP, policy=policy(window=99, dead=("unstamped",)))
    made, frame = planned(tmp_path, "topic: out"), rows(spark)
    begun = opened(tmp_path, dedup)
    assert validating(frame, dedup, begun.stage, 0).collect() == []
    lookup = begun.lookup()
    found = encoded(in_one_pass(made, dedup, lookup, frame), made)
    assert found == encoded(encodable(made, accepted(frame, dedup, lookup)), made)
    verdicts = summary_of(begun)["verdicts"]
    assert verdicts["unstamped"] > 20
    assert sum(row[4] for row in found) == 400 - verdicts["duplicate"] - verdicts["unstamped"]


def test_stamps_in_headers_that_go_out_are_not_made_twice(spark, tmp_path):
    made, stage = planned(tmp_path, "topic: out"), opened(tmp_path, DEDUP).stage
    for dedup, more in ((DEDUP, []), (BY_KEY, list(fused_dedup.STAMPS))):
        columns = in_one_pass(made, dedup, stage, rows(spark)).frame.columns
        assert columns == ["key", "value", "headers", "__at", *more]


def test_rows_leave_the_jvm_once(spark, tmp_path):
    made, frame = planned(tmp_path, "topic: out"), rows(spark)
    begun = opened(tmp_path, DEDUP)
    ways = in_one_pass(made, DEDUP, begun.stage, frame), accepted(frame, DEDUP, begun.stage)
    for out, passes in zip(ways, (1, 2), strict=True):
        rest = out if isinstance(out, FusedDedup) else encodable(made, out)
        job = mapped(rest, lambda parts: parts, SPARK_SCHEMA)
        text = job._jdf.queryExecution().executedPlan().toString()
        assert text.count("MapInArrow") + text.count("ArrowEvalPython") == passes, text


@pytest.mark.parametrize(
    "sink",
    [
        "{topic: out, headers: {}}",
        "{topic: out, value: json}",
        "{topic: out, key: upper(topic)}",
        "{topic: out, where: offset > 3}",
    ],
)
def test_what_sql_has_to_look_at_sees_what_stays_only(spark, tmp_path, sink):
    made = planned(tmp_path, sink)
    assert in_one_pass(made, DEDUP, opened(tmp_path, DEDUP).stage, rows(spark)) is None


def test_a_step_or_a_verdict_as_a_column_goes_the_long_way(spark, tmp_path):
    step = Function("mine:all", {}, lambda frame: frame, ("mine",))
    stage = opened(tmp_path, DEDUP).stage
    made = planned(tmp_path, "topic: out", step)
    assert in_one_pass(made, DEDUP, stage, rows(spark)) is None
    made = planned(tmp_path, "topic: out")
    assert in_one_pass(made, replace(DEDUP, verdict="how"), stage, rows(spark)) is None


def test_what_is_refused_is_named_by_its_place(spark, tmp_path):
    """A producer's third number, whose second is not there."""
    dedup = replace(DEDUP, policy=policy(refused=("gap",)))
    made = planned(tmp_path, "topic: out")
    gap = rows(spark).where("offset % 9 <> 0 AND offset <> 24 AND offset > 0")
    found = in_one_pass(made, dedup, opened(tmp_path, dedup).stage, gap)
    with pytest.raises(RecordRefusedError, match="a-0 at offset 47") as caught:
        encoded(found, made)
    assert "gap" in caught.value.message


def test_rows_wait_in_a_bounded_space(tmp_path, monkeypatch):
    """Whichever bound comes first: that of rows or that of bytes."""
    names = ["value", "__at", *fused_dedup.STAMPS]

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(60):
            seen.append(number)
            at = pa.array([number << 16], pa.int64())
            stamp = pa.array([b"p"]), pa.array([0], pa.int64()), pa.array([number], pa.int64())
            yield pa.RecordBatch.from_arrays([pa.array([b"v" * 1000]), at, *stamp], names)

    for rows_max, bytes_max, waiting in ((10, 1 << 30, 10), (1 << 17, 5000, 5)):
        monkeypatch.setattr(stage_file, "CHUNK_ROWS", rows_max)
        monkeypatch.setattr(fused_dedup, "HELD_BYTES_MAX", bytes_max)
        seen: list[int] = []
        begun = opened(tmp_path / str(waiting), DEDUP)
        validation = fused_dedup.HeaderValidation(begun.stage, (), ())
        for given, _ in enumerate(validation.accepted(batches())):
            assert len(seen) - given <= waiting
        assert given == 59
