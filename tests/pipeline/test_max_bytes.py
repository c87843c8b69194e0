"""`max_bytes`: what Spark planned is divided into transactions that read no more than that."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.copies.recovery import run_verb
from support.delta import lake
from support.errors import in_turn
from support.kafka import kafka_io
from support.kafka.brokers import Kafka
from support.spark.project import KILLED, PIPELINE, Project, WarmDriver
from support.verbs import audit, verify
from support.waiting import wait_until

from eos.plan.reader import OVERRIDE

MAX = 2 << 20
# Records of a partition: from the middle of the topic on, they are a hundred times as large. Spark
# plans all of them as one micro-batch.
SMALL, LARGE = (4000, 100), (400, 10_000)
SIZES = [size for count, size in (SMALL, LARGE) for _ in range(count)]
PARTITIONS = 3

LIMITED = PIPELINE.replace("max_records: {records}", "max_bytes: 2 MiB")
COPIED = LIMITED.replace(
    'transform:\n  - {{python: "pipelines.{module}.transform:passed_on"}}\n', ""
)
DEDUP = LIMITED[: LIMITED.index("transform")] + (
    "dedup: {{producer: {{id: header(producer), epoch: header(epoch), sequence: "
    "header(sequence)}}}}\n" + LIMITED[LIMITED.index("sink") :]
)

LAKE = """
version: 1
name: {name}
source: {{kafka: {{topic: {source}, max_bytes: 2 MiB}}}}
transform:
  - sql: SELECT CAST(value AS STRING) AS text FROM input
sink: {{delta: {{path: FOLDER/lake/all}}}}
trigger: {{available_now: true}}
"""


def fill(project: Project) -> Counter[bytes]:
    """Write the records, and return how often the target should have each value."""
    bootstrap = project.broker.bootstrap
    kafka_io.create_topics(bootstrap, PARTITIONS, project.source)
    writer = kafka_io.producer(bootstrap, {"batch.size": 16_384})
    found: Counter[bytes] = Counter()
    for number, size in enumerate(SIZES):
        for partition in range(PARTITIONS):
            value = (b"%d-%d-" % (partition, number)).ljust(size, b".")
            stamp = {"producer": partition, "epoch": 0, "sequence": number}
            headers = [(name, b"%d" % each) for name, each in stamp.items()]
            writer.produce(project.source, value, None, partition, headers=headers)
            found[value] += 1
        writer.poll(0)
    assert writer.flush(300) == 0
    return found


def attempts(project: Project) -> Sequence[Mapping[str, Any]]:
    """The ledger's records of committed attempts."""
    rows = kafka_io.read(project.broker.bootstrap, project.ledger)
    every = [json.loads(row.value or b"") for row in rows]
    return [each for each in every if each["kind"] == "attempt"]


def bytes_read(project: Project, record: Mapping[str, Any]) -> int:
    """The bytes of the values that a transaction has read, by its ledger record."""
    starts, ends = record["attempt"]["starts"][project.source], record["ends"][project.source]
    return sum(sum(SIZES[starts[p] : end]) for p, end in ends.items())


def require_bounded(project: Project) -> None:
    sizes = [bytes_read(project, each) for each in attempts(project)]
    assert max(sizes) <= MAX, sizes
    assert sum(sizes) == PARTITIONS * sum(SIZES)
    assert len(sizes) < 4 * sum(sizes) / MAX, f"{len(sizes)} transactions are far below the limit"


def require_proven(project: Project, expected: Counter[bytes]) -> None:
    found = kafka_io.read(project.broker.bootstrap, project.target)
    assert Counter(each.value for each in found) == expected
    for verb in (verify, audit):
        proven = run_verb(verb, *project.words(), "--json")
        assert proven.code == 0, proven


@pytest.mark.parametrize(
    ("text", "reader"),
    [
        pytest.param(LIMITED, "arrow", id="a transform"),
        pytest.param(LIMITED, "spark", id="a transform, Spark's reader", marks=pytest.mark.nightly),
        pytest.param(COPIED, "arrow", id="without the JVM", marks=pytest.mark.long),
        pytest.param(DEDUP, "arrow", id="dedup", marks=pytest.mark.long),
        pytest.param(DEDUP, "spark", id="dedup, Spark's reader", marks=pytest.mark.nightly),
    ],
)
def test_records_that_grow_in_the_middle_of_the_topic(
    project: Project, text: str, reader: str
) -> None:
    project.declare(0, text=text)
    expected = fill(project)
    drained = project.run_warm(**{OVERRIDE: reader})
    assert drained.returncode == 0, drained.stderr
    require_bounded(project)
    assert {each["batch_id"] for each in attempts(project)} == {0}  # Spark planned one
    require_proven(project, expected)
    # Spark's checkpoint is complete, so the next run resumes with it.
    again = project.run_warm(**{OVERRIDE: reader})
    assert again.returncode == 0, again.stderr
    assert " committed: " not in again.stderr
    assert not (project.folder / "state" / "checkpoints" / project.name / "0002").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(LIMITED, id="a transform"),
        pytest.param(DEDUP, id="dedup", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("point", in_turn(["end_txn_sent:before", "end_txn_answered:after"], 1))
def test_a_run_that_dies_between_two_transactions_of_a_micro_batch(
    project: Project, point: str, text: str
) -> None:
    project.declare(0, text=text)
    expected = fill(project)
    died = project.run_warm(EOS_CRASH_AT=f"{point}:both")
    assert died.returncode == KILLED, died.stderr
    drained = project.run_warm()
    assert drained.returncode == 0, drained.stderr
    require_bounded(project)
    require_proven(project, expected)


@pytest.mark.long
def test_a_run_that_is_stopped_between_two_transactions_of_a_micro_batch(project: Project) -> None:
    project.declare(0, text=LIMITED)
    expected = fill(project)
    run = project.start_warm()
    wait_until(lambda: " committed: " in run.said(), run.said)
    run.send_signal(signal.SIGTERM)
    assert run.wait() == 0, run.said()
    drained = project.run_warm()
    assert drained.returncode == 0, drained.stderr
    require_bounded(project)
    require_proven(project, expected)


@pytest.mark.nightly
def test_a_table_has_a_commit_for_each_transaction(
    tmp_path: Path, broker: Kafka, with_delta: WarmDriver
) -> None:
    """The run dies between two of them, before the table has the rows of the first."""
    made = Project.made(tmp_path, broker, with_delta)
    made.declare(0, text=LAKE.replace("FOLDER", str(made.folder)))
    expected = fill(made)
    died = made.run_warm(EOS_CRASH_AT="tables:before:both")
    assert died.returncode == KILLED, died.stderr
    drained = made.run_warm()
    assert drained.returncode == 0, drained.stderr
    require_bounded(made)
    found = Counter(row["text"].encode() for row in lake.rows(lake.table(made, "all")))
    assert found == expected
    count = len(attempts(made))
    assert count > 1
    lake.require_proven(made, "all", micro_batches=count, commits=count, inserted=len(expected))


def test_once_ignores_the_limit_with_a_warning_and_state_refuses_it(project: Project) -> None:
    project.declare(0, text=LIMITED)
    kafka_io.create_topics(project.broker.bootstrap, 1, project.source)
    kafka_io.fill(project.broker.bootstrap, project.source, range(10))
    once = project.run_warm("--once")
    assert once.returncode == 0, once.stderr
    assert f"so `max_bytes: {MAX}` of the pipeline file is ignored" in once.stderr

    distinct = "dedup: {{by: [value], within: 1 hour, watermark: timestamp}}\nsink:"
    project.declare(0, text=LIMITED.replace("sink:", distinct))
    refused = project.run_warm()
    assert refused.returncode == 2, refused.stderr
    assert "`source.kafka.max_bytes` can't be used" in refused.stderr
