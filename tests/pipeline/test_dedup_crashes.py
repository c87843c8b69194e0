"""SIGKILL of driver and JVM where dedup adds to a micro-batch, under an upstream that resends.

`tests/kafka/test_dedup_crashes.py` dies at every step, without Spark. Here is what only Spark has:
states that its Python workers wrote, and a task of the next life that reads them.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.kafka import kafka_io
from support.spark.project import KILLED, Project
from support.verbs import verify

from eos.dedup.buckets import SCOPE_STATES, STATES, read_states, write_states
from eos.dedup.state_table import ProducersTable, StateVersion
from eos.micro_batch.jobs import ONE_TASK_RECORDS_MAX

pytestmark = pytest.mark.long

PIPELINE = """
version: 1
name: {name}
source: {{kafka: {{topic: {source}, max_records: {records}}}}}
dedup: {{producer: {{id: key, epoch: header(epoch), sequence: header(sequence)}}}}
sink: {{kafka: {{topic: {target}, create: {{partitions: {partitions}}}}}}}
trigger: {{available_now: true}}
"""
SPREAD = PIPELINE.replace("dedup: {{", "dedup: {{scope: producer, ")
PARTITIONS, TURN, RESENT = 2, 20, 5
# In this order: files that no version of the table names; a version that no ledger record names;
# one whose commit took that out again, and of which only the broker knows whether it counts.
STEPS = ("producers:before", "producers:after", "end_txn_sent:after")


def send(project: Project, epoch: int, first: int, last: int) -> None:
    """In each partition a producer of its own. What it says is its stamp."""
    producer = kafka_io.producer(project.broker.bootstrap)
    for number in range(first, last):
        for partition in range(PARTITIONS):
            producer.produce(
                project.source,
                key=f"app-{partition}",
                value=f"{epoch}:{number}",
                partition=partition,
                headers=[("epoch", str(epoch)), ("sequence", str(number))],
            )
    assert producer.flush(300) == 0


def states(project: Project, schema: pa.Schema = STATES) -> dict[str, tuple[int, int]]:
    """Epoch and last number of each producer, in the version that the ledger names."""
    rows = kafka_io.read(project.broker.bootstrap, project.ledger)
    version = StateVersion.of(json.loads(rows[-1].value or b"")["producers"])
    (folder,) = (project.folder / "state" / "dedup").iterdir()
    found = {}
    for file in ProducersTable(Path(folder), project.name).files(version).values():
        for row in read_states(folder, file, schema).to_pylist():
            # With `scope: producer`, `base` is the lowest number that is missing.
            last = row["base"] - 1 if "base" in row else row["last"][-1]
            found[row["producer"].decode()] = row["epoch"], last
    return found


@pytest.mark.timeout(1800)  # four starts of Spark
def test_each_record_once_and_the_states_right_whatever_dies_when(project: Project) -> None:
    """Each life reads what the one before left, and what was sent twice meanwhile."""
    project.declare(2 * TURN, PARTITIONS, text=PIPELINE)
    kafka_io.create_topics(project.broker.bootstrap, PARTITIONS, project.source)
    send(project, 0, 0, TURN)
    assert project.run_warm().returncode == 0  # from here on there are states to go back to
    for turn, step in enumerate(STEPS, 1):
        send(project, 0, turn * TURN - RESENT, (turn + 1) * TURN)
        died = project.run_warm(EOS_CRASH_AT=f"{step}:both")
        assert died.returncode == KILLED, died.stderr
    sent = (len(STEPS) + 1) * TURN
    send(project, 1, 0, TURN)  # another instance
    send(project, 0, 0, sent + TURN)  # the one before wakes up, and begins anew
    send(project, 1, 0, TURN)
    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    rows = kafka_io.read(project.broker.bootstrap, project.target)
    came_out = Counter((row.partition, (row.value or b"").decode()) for row in rows)
    once = [*(f"0:{n}" for n in range(sent)), *(f"1:{n}" for n in range(TURN))]
    assert Counter(value for _, value in came_out.elements()) == Counter(once * PARTITIONS)
    assert states(project) == {f"app-{p}": (1, TURN - 1) for p in range(PARTITIONS)}
    code, report = verified(project)
    assert (code, report["findings"]) == (0, [])
    sent_in_all = sum(kafka_io.ends(project.broker.bootstrap, project.source).values())
    assert report["dropped"]["proven"] == sent_in_all - came_out.total()
    shown = report["dropped"]["shown"]
    assert {each["reason"] for each in shown} == {"duplicate", "fenced"}
    assert all(each["proof"]["offset"] < each["offset"] for each in shown)
    # With nothing but states, all of it once more is dropped; and proven by what came before the
    # last verification.
    send(project, 1, 0, TURN)
    done = project.run_warm()
    assert f"dedup dropped {PARTITIONS * TURN} duplicate" in done.stderr
    code, report = verified(project)
    assert (code, report["findings"], report["from_start"]) == (0, [], False)
    assert report["dropped"]["proven"] == PARTITIONS * TURN


@pytest.mark.nightly
@pytest.mark.timeout(1800)  # five starts of Spark
def test_each_record_once_if_the_driver_dies_between_write_and_validation(project: Project) -> None:
    """With `scope: producer` several tasks write the records, and then find duplicates."""
    many = ONE_TASK_RECORDS_MAX // PARTITIONS + 1000
    project.declare(4 * many, PARTITIONS, text=SPREAD)
    kafka_io.create_topics(project.broker.bootstrap, PARTITIONS, project.source)
    send(project, 0, 0, many)
    assert project.run_warm().returncode == 0
    steps = ("judging:before", "judging:after", "producers:before", "end_txn_sent:after")
    for turn, step in enumerate(steps, 1):
        send(project, 0, turn * many - RESENT, (turn + 1) * many)
        died = project.run_warm(EOS_CRASH_AT=f"{step}:both")
        assert died.returncode == KILLED, died.stderr
        found = f": {PARTITIONS * RESENT} duplicate records were written before dedup"
        was_done_again = found in died.stderr
        assert was_done_again != step.startswith("judging")
    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    rows = kafka_io.read(project.broker.bootstrap, project.target)
    came_out = Counter((row.key, row.value) for row in rows)
    assert len(rows) == len(came_out) == PARTITIONS * many * (len(steps) + 1)
    last = many * (len(steps) + 1) - 1
    assert states(project, SCOPE_STATES) == {f"app-{p}": (0, last) for p in range(PARTITIONS)}
    code, report = verified(project)
    assert (code, report["findings"]) == (0, [])


def test_a_state_that_lies_is_found_out_by_verify(project: Project) -> None:
    """It says that more numbers were accepted than were: what is sent next is dropped."""
    project.declare(2 * TURN, PARTITIONS, text=PIPELINE)
    kafka_io.create_topics(project.broker.bootstrap, PARTITIONS, project.source)
    send(project, 0, 0, TURN)
    assert project.run_warm().returncode == 0
    assert verified(project)[0] == 0
    for place in (project.folder / "state" / "dedup").rglob("*.parquet"):
        rows = pq.read_table(place, schema=STATES).to_pylist()
        lying = [{**row, "first": [0], "last": [TURN + 9]} for row in rows]
        write_states(place.parent, place.name, pa.Table.from_pylist(lying, STATES))
    send(project, 0, TURN, 2 * TURN)
    done = project.run_warm()
    assert f"dedup dropped {10 * PARTITIONS} duplicate" in done.stderr, done.stderr
    code, report = verified(project)
    assert (code, report["from_start"]) == (1, False)
    assert [each["case"] for each in report["findings"]] == ["unproven"] * PARTITIONS
    smallest = report["smallest"]
    assert (smallest["topic"], smallest["partition"]) == (project.source, 0)
    assert smallest["offset"] == TURN
    assert "for 10 of them an earlier copy was not found" in smallest["message"]


def verified(project: Project) -> tuple[int, dict]:
    """`eos verify`, in this process."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = verify([*project.words(), "--json"])
    return code, json.loads(out.getvalue())
