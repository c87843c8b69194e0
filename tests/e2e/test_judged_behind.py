"""Records are written before they are judged: those of spread producers, and of others where many
come at a time. Where some have to go the attempt is done again by the verdicts, and micro-batches
after it wait for theirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from support.deduped import policy
from support.local_spark import local_spark

from eos.config.load import load_pipeline, load_profile
from eos.dedup.fields import Dedup, Place
from eos.dedup.generations import Generations
from eos.dedup.table import ProducersTable
from eos.encode.stage import SPARK_SCHEMA, EncodeStage
from eos.encode.targets import Targets
from eos.errors import (
    AttemptFailedError,
    PromiseBrokenError,
    RecordRefusedError,
    TransformError,
    crossed,
)
from eos.faults import CrashPlan
from eos.observe.bus import Bus
from eos.plan.plan import Plan, plan
from eos.read.offset_log import Ranges
from eos.run.dedup import LOOKS_FIRST, Deduplicating
from eos.run.steps import encodable, mapped
from eos.run.tasks import EncodeTask, nothing
from eos.transaction.ledger_record import Position
from eos.transaction.port import TopicPartition

pytestmark = pytest.mark.spark

TEXT = """\
version: 1
name: orders
source: {kafka: {topic: a}}
dedup: {producer: {id: header(p), epoch: header(e), sequence: header(s)}, scope: producer}
sink: {kafka: {topic: out}}
"""
# 400 rows of two partitions and 23 producers, each of which goes on in both; behind the first 400
# of a turn the next. What has a number below `again` was there in the turn before.
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
# 400 rows of two partitions, and of a producer in each. The first `again` of partition 0 were there
# in the turn before; `next` is what comes behind them.
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
HEADERS = Place("header", "p"), Place("header", "e"), Place("header", "s")
DEDUP = Dedup(*HEADERS, policy(refused=("gap",), window=999))
IN_ORDER = Dedup(*HEADERS, policy(refused=("gap",)))
TASKS = 3
Make = Callable[[Any], DataFrame]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("judged_behind") as session:
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "30")  # several of them
        yield session


class Run:
    """One of a pipeline: micro-batches of 400 rows, one after the other."""

    def __init__(self, spark: SparkSession, folder: Path, dedup: Dedup = DEDUP) -> None:
        self.spark = spark
        folder.mkdir(exist_ok=True)
        path = folder / "pipeline.yaml"
        path.write_text(TEXT)
        self.plan: Plan = plan(
            load_pipeline(path, {}), load_profile(None, folder, {}), ("a:1",), ()
        )
        table = ProducersTable(folder / "producers", "orders")
        made = Generations("orders", table, dedup.policy, dedup.reading, "a")
        self.dedup = Deduplicating(dedup, made, CrashPlan(), 2)
        self.position = Position({}, {})
        self.turn = -1
        self.jobs = 0  # of judging
        self._rows = ROWS if dedup.policy.window else ROWS_IN_ORDER
        self._number = 0

    def next(self, again: int = 0) -> DataFrame:
        self.turn += 1
        self.dedup.next_micro_batch()
        given = {"first": self.turn * 400, "again": again, "next": self._number}
        self._number += 200 - again
        return self.spark.sql(self._rows.format(**given))

    def attempt(
        self, frame: DataFrame, made: Make | None = None, *, in_one_task: bool = False
    ) -> list[Any]:
        """What an attempt writes, in the order of its rows."""
        self.jobs = 0

        def collect(job: DataFrame) -> Sequence[Any]:
            self.jobs += 1
            return job.collect()

        self.dedup.begin(frame, self.position, collect, in_one_task=in_one_task)
        job = self._written(frame) if made is None else made(self.dedup.rows(frame))
        behind = self.dedup.behind(TASKS)
        written = job.collect()
        for task in range(TASKS):  # those that write
            behind(task)
        first = self.turn * 400
        places = [TopicPartition("a", 0), TopicPartition("a", 1)]
        ranges = Ranges(dict.fromkeys(places, first), dict.fromkeys(places, first + 400))
        dead = self.dedup.judge_all(job, frame, ranges, {})
        assert not dead
        return written

    def commit(self) -> dict[str, int]:
        """What was judged how."""
        done = self.dedup.producers()
        self.position = replace(self.position, producers=done.generation)
        self.dedup.committed(self.turn, Bus())
        return dict(done.told["verdicts"])

    def _written(self, frame: DataFrame) -> DataFrame:
        short = self.dedup.in_one_pass(self.plan, frame)
        return encoding(self.plan, short or encodable(self.plan, self.dedup.rows(frame)))


def encoding(made: Plan, out: Any) -> DataFrame:
    targets = Targets.of(dict.fromkeys(made.row_topics, (3, 1 << 20)))
    stage = EncodeStage(made.sinks, targets, 2, 1_763_800_000_000, source_topic="a")
    return mapped(out, EncodeTask(stage, CrashPlan().of_tasks(0)), SPARK_SCHEMA)


def offsets(rows: Sequence[Any]) -> list[int]:
    return [row["offset"] for row in rows]


def selected(rows: DataFrame) -> DataFrame:
    return rows.select("offset")


def of_no_use(rows: DataFrame) -> DataFrame:
    return rows.where("false")


@pytest.mark.parametrize("in_one_task", [True, False])
@pytest.mark.parametrize(
    "dedup",
    [
        DEDUP,
        replace(DEDUP, producer=Place("key")),
        replace(DEDUP, verdict="how"),
        IN_ORDER,
        replace(IN_ORDER, verdict="how"),
    ],
)
def test_where_all_stay_they_are_written_as_if_there_were_no_dedup(
    spark, tmp_path, dedup, in_one_task
):
    run = Run(spark, tmp_path, dedup)
    for _ in range(2):
        frame = run.next()
        plain = encoding(run.plan, encodable(run.plan, frame)).collect()
        found = run.attempt(frame, in_one_task=in_one_task)
        assert [row[:-1] for row in found] == [row[:-1] for row in plain]
        assert [bytes(row.blob) for row in found] == [bytes(row.blob) for row in plain]
        assert run.jobs == 0, "the stamps were looked at first"
        # A second job of the attempt, for dead letters, has nothing to judge.
        assert (run.dedup.judges, run.dedup.behind(TASKS)) == (0, nothing)
        assert not list((tmp_path / "producers").rglob("*.stamps")), "judged, and not removed"
        assert run.commit() == {"appended": 400}


@pytest.mark.parametrize("made", [None, selected])
@pytest.mark.parametrize("in_one_task", [True, False])
def test_where_some_have_to_go_it_is_done_again_without_them(spark, tmp_path, made, in_one_task):
    run = Run(spark, tmp_path)
    run.attempt(run.next(), made)
    run.commit()
    frame = run.next(again=60)
    with pytest.raises(AttemptFailedError, match="orders: dedup found 60 duplicate among what was"):
        run.attempt(frame, made, in_one_task=in_one_task)
    written = run.attempt(frame, made, in_one_task=in_one_task)
    assert run.jobs == 0, "they were judged already"
    if made is not None:
        assert offsets(written) == list(range(460, 800))
    assert run.commit() == {"appended": 340, "duplicate": 60}


def test_behind_that_so_many_micro_batches_are_looked_at_first(spark, tmp_path):
    run = Run(spark, tmp_path)
    run.attempt(run.next())
    run.commit()
    frame = run.next(again=60)
    with pytest.raises(AttemptFailedError):
        run.attempt(frame)
    run.attempt(frame)
    run.commit()
    # One with duplicates among them costs no attempt, and counts from the beginning.
    clean = [0] * LOOKS_FIRST
    for again in [*clean[:3], 5, *clean]:
        written = run.attempt(run.next(again), selected)
        assert len(written) == 400 - again
        run.commit()
    frame = run.next(again=60)
    with pytest.raises(AttemptFailedError):
        run.attempt(frame)


@pytest.mark.parametrize(("dedup", "again"), [(DEDUP, 60), (IN_ORDER, 5)])
def test_an_attempt_after_one_that_failed_looks_first(spark, tmp_path, dedup, again):
    """Whatever that one failed of: then it is not the rows that dedup leaves out."""
    run = Run(spark, tmp_path, dedup)
    run.attempt(run.next())
    run.commit()
    frame = run.next(again)
    with pytest.raises(ZeroDivisionError):
        run.attempt(frame, lambda _rows: 1 / 0)
    assert offsets(run.attempt(frame, selected)) == list(range(400 + again, 800))
    run.commit()
    for _ in range(LOOKS_FIRST):
        run.attempt(run.next())
        run.commit()
    with pytest.raises(AttemptFailedError):
        run.attempt(run.next(again))


def test_what_was_judged_behind_one_attempt_is_for_its_micro_batch_only(spark, tmp_path):
    run = Run(spark, tmp_path)
    run.attempt(run.next())
    run.commit()
    with pytest.raises(AttemptFailedError):
        run.attempt(run.next(again=60))
    assert len(run.attempt(run.next(), selected)) == 400
    assert run.jobs == 0


def test_what_is_refused_before_it_was_judged_is_refused_by_who_looks_first(spark, tmp_path):
    run = Run(spark, tmp_path)
    frame = run.next()
    run.attempt(frame)
    final = RecordRefusedError("no"), TransformError("broken")
    run.dedup.next_micro_batch()
    assert [run.dedup.doubted(each) for each in final] == list(final), "all were judged"
    with pytest.raises(ZeroDivisionError):
        run.attempt(frame, lambda _rows: 1 / 0)
    for each in final:
        told = run.dedup.doubted(each)
        assert isinstance(told, AttemptFailedError)
        assert told.message == each.message
    lost = PromiseBrokenError("the source lost records")
    assert run.dedup.doubted(lost) is lost
    run.attempt(frame)
    assert [run.dedup.doubted(each) for each in final] == list(final), "it looked first"


def test_a_gap_is_refused_behind_what_was_written(spark, tmp_path):
    run = Run(spark, tmp_path, replace(DEDUP, policy=policy(refused=("gap",), window=9)))
    frame = run.next()
    lacking = frame.where("offset % 23 <> 5 OR offset DIV 23 <> 3")  # its third; 12 lies too far on
    words = "record a-1 at offset 281 is a verdict gap"
    with pytest.raises(RecordRefusedError, match=words) as caught:
        run.attempt(lacking)
    assert isinstance(run.dedup.doubted(caught.value), AttemptFailedError)
    with pytest.raises(Exception, match=words) as again:  # who looks first says so for good
        run.attempt(lacking)
    told = crossed(str(again.value))
    assert run.dedup.doubted(told) is told


@pytest.mark.parametrize(
    ("dedup", "told"),
    [
        (DEDUP, "400 records passed dedup, and 0 of"),
        (IN_ORDER, "not judged the records of a-0, a-1 when all was"),
    ],
)
def test_rows_that_nothing_comes_of_are_judged_all_the_same(spark, tmp_path, dedup, told):
    """Spark does not read what it sees to be in vain."""
    run = Run(spark, tmp_path, dedup)
    frame = run.next()
    with pytest.raises(AttemptFailedError, match=told):
        run.attempt(frame, of_no_use)
    assert run.attempt(frame, of_no_use) == []
    assert run.commit() == {"appended": 400}
    for _ in range(LOOKS_FIRST - 1):  # it does not fail each time
        assert run.attempt(run.next(), of_no_use) == []
        run.commit()


def test_partitions_without_records_are_no_reason_to_judge_again(spark, tmp_path):
    """Offsets go on where there are control records alone."""
    run = Run(spark, tmp_path)
    frame = run.next().where("partition = 1")
    assert len(run.attempt(frame, selected)) == 200
    assert run.jobs == 0
    assert sum(run.commit().values()) == 200


def test_what_was_not_judged_is_not_committed(spark, tmp_path, monkeypatch):
    """As if a task that judges saw less of the folder than there is."""
    run = Run(spark, tmp_path)
    monkeypatch.setattr("eos.dedup.trusting.SHARDS", 8)
    with pytest.raises(AttemptFailedError, match="400 records passed dedup, and 243 of"):
        run.attempt(run.next())


def test_rows_that_a_step_sees_twice_are_judged_once(spark, tmp_path):
    run = Run(spark, tmp_path)
    twice = run.attempt(run.next(), lambda rows: rows.union(rows).select("offset"))
    assert Counter(offsets(twice)) == dict.fromkeys(range(400), 2)
    assert run.commit() == {"appended": 400}


@pytest.mark.parametrize("made", [None, selected])
def test_in_order_many_are_written_first_and_few_wait(spark, tmp_path, made):
    run = Run(spark, tmp_path, IN_ORDER)
    run.attempt(run.next(), made)
    run.commit()
    frame = run.next(again=5)
    with pytest.raises(AttemptFailedError, match="orders: dedup found 5 duplicate among what was"):
        run.attempt(frame, made)
    written = run.attempt(frame, made)
    if made is not None:
        assert offsets(written) == list(range(405, 800))
    assert run.commit() == {"appended": 395, "duplicate": 5}
    # One with duplicates among them costs no attempt, and counts from the beginning.
    for again in [0, 3, *[0] * LOOKS_FIRST]:
        run.attempt(run.next(again), made)
        run.commit()
    frame = run.next(again=4)
    with pytest.raises(AttemptFailedError):
        run.attempt(frame, made)
    few = Run(spark, tmp_path / "few", IN_ORDER)
    few.attempt(few.next(), made, in_one_task=True)
    few.commit()
    written = few.attempt(few.next(again=5), made, in_one_task=True)
    if made is not None:
        assert offsets(written) == list(range(405, 800))
    assert few.commit() == {"appended": 395, "duplicate": 5}


def test_in_order_a_gap_is_refused_by_who_waits(spark, tmp_path):
    run = Run(spark, tmp_path, IN_ORDER)
    lacking = run.next().where("offset <> 50")
    words = "record a-0 at offset 51 is a verdict gap"
    with pytest.raises(Exception, match=words) as caught:
        run.attempt(lacking)
    assert isinstance(run.dedup.doubted(crossed(str(caught.value))), AttemptFailedError)
    with pytest.raises(Exception, match=words) as again:
        run.attempt(lacking)
    told = crossed(str(again.value))
    assert isinstance(told, RecordRefusedError)
    assert run.dedup.doubted(told) is told
