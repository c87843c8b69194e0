"""Tasks that exchange record batches, and then validate each other's stamps: on a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.dedup import policy
from support.errors import in_turn
from support.kafka import kafka_io
from support.kafka.brokers import Kafka
from support.kafka.kafka_io import NOW_MS, Record
from support.spark.spark_session import local_spark

from eos.checkpoint.offset_log import Ranges
from eos.config.load import load_pipeline, load_profile
from eos.deadline import Deadline
from eos.dedup.stamp_columns import StampPlace, StampRules
from eos.dedup.state_table import ProducersTable
from eos.dedup.state_versions import StateVersions
from eos.encode.stage import EncodeStage
from eos.faults import CrashPlan
from eos.kafka.api import TopicPartition, TransactionProfile
from eos.kafka.client import KafkaClient
from eos.kafka.range_fetcher import Range
from eos.kafka.settings import KafkaSettings
from eos.kafka.target_partitions import Targets
from eos.ledger import receipt
from eos.ledger.record import Position
from eos.plan.plan import Plan, plan
from eos.spark.arrow_source import SPARK_SCHEMA, ArrowSource
from eos.spark.dedup_run import DedupRun
from eos.spark.exchange import Exchange
from eos.spark.fused_step import parsed
from eos.spark.python_plan import python_plan
from eos.spark.python_rows import PythonRows
from eos.spark.tasks import ExchangeTask, WriteStage
from eos.transaction.coordinator import Coordinator
from eos.transform.functions import Function

pytestmark = pytest.mark.spark

TEXT = """\
version: 1
name: orders
source: {{kafka: {{topic: {topic}}}}}
dedup: {{producer: {{id: header(p), epoch: header(e), sequence: header(s)}}, scope: producer}}
sink: {{kafka: {{topic: {target}}}}}
"""
PRODUCERS, RECORDS, TASKS = 40, 400, 2
WAIT_S_MAX = 300
HEADERS = StampPlace("header", "p"), StampPlace("header", "e"), StampPlace("header", "s")


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("dedup_exchange", TASKS) as session:
        yield session


def record(number: int) -> Record:
    headers = ("p", b"%d" % (number % PRODUCERS)), ("e", b"0"), ("s", b"%d" % (number // PRODUCERS))
    return Record(number * TASKS // RECORDS, None, b"%d" % number, headers, NOW_MS)


def waiting_for(file: Path, partition: int) -> Any:
    """A step that holds the rows of one partition until there is this file."""
    place, wait_s = str(file), WAIT_S_MAX

    def step(rows: Any) -> Any:
        import os
        import time

        give_up_at = time.monotonic() + wait_s
        while rows["partition"][0].as_py() == partition and not os.path.exists(place):  # noqa: PTH110
            assert time.monotonic() < give_up_at, "the other task has not encoded its rows"
            time.sleep(0.01)
        return rows

    return step


def planned(folder: Path, topic: str, target: str, step: Any) -> Plan:
    path = folder / "pipeline.yaml"
    path.write_text(TEXT.format(topic=topic, target=target))
    function = Function("mine:step", {}, step, (), "", "arrow", "*")
    return plan(load_pipeline(path, {}), load_profile(None, folder, {}), ("a:1",), (function,))


@pytest.fixture
def name() -> str:
    """A transactional id, and a part of topics' names."""
    return f"t-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def coordinator(broker: Kafka, name: str) -> Iterator[Coordinator]:
    """One with an open attempt, which is aborted at the end."""
    client = KafkaClient(KafkaSettings((broker.bootstrap,)), TransactionProfile.TV2)
    owner = Coordinator(client, name, name, WAIT_S_MAX * 1000)
    owner.fence(soon())
    owner.begin(soon())
    yield owner
    owner.abort(soon())
    client.close()


def soon() -> Deadline:
    return Deadline.after_ms(WAIT_S_MAX * 1000)


@pytest.mark.parametrize("late", in_turn(range(TASKS), 1))
def test_no_task_validates_before_all_stamps_are_there(
    spark, tmp_path, broker, name, coordinator, late
) -> None:
    """One task reads its last rows after the other has encoded all of its own. Both then validate
    shards, with stamps of both."""
    topic, target = f"{name}.in", f"{name}.out"
    kafka_io.create_topics(broker.bootstrap, TASKS, topic, target)
    kafka_io.write_records(broker.bootstrap, topic, map(record, range(RECORDS)))
    folder = tmp_path / "exchange"
    step = waiting_for(folder / f"{1 - late}.done", late)
    made = planned(tmp_path, topic, target, step)
    places = [TopicPartition(topic, task) for task in range(TASKS)]
    ends = kafka_io.ends(broker.bootstrap, topic)
    ranges = Ranges(dict.fromkeys(places, 0), {tp: ends[tp.partition] for tp in places})
    settings = KafkaSettings((broker.bootstrap,))
    read = [[Range(tp, 0, end)] for tp, end in ranges.ends.items()]
    source = ArrowSource(settings, TransactionProfile.TV2, read)

    rules = StampRules(*HEADERS, policy(window=999))
    table = ProducersTable(tmp_path / "producers", "orders")
    versions = StateVersions("orders", table, rules.policy, rules.reading, topic)
    run = DedupRun(rules, versions, CrashPlan(), TASKS)
    begun = run.begin(
        lambda: source.frame(spark), Position({}, {}), lambda job: job.collect(), in_one_task=False
    )
    found = python_plan(made, spark, parsed(SPARK_SCHEMA))
    assert found is not None
    rows = PythonRows(spark, source, replace(found, validation=begun.validation))
    targets = Targets.of({target: (TASKS, 1 << 20)})
    crash = CrashPlan().of_tasks(0)
    write = WriteStage(
        settings,
        TransactionProfile.TV2,
        name,
        coordinator.identity,
        targets,
        WAIT_S_MAX * 1000,
        crash,
    )
    encode = EncodeStage(made.sinks, targets, TASKS, NOW_MS, source_topic=topic)
    with Exchange(str(folder), TASKS, TASKS).opened() as exchange:
        task = ExchangeTask(encode, write, exchange, begun.after_write(TASKS))
        collected = rows.mapped(task, receipt.SCHEMA, barrier=True).collect()
    assert sum(each.records for each in receipt.check(collected, targets)) == RECORDS
    assert begun.states.validated() == dict.fromkeys(places, RECORDS // TASKS)
    assert begun.complete_in_python(receipt.records_read(collected), ranges) == ()
    assert begun.commit_states().summary["verdicts"] == {"appended": RECORDS}
