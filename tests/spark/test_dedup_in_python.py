"""Dedup in the Python tasks that read Kafka, beside the two passes of Spark's plan: the same bytes,
verdicts, states and dead letters."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from support.dedup import policy
from support.errors import in_turn, raises
from support.kafka import kafka_io
from support.kafka.brokers import Kafka
from support.kafka.kafka_io import NOW_MS, Record
from support.spark.spark_session import local_spark

from eos.checkpoint.offset_log import Ranges
from eos.config.load import load_pipeline, load_profile
from eos.dedup.stamp_columns import StampPlace, StampRules
from eos.dedup.state_table import ProducersTable
from eos.dedup.state_versions import StateVersions
from eos.encode.stage import MANIFEST_TARGET, SPARK_SCHEMA, EncodeStage
from eos.errors import DedupRetryError, RecordRefusedError
from eos.faults import CrashPlan
from eos.kafka.api import TopicPartition
from eos.kafka.settings import KafkaSettings
from eos.kafka.target_partitions import Targets
from eos.ledger.record import Position
from eos.plan.plan import Plan, plan
from eos.read.decode import ERROR, RULE
from eos.read.ranges import divide
from eos.read.rejected_records import RejectedRecords
from eos.seal import crossed
from eos.spark.arrow_source import SPARK_SCHEMA as SOURCE
from eos.spark.arrow_source import ArrowSource
from eos.spark.dedup_run import DedupRun
from eos.spark.fused_step import parsed
from eos.spark.python_plan import python_plan
from eos.spark.python_rows import PythonRows
from eos.spark.steps import encodable, mapped
from eos.spark.tasks import EncodeTask

pytestmark = pytest.mark.spark

TEXT = """\
version: 1
name: orders
source: {{kafka: {{topics: [{topics}]}}}}
dedup: {{producer: {{id: header(p), epoch: header(e), sequence: header(s)}}}}
sink:
  kafka:
    - {sink}
"""
PARTITIONS, RECORDS, TASKS = 4, 400, 2
HEADERS = StampPlace("header", "p"), StampPlace("header", "e"), StampPlace("header", "s")
PARTITION = StampRules(*HEADERS, policy())
PRODUCER = StampRules(*HEADERS, policy(window=999))


def record(number: int) -> Record:
    """One of 400 records of 23 producers, each of which writes to all partitions.

    Every ninth is a duplicate, and every fiftieth has no id. Others have no header, one that a
    later header replaces, or a number in another form that Spark reads, too.
    """
    p = None if number % 50 == 0 else b"%d" % (number % 23)
    s = b"%d" % (0 if number % 9 == 0 else number // 23)
    headers: list[tuple[str, bytes | None]] = [] if number % 3 == 0 else [("s", b"x"), ("o", None)]
    headers += [("p", p), ("s", b" +0" + s if number % 4 == 0 else s), ("e", b"0")]
    return Record(
        partition=number // (RECORDS // PARTITIONS),
        key=b"k%d" % (number % 23),
        value=None if number % 7 == 0 else b"v" * number,
        headers=() if number % 31 == 0 else tuple(headers),
        timestamp_ms=NOW_MS,
    )


@dataclass(frozen=True)
class Topics:
    """Source topics on the broker, with all of the records in each."""

    bootstrap: str
    names: tuple[str, ...]

    @property
    def ranges(self) -> Ranges:
        places = [TopicPartition(name, n) for name in self.names for n in range(PARTITIONS)]
        ends = {name: kafka_io.ends(self.bootstrap, name) for name in self.names}
        return Ranges(dict.fromkeys(places, 0), {tp: ends[tp.topic][tp.partition] for tp in places})

    def source(self, tasks: int) -> ArrowSource:
        ranges = self.ranges
        wanted = {tp: (0, end) for tp, end in ranges.ends.items()}
        divided = divide(wanted, tasks, splits=False)
        return ArrowSource(KafkaSettings((self.bootstrap,)), None, divided, rows_max=30)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("dedup_in_python") as session:
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "30")  # several of them
        yield session


def written(broker: Kafka, records: Sequence[Record], count: int = 1) -> Topics:
    names = tuple(f"in-{number}-{uuid.uuid4().hex[:8]}" for number in range(count))
    kafka_io.create_topics(broker.bootstrap, PARTITIONS, *names)
    for name in names:
        kafka_io.write_records(broker.bootstrap, name, records)
    return Topics(broker.bootstrap, names)


@pytest.fixture(scope="module")
def one(broker: Kafka) -> Topics:
    return written(broker, [record(number) for number in range(RECORDS)])


@pytest.fixture(scope="module")
def two(broker: Kafka) -> Topics:
    return written(broker, [record(number) for number in range(RECORDS)], count=2)


def planned(folder: Path, topics: Topics, sink: str = "topic: out") -> Plan:
    folder.mkdir(exist_ok=True)
    path = folder / "pipeline.yaml"
    path.write_text(TEXT.format(topics=", ".join(topics.names), sink=sink))
    return plan(load_pipeline(path, {}), load_profile(None, folder, {}), ("a:1",), ())


class Way:
    """Attempts at one micro-batch: in Python tasks, or in Spark's two passes."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        topics: Topics,
        rules: StampRules,
        *,
        sink: str = "topic: out",
        tasks: int = TASKS,
        accepts_gap: bool = False,
    ) -> None:
        self.spark = spark
        self.plan = planned(folder, topics, sink)
        self.topics = topics
        self._topic = topics.names[0] if len(topics.names) == 1 else ""
        table = ProducersTable(folder / "producers", "orders")
        versions = StateVersions("orders", table, rules.policy, rules.reading, self._topic)
        self.run = DedupRun(rules, versions, CrashPlan(), TASKS)
        self.position = Position({}, {}, accepts_gap=accepts_gap)
        self.source = topics.source(tasks)
        self.attempt: Any = None
        self.read = 0  # records that Python tasks counted

    def try_once(self, *, in_python: bool) -> tuple[list[Any], Sequence[RejectedRecords]]:
        """Return the record batches of an attempt, and the records for the dead letters."""
        frame = self.source.frame(self.spark)
        begun = self.run.begin(
            lambda: frame, self.position, lambda job: job.collect(), in_one_task=False
        )
        self.attempt = begun
        if in_python:
            found = python_plan(self.plan, self.spark, parsed(SOURCE))
            assert found is not None
            out = PythonRows(self.spark, self.source, replace(found, validation=begun.validation))
        else:
            out = encodable(self.plan, begun.rows(frame))
        job = self.job(out)
        rows = [(*row[:-1], bytes(row.blob)) for row in collected(job)]
        for task, after_write in enumerate([begun.after_write(TASKS)] * TASKS):
            after_write(task)
        ranges = self.topics.ranges
        self.read = sum(row[4] for row in rows if row[1] == MANIFEST_TARGET)
        if in_python:
            return records_of(rows), begun.complete_in_python(self.read, ranges)
        return records_of(rows), begun.complete(job, frame, ranges, {})

    def job(self, out: DataFrame | PythonRows) -> DataFrame:
        targets = Targets.of(dict.fromkeys(self.plan.row_topics, (PARTITIONS, 1 << 20)))
        stage = EncodeStage(
            self.plan.sinks, targets, 2, 1_763_800_000_000, source_topic=self._topic
        )
        return mapped(out, EncodeTask(stage, CrashPlan().of_tasks(0)), SPARK_SCHEMA)

    def result(self, *, in_python: bool) -> Any:
        """Return all that the micro-batch leaves: record batches, dead letters, and the states."""
        batches, dead = self.try_once(in_python=in_python)
        frame = self.attempt.accepted_and_dead(self.source.frame(self.spark))
        letters = frame.where(f"{RULE} IS NOT NULL").select(
            "topic", "partition", "offset", "value", RULE, ERROR
        )
        listed = sorted(map(tuple, letters.collect()))
        assert len(listed) == sum(each.records for each in dead)
        summary = self.attempt.commit_states().summary
        return batches, list(dead), listed, summary, self.attempt.validate_first


def collected(job: DataFrame) -> list[Any]:
    try:
        return job.collect()
    except Exception as error:
        raise (crossed(str(error)) or error) from error


def records_of(rows: list[Any]) -> list[Any]:
    """Leave the manifests' count of source records out: in Spark's plan Spark counts them."""
    return [(*r[:4], 0 if r[1] == MANIFEST_TARGET else r[4], *r[5:]) for r in rows]


SINKS = ("topic: out", "{topic: out, partition: partition}", "topic: out\n    - topic: again")
DEAD = replace(PARTITION, policy=policy(dead=("gap", "unstamped")))
CASES = product(SINKS, (1, 2), (PARTITION, DEAD))


@pytest.mark.parametrize(("sink", "count", "rules"), in_turn(CASES, every=5, of_these=2))
def test_scope_partition_writes_and_reports_the_same(spark, tmp_path, one, two, sink, count, rules):
    """With several partitions in each task, and with a task for each."""
    topics = one if count == 1 else two
    found = [
        Way(spark, tmp_path / name, topics, rules, sink=sink).result(in_python=in_python)
        for name, in_python in {"python": True, "spark": False}.items()
    ]
    assert found[0] == found[1]
    _, dead, _, summary, validates_first = found[0]
    assert summary["verdicts"]["duplicate"] > 5
    assert bool(dead) == (rules is DEAD)
    assert validates_first == 0
    each = Way(spark, tmp_path / "each", topics, rules, sink=sink, tasks=PARTITIONS * count)
    assert each.result(in_python=True)[1:] == found[0][1:]


@pytest.mark.parametrize(
    ("count", "dead"), in_turn(product((1, 2), ((), ("unstamped",))), of_these=2)
)
def test_scope_producer_writes_first_and_retries_with_the_same_verdicts(
    spark, tmp_path, one, two, count, dead
):
    topics = one if count == 1 else two
    rules, found = replace(PRODUCER, policy=policy(window=999, dead=dead)), []
    for name, in_python in {"python": True, "spark": False}.items():
        way = Way(spark, tmp_path / name, topics, rules)
        with raises("duplicates_written", DedupRetryError) as caught:
            way.try_once(in_python=in_python)
        result = way.result(in_python=in_python)
        assert way.read == (RECORDS * count if in_python else 0)
        found.append((str(caught.value), result))
    assert found[0] == found[1]
    _, letters, _, summary, validates_first = found[0][1]
    assert bool(letters) == bool(dead)
    assert summary["verdicts"]["duplicate"] > 10
    assert validates_first == 8


def test_scope_producer_validates_first_in_a_job_of_its_own(spark, tmp_path, one):
    """The tasks look the verdicts up, and the attempt fails if one of the records is missing."""
    first = replace(PRODUCER, validates_first=True)
    found = [
        Way(spark, tmp_path / name, one, first).result(in_python=in_python)
        for name, in_python in {"python": True, "spark": False}.items()
    ]
    assert found[0] == found[1]
    way = Way(spark, tmp_path / "again", one, first)
    way.try_once(in_python=True)
    with raises("source_changed_during_attempt") as caught:
        way.attempt.complete_in_python(RECORDS - 1, one.ranges)
    assert f"validated {RECORDS} records" in caught.value.message


@pytest.mark.parametrize("window", in_turn((9, 0), 1))
def test_accepted_gaps_become_no_dead_letters(spark, tmp_path, one, window):
    rules = StampRules(*HEADERS, policy(window=window, dead=("gap",)), validates_first=True)
    for accepts_gap in (False, True):
        found = []
        for name, in_python in {"python": True, "spark": False}.items():
            folder = tmp_path / f"{name}-{accepts_gap}"
            way = Way(spark, folder, one, rules, accepts_gap=accepts_gap)
            found.append(way.result(in_python=in_python))
        assert found[0] == found[1]
        assert found[0][3]["verdicts"]["gap"] > 0
        assert bool(found[0][1]) is not accepts_gap


@pytest.mark.parametrize("window", in_turn((9, 0), 1))
def test_a_record_that_is_refused_ends_the_run_by_its_position(spark, tmp_path, broker, window):
    """The first record of a producer that lacks the one before, in the second partition of its
    task."""
    sent = [number for number in range(RECORDS) if number % 50 and number % 9 and number % 31]
    stamped = [
        replace(record(number), headers=(("p", b"app"), ("e", b"0"), ("s", b"%d" % at)))
        for at, number in enumerate(sent)
    ]
    at_once = [replace(each, partition=2) for each in stamped]
    topics = written(broker, [*at_once[:40], *at_once[60:]])
    rules = StampRules(*HEADERS, policy(window=window, refused=("gap",)), validates_first=True)
    found = set()
    for name, in_python in {"python": True, "spark": False}.items():
        way = Way(spark, tmp_path / name, topics, rules, tasks=1)
        with pytest.raises(Exception, match="with verdict gap") as caught:
            way.try_once(in_python=in_python)
        error = crossed(str(caught.value)) or caught.value
        assert isinstance(error, RecordRefusedError)
        found.add(str(error))
    (message,) = found
    assert f"{topics.names[0]}-2 at offset 40" in message


def test_no_record_enters_the_jvm(spark, tmp_path, one):
    """In Spark's plan it does three times: from the reader, for its verdict, and to be encoded."""
    way = Way(spark, tmp_path, one, PARTITION)
    way.try_once(in_python=True)
    found = python_plan(way.plan, spark, parsed(SOURCE))
    outs = {
        1: PythonRows(spark, way.source, replace(found, validation=way.attempt.validation)),
        3: encodable(way.plan, way.attempt.rows(way.source.frame(spark))),
    }
    for passes, out in outs.items():
        text = way.job(out)._jdf.queryExecution().executedPlan().toString()
        assert text.count("MapInArrow") + text.count("ArrowEvalPython") == passes, text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("id: header(p)", "id: key"),
        ("sequence: header(s)}", "sequence: header(s)}, verdict: how"),
        ("topic: out", "{topic: out, value: json}"),
        ("topic: out", "{topic: out, key: upper(topic)}"),
        ("topic: out", "{topic: out, where: offset > 3}"),
    ],
)
def test_what_needs_sql_takes_two_passes(spark, tmp_path, one, old, new):
    assert python_plan(planned(tmp_path, one), spark, parsed(SOURCE)) is not None
    text = TEXT.format(topics=one.names[0], sink="topic: out")
    assert text.count(old) == 1
    path = tmp_path / "pipeline.yaml"
    path.write_text(text.replace(old, new))
    made = plan(load_pipeline(path, {}), load_profile(None, tmp_path, {}), ("a:1",), ())
    assert python_plan(made, spark, parsed(SOURCE)) is None
