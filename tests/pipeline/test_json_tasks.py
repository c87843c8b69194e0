"""JSON that Python tasks parse, in a whole pipeline, beside the same pipeline on Spark's source.

A large micro-batch sends the JVM only the columns that the step needs. A small one is one task.
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest
from support import inputs
from support.kafka import kafka_io
from support.kafka.brokers import Kafka
from support.spark.project import Project, WarmDriver

from eos.launch.java_compiler import NOTES
from eos.testing import outside

PARTITIONS = 4
SMALL, LARGE = 1_000, 51_000
COLUMNS = [("id", "BIGINT"), ("name", "STRING"), ("amount", "DOUBLE"), ("at", "TIMESTAMP")]
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS)
PIPELINE = """
version: 1
name: {name}
source:
  kafka: {{topic: SOURCE, max_records: {records}}}
  value: {{json: "SCHEMA, note STRING"}}
  on_error: dead_letter
expect:
  - {{name: early, rule: at IS NULL OR year(at) < 9000, on_error: dead_letter}}
transform:
  - sql: SELECT key, id, amount * 2 AS twice, at, name FROM input WHERE name IS NULL OR name <> 'x'
sink:
  kafka: {{topic: {target}, value: json, create: {{partitions: {partitions}}}}}
  dead_letter: {{topic: {target}.dlq, create: {{partitions: 2}}}}
trigger: {{available_now: true}}
"""

PLAIN = """
version: 1
name: {name}
source:
  kafka: {{topic: {source}, max_records: {records}}}
  value: {{json: "id BIGINT, name STRING"}}
  on_error: dead_letter
transform:
  - sql: SELECT key, id + 1 AS next, name FROM input WHERE id <> 3
sink:
  kafka: {{topic: {target}, value: json, create: {{partitions: {partitions}}}}}
  dead_letter: {{topic: {target}.dlq, create: {{partitions: 2}}}}
trigger: {{available_now: true}}
"""


def fill(bootstrap: str, topic: str, count: int) -> None:
    kafka_io.create_topics(bootstrap, PARTITIONS, topic)
    chance, now_ms = random.Random(count), int(time.time() * 1000)
    texts = [None, *(inputs.json_text(chance, COLUMNS) for _ in range(2_000))]

    def record(number: int) -> dict[str, object]:
        value = texts[number % len(texts)]
        return {"key": b"%d" % number, "value": value, "timestamp": now_ms - number}

    outside.fill(bootstrap, topic, (record(number) for number in range(count)))


def outputs(project: Project) -> tuple[list, list]:
    """Records of the target, and dead letters with their reasons and places."""
    bootstrap = project.broker.bootstrap
    out = kafka_io.read_records(bootstrap, project.target)
    dead = kafka_io.read_records(bootstrap, f"{project.target}.dlq")
    told = ("eos.rule", "eos.error", "eos.partition", "eos.offset")
    return (
        sorted((row.key, row.value or b"") for row in out),
        sorted((row.key, row.value, *(row.told[name] for name in told)) for row in dead),
    )


@pytest.mark.parametrize("records", [SMALL, pytest.param(LARGE, marks=pytest.mark.nightly)])
def test_the_records_are_those_of_sparks_source(
    broker: Kafka, warm: WarmDriver, tmp_path: Path, records: int
) -> None:
    found = []
    source = f"json-tasks.{records}"
    fill(broker.bootstrap, source, records + 500)  # the second micro-batch is a small one
    for reader in ("arrow", "spark"):
        (tmp_path / reader).mkdir()
        project = Project.made(tmp_path / reader, broker, warm)
        text = PIPELINE.replace("SOURCE", source).replace("SCHEMA", SCHEMA)
        project.declare(records, PARTITIONS, text)
        done = project.run_warm(EOS_READER=reader)
        assert done.returncode == 0, done.stderr
        found.append(outputs(project))
    ours, theirs = found
    assert ours == theirs
    out, dead = ours
    assert len(out) > records // 3
    assert {row[2] for row in dead} == {"malformed", "early"}
    assert len(out) + len(dead) < records + 500


@pytest.mark.parametrize("records", [SMALL, pytest.param(LARGE, marks=pytest.mark.long)])
def test_spark_runs_the_steps_of_an_attempt_whose_records_need_it(
    project: Project, records: int
) -> None:
    """A malformed record in the second micro-batch of four: Spark runs it and the third. The note
    for the next run's JVM says so."""
    micro_batches = 4
    project.declare(records, PARTITIONS, PLAIN)
    kafka_io.create_topics(project.broker.bootstrap, 1, project.source)
    wrong = records * 2 - 1

    def record(number: int) -> dict[str, object]:
        value = b"{" if number == wrong else b'{"id": %d, "name": "n"}' % number
        return {"key": b"%d" % number, "value": value}

    every = range(records * micro_batches)
    outside.fill(project.broker.bootstrap, project.source, map(record, every))
    note = project.folder / "note"
    note.write_text("python")
    notes = {NOTES: json.dumps({project.name: str(note)})}
    done = project.run_warm(**notes)
    assert done.returncode == 0, done.stderr
    assert note.read_text() == "jvm"
    out, dead = outputs(project)
    assert out == sorted(
        (b"%d" % number, b'{"next":%d,"name":"n"}' % (number + 1))
        for number in every
        if number not in (3, wrong)
    )
    assert [row[:3] for row in dead] == [(b"%d" % wrong, b"{", "malformed")]
    left = "micro-batch 1: Spark has to run the steps on some records: a JSON value is malformed"
    assert left in done.stderr
    assert done.stderr.count("Spark has to run the steps") == 1
    assert ", attempt 2" not in done.stderr
    assert done.stderr.count(" committed: ") == micro_batches
    outside.fill(project.broker.bootstrap, project.source, map(record, range(10)))
    done = project.run_warm(**notes)
    assert done.returncode == 0, done.stderr
    assert note.read_text() == "python"
