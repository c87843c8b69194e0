"""Upstreams that send twice: each record is written once, counts are reported, and gaps stop."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack

import pytest
from support.dedup.model import Till
from support.kafka import kafka_io
from support.spark.project import CHECKOUT, Project

from eos.micro_batch.jobs import ONE_TASK_RECORDS_MAX

PIPELINE = """
version: 1
name: {name}
source: {{kafka: {{topic: {source}, max_records: {records}}}}}
dedup: {{producer: {{id: header(producer), epoch: header(epoch), sequence: header(sequence)}}}}
transform:
  - sql: SELECT * FROM input WHERE CAST(CAST(value AS STRING) AS INT) % 10 > 0
sink: {{kafka: {{topic: {target}, create: {{partitions: {partitions}}}}}}}
trigger: {{available_now: true}}
"""
PARTITIONS = 2
AGAIN = re.compile(r"attempt \d+: (.*) records were written before dedup validated")


class Upstream:
    """One producer a partition: `app-PARTITION`. Its value is its number."""

    def __init__(self, project: Project) -> None:
        self._topic = project.source
        self._producer = kafka_io.producer(project.broker.bootstrap)

    def send(self, epoch: int, numbers: Iterable[int], first: int = 0, who: str = "app") -> None:
        """`first`: the number whose sequence is 0."""
        for number in numbers:
            for partition in range(PARTITIONS):
                stamp = {"producer": f"{who}-{partition}", "epoch": epoch}
                stamp |= {"sequence": number - first}
                self._producer.produce(
                    self._topic,
                    b"%d" % number,
                    partition=partition,
                    # Of several headers with a name the last counts, as for Kafka's clients.
                    headers=[("sequence", "7"), *((k, str(v)) for k, v in stamp.items())],
                )
        assert self._producer.flush(300) == 0


def made(project: Project, records: int = 1000) -> Upstream:
    project.declare(records, PARTITIONS, text=PIPELINE)
    kafka_io.create_topics(project.broker.bootstrap, PARTITIONS, project.source)
    return Upstream(project)


def came_out(project: Project) -> Counter[int]:
    rows = kafka_io.read(project.broker.bootstrap, project.target)
    return Counter(int(row.value or b"-1") for row in rows)


def once(numbers: Iterable[int]) -> Counter[int]:
    return Counter({n: PARTITIONS for n in numbers if n % 10})


def positions(project: Project) -> list[dict]:
    rows = kafka_io.read(project.broker.bootstrap, project.ledger)
    return [{**json.loads(row.value or b""), "offset": row.offset} for row in rows]


def attempts(project: Project) -> list[dict]:
    return [body for body in positions(project) if body["kind"] == "attempt"]


def recovered(project: Project, *words: str) -> str:
    return verb(project, "recover", *words)


def verb(project: Project, name: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "eos", name, *project.words(), *words],
        env=project.environment(),
        cwd=project.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ran(project: Project) -> str:
    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.long
def test_an_upstream_that_resends_restarts_and_is_replaced(project: Project) -> None:
    upstream = made(project, records=120)  # several micro-batches
    upstream.send(0, range(100))
    upstream.send(0, range(75, 100))  # heard no answer
    output = ran(project)
    assert "dedup dropped" in output
    assert not AGAIN.search(output), "rows wait for their verdicts"
    upstream.send(0, range(80, 110))  # crashed, and resends what it does not know of
    upstream.send(1, range(110, 130), first=110)  # another instance takes over
    upstream.send(0, range(110, 115))  # the first one wakes up
    ran(project)
    assert came_out(project) == once(range(130))
    sums: Counter[str] = Counter()
    for body in attempts(project):
        sums.update(body["attempt"]["dedup"]["verdicts"])
    assert sums == {"appended": 260, "duplicate": 90, "fenced": 10}
    # Nothing new: a run that finds nothing changes nothing.
    ran(project)
    assert came_out(project) == once(range(130))
    # So many that several tasks validate them.
    many = ONE_TASK_RECORDS_MAX // PARTITIONS + 1000
    project.declare(4 * many, PARTITIONS, text=PIPELINE)
    upstream.send(1, range(130, many), first=110)
    upstream.send(1, range(many - 7, many), first=110)
    assert not AGAIN.search(ran(project)), "rows wait for their verdicts"
    assert came_out(project) == once(range(many))


def test_a_gap_stops_before_anything_is_written(project: Project) -> None:
    upstream = made(project)
    upstream.send(0, range(20))
    ran(project)
    upstream.send(0, range(25, 30))
    done = project.run_warm()
    assert done.returncode == 4
    assert "[producer_refused]" in done.stderr
    assert "sequence 25, expected 20)" in done.stderr
    assert came_out(project) == once(range(20))
    recovered(project, "--accept-gap", "--yes")
    output = ran(project)
    assert "accepted 2 gap" in output
    assert came_out(project) == once([*range(20), *range(25, 30)])
    upstream.send(0, [33])
    assert project.run_warm().returncode == 4  # once means once


@pytest.mark.long
def test_a_rewind_reads_again_with_the_states_of_then(project: Project) -> None:
    upstream = made(project)
    upstream.send(0, range(20))
    ran(project)
    (first,) = attempts(project)
    upstream.send(0, range(10, 30))
    ran(project)
    shutil.rmtree(project.folder / "state" / "checkpoints")  # which changes nothing
    recovered(project, "--rewind-to", str(first["offset"]), "--yes")
    assert first["producers"] == positions(project)[-1]["producers"]
    output = ran(project)
    assert "dropped 20 duplicate" in output
    assert came_out(project) == once(range(20)) + once(range(20, 30)) + once(range(20, 30))
    # Further back than there are states of.
    shutil.rmtree(project.folder / "state" / "dedup")
    done = project.run_warm()
    assert done.returncode == 4
    assert "--forget-producers" in done.stderr
    recovered(project, "--forget-producers", "--yes")
    recovered(project, "--rewind-to", str(first["offset"]), "--yes")
    upstream.send(0, range(30, 40))
    ran(project)
    assert came_out(project)[39] == PARTITIONS


@pytest.mark.long
@pytest.mark.parametrize("scope", ["partition", "producer"])
def test_a_stamp_in_a_header_a_column_and_a_path_of_the_value(project: Project, scope: str) -> None:
    """And numbers that wrap. Verification reads the same stamps without Spark."""
    text = PIPELINE.replace("{{id: header(producer),", "{{id: who,")
    text = text.replace("header(sequence)}}", "value(m.n), wraps_at: 65536}}")
    text = text.replace(", max_records: {records}}}}}", "}}, value: {{json: who STRING}}}}")
    text = text.replace("dedup: {{", f"dedup: {{{{scope: {scope}, ")
    text = text.replace("CAST(CAST(value AS STRING) AS INT) % 10 > 0", "who IS NOT NULL")
    project.declare(0, PARTITIONS, text=text)
    kafka_io.create_topics(project.broker.bootstrap, PARTITIONS, project.source)
    producer = kafka_io.producer(project.broker.bootstrap)

    def send(numbers: Iterable[int]) -> None:
        for number in numbers:
            who = f"till {number % PARTITIONS}" if scope == "partition" else "tills"
            count = number // PARTITIONS if scope == "partition" else number
            stamp = {"who": who, "m": {"n": count % 65536}, "number": number}
            at, headers = number % PARTITIONS, [("epoch", b"3")]
            value = json.dumps(stamp)
            producer.produce(project.source, value, partition=at, headers=headers)
        assert producer.flush(300) == 0

    first = 65_536 * (PARTITIONS if scope == "partition" else 1) - 40
    send(range(first, first + 60))
    send(range(first + 20, first + 80))  # over the end, to 0 and on
    ran(project)
    send(range(first + 60, first + 100))
    ran(project)
    rows = kafka_io.read(project.broker.bootstrap, project.target)
    found = sorted(json.loads(row.value or b"")["number"] for row in rows)
    assert found == list(range(first, first + 100))
    sums: Counter[str] = Counter()
    for body in attempts(project):
        sums.update(body["attempt"]["dedup"]["verdicts"])
    begun = PARTITIONS if scope == "partition" else sums["unknown_producer"]
    assert begun > 0
    wanted = {"appended": 100 - begun, "unknown_producer": begun, "duplicate": 60}
    assert sums == wanted
    verb(project, "verify")


@pytest.mark.nightly
def test_the_story_of_the_example(project: Project) -> None:
    """Tills that stamp with eos.stamp, each a process: one is killed and sends its last five
    batches again, twice; then another machine takes over. Each payment goes on once, and audit and
    report say what was dropped and why."""
    place = project.folder / "pipelines" / project.name
    place.mkdir(parents=True)
    text = (CHECKOUT / "pipelines/payments_deduped/pipeline.yaml").read_text()
    for old, new in {
        "name: payments_deduped": f"name: {project.name}",
        "topic: payments,": f"topic: {project.source},",
        "topic: payments.once": f"topic: {project.target}",
    }.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    (place / "pipeline.yaml").write_text(text)
    kafka_io.create_topics(project.broker.bootstrap, PARTITIONS, project.source)
    where = project.environment(), project.broker.bootstrap, project.source
    file = project.folder / "stamp"
    with ExitStack() as tills:

        def starts(*words: object) -> Till:
            till = Till(*where, *words)
            tills.callback(till.over)
            return till

        crashed = starts(file)
        crashed.sends(100, batches=5)
        crashed.killed()
        ran(project)
        again = starts(file)
        again.sends(100, batches=0)  # is killed once more, before it heard anything
        again.killed()
        again = starts(file)
        again.sends(120, batches=7)
        # Another machine has the rest of the outbox, and a lease with a higher number.
        other = starts(project.folder / "other", 1, 120)
        other.sends(200, batches=8)
        again.sends(125, batches=0)  # the first one wakes up
    ran(project)
    rows = kafka_io.read(project.broker.bootstrap, project.target)
    found = [json.loads(row.value or b"") for row in rows]
    assert sorted(each["payment_id"] for each in found) == list(range(200))
    ran(project)  # writes into the table what the others had no time for
    output = verb(project, "audit")
    assert "200 records in sequence; 100 duplicate, 5 fenced dropped; none accepted" in output
    assert f"producer    till-a, {project.source}-0: 100 duplicate, offsets 100 to" in output
    assert "no findings" in output
    page = project.folder / "page.html"
    verb(project, "report", "--output", str(page))
    text = page.read_text()
    assert "<h2>Upstream producers</h2>" in text
    for name, count, why in (
        ("duplicate", 100, "accepted before"),
        ("fenced", 5, "arrived after a newer epoch"),
    ):
        assert f"<td>{name}</td><td>dropped</td><td>{count}</td><td>{why}" in text
        of = f"<td>till-a</td><td>{project.source}-0</td><td>{name}</td><td>{count}</td>"
        assert of in text
    verb(project, "verify")
