"""Pipelines whose records never enter the JVM, beside the same pipelines on Spark's own source.

Small micro-batches are one task. Large ones are tasks that exchange record batches through files,
and wait for each other: a worker that dies must not leave the others waiting.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from support.kafka import kafka_io
from support.kafka.brokers import Kafka
from support.spark.executor_faults import FaultyRun
from support.spark.project import Project, WarmDriver

from eos.testing import outside

PARTITIONS = 4
SMALL, LARGE = 1_000, 51_000  # one task; an exchange
STEPS = {
    "none": "",
    "arrow": 'transform: [{{arrow: "pipelines.{module}.transform:in_arrow", returns: "*"}}]',
    "pandas": 'transform: [{{pandas: "pipelines.{module}.transform:in_pandas", returns: "SOME"}}]',
}
TRANSFORM = '''
import pyarrow.compute as pc


def in_arrow(rows):
    """Every second record, its key in capitals."""
    rows = rows.filter(pc.equal(pc.bit_wise_and(rows["offset"], 1), 0))
    keys = pc.utf8_upper(rows["key"].cast("string")).cast("binary")
    assert rows["headers"].null_count == 0
    return rows.set_column(rows.schema.get_field_index("key"), "key", keys)


def in_pandas(rows):
    """Its hour, as Spark's session has it, and its place in the source."""
    texts = rows["timestamp"].dt.strftime("%H") + rows["value"].str.decode("utf-8").fillna("-")
    assert rows["headers"].map(len).max() <= 2
    return rows.assign(value=texts.str.encode("utf-8"))
'''
RETURNS = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT"
PIPELINE = """
version: 1
name: {name}
source: {{kafka: {{topic: {source}, max_records: {records}}}}}
STEP
sink: {{kafka: [{{topic: {target}, create: {{partitions: {partitions}}}}}]}}
trigger: {{available_now: true}}
"""
Record = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def declare(project: Project, step: str, records: int, source: str) -> None:
    text = STEPS[step].replace("SOME", RETURNS)
    project.declare(records, PARTITIONS, PIPELINE.replace("STEP", text).replace("{source}", source))
    place = project.folder / "pipelines" / project.name
    (place / "transform.py").write_text(TRANSFORM)


def fill(bootstrap: str, topic: str, count: int) -> None:
    kafka_io.create_topics(bootstrap, PARTITIONS, topic)
    now_ms = int(time.time() * 1000)

    def record(number: int) -> dict[str, object]:
        return {
            "key": b"k%d" % (number % 97),
            "value": None if number % 11 == 0 else b"v%d" % number,
            "headers": [("a", b"1"), ("a", None)][: number % 3],
            "timestamp": now_ms - number * 50,
        }

    outside.fill(bootstrap, topic, (record(number) for number in range(count)))


def read(bootstrap: str, topic: str) -> dict[int, list[Record]]:
    """The records of each partition, in order."""
    found: dict[int, list[Record]] = {number: [] for number in range(PARTITIONS)}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "outside",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        still_open = set(range(PARTITIONS))
        while still_open:
            (message,) = consumer.consume(1, timeout=300)
            if message.error() is not None:
                assert message.error().code() == -191, message.error()  # _PARTITION_EOF
                still_open.discard(message.partition())
                continue
            headers = tuple(message.headers() or ())
            found[message.partition()].append((message.key(), message.value(), headers))
    finally:
        consumer.close()
    return found


def by_key(partitions: dict[int, list[Record]]) -> dict[tuple[int, bytes | None], list[Record]]:
    """The records of each key, in order: those of different keys have no order."""
    found: dict[tuple[int, bytes | None], list[Record]] = {}
    for number, records in partitions.items():
        for record in records:
            found.setdefault((number, record[0]), []).append(record)
    return found


@pytest.mark.parametrize(
    ("step", "records"),
    [
        pytest.param("none", LARGE, marks=pytest.mark.nightly),
        pytest.param("arrow", LARGE, marks=pytest.mark.long),
        pytest.param("pandas", LARGE, marks=pytest.mark.nightly),
        pytest.param("arrow", SMALL, marks=pytest.mark.nightly),
        ("pandas", SMALL),
    ],
)
def test_the_records_are_those_of_sparks_source(
    broker: Kafka, warm: WarmDriver, tmp_path: Path, step: str, records: int
) -> None:
    outputs = []
    count = records * 3 // 2  # two micro-batches
    source = f"python-tasks.{step}.{records}"
    fill(broker.bootstrap, source, count)
    for reader in ("arrow", "spark"):
        (tmp_path / reader).mkdir()
        project = Project.made(tmp_path / reader, broker, warm)
        declare(project, step, records, source)
        done = project.run_warm(EOS_READER=reader)
        assert done.returncode == 0, done.stderr
        name = "the Arrow reader" if reader == "arrow" else "Spark's Kafka source"
        assert f"{name} reads the source" in done.stderr
        assert f"{count:,} records in" in summed(done.stderr)
        outputs.append(by_key(read(project.broker.bootstrap, project.target)))
    assert outputs[0] == outputs[1]
    records_out = sum(map(len, outputs[0].values()))
    assert records_out == count if step != "arrow" else 0 < records_out < count


def summed(log: str) -> str:
    """The records of all micro-batches, as a line of the log has those of one."""
    lines = [line for line in log.splitlines() if " committed: " in line]
    total = sum(
        int(line.partition(" committed: ")[2].partition(" records")[0].replace(",", ""))
        for line in lines
    )
    return f"{total:,} records in"


@pytest.mark.long
@pytest.mark.parametrize(
    "fault",
    [
        "encode:before",
        pytest.param("encode:after", marks=pytest.mark.nightly),
        pytest.param("first_produce:before", marks=pytest.mark.nightly),
    ],
)
def test_no_task_waits_for_a_worker_that_died(broker: Kafka, tmp_path: Path, fault: str) -> None:
    project = Project.made(tmp_path, broker)
    declare(project, "none", LARGE, project.source)
    fill(broker.bootstrap, project.source, 2 * LARGE)
    faults = [f"1/{fault}:worker"]
    with FaultyRun(project, faults) as run:
        assert run.wait() == 0, run.said()
        run.check_each_struck(faults)
    found = read(broker.bootstrap, project.target)
    went_in = read(broker.bootstrap, project.source)
    every = [record for records in found.values() for record in records]
    assert Counter(every) == Counter(record for records in went_in.values() for record in records)
