"""Producers whose numbers span several partitions; dead letters; the verdict as a column."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable

import pytest
from pipeline import test_dedup
from pipeline.test_dedup import AGAIN, PARTITIONS, attempts, ran, recovered, verb
from support.kafka import kafka_io
from support.spark.project import KILLED, Project

from eos.micro_batch.jobs import ONE_TASK_RECORDS_MAX

SPREAD = """
version: 1
name: {name}
source: {{kafka: {{topics: [{source}, {source}.more], max_records: {records}}}}}
dedup:
  producer: {{id: header(producer), epoch: header(epoch), sequence: header(sequence)}}
  scope: producer
  window: 60
  on_gap: dead_letter
  on_unstamped: dead_letter
  verdict: how
expect:
  - {{name: known, rule: how <> 'late'}}
transform:
  - sql: SELECT key, CAST(concat(CAST(value AS STRING), ' ', how) AS BINARY) AS value FROM input
sink:
  kafka: {{topic: {target}, create: {{partitions: {partitions}}}}}
  dead_letter: {{topic: {target}.dead, create: {{partitions: {partitions}}}}}
trigger: {{available_now: true}}
"""


class Upstream:
    """One producer that writes to each partition of both topics in turn: its values are
    `EPOCH:NUMBER`."""

    def __init__(self, project: Project) -> None:
        self._topics = (project.source, f"{project.source}.more")
        self._producer = kafka_io.producer(project.broker.bootstrap)

    def send(self, epoch: int, numbers: Iterable[int], *, by: int = 0) -> None:
        """`by`: a resend goes to other partitions."""
        for number in numbers:
            headers = [("producer", b"app"), ("epoch", b"%d" % epoch), ("sequence", b"%d" % number)]
            self._producer.poll(0)
            self._producer.produce(
                self._topics[(number + by) // PARTITIONS % 2],
                b"%d:%d" % (epoch, number),
                partition=(number + by) % PARTITIONS,
                headers=headers,
            )
        assert self._producer.flush(300) == 0


def made(project: Project, records: int) -> Upstream:
    project.declare(records, PARTITIONS, text=SPREAD)
    names = (project.source, f"{project.source}.more")
    kafka_io.create_topics(project.broker.bootstrap, PARTITIONS, *names)
    return Upstream(project)


def values(project: Project, topic: str) -> Counter[str]:
    rows = kafka_io.read(project.broker.bootstrap, topic)
    return Counter((row.value or b"").decode() for row in rows)


def sums(project: Project) -> Counter[str]:
    found: Counter[str] = Counter()
    for body in attempts(project):
        found.update(body["attempt"]["dedup"]["verdicts"])
    return found


def once(epoch: int, numbers: Iterable[int]) -> Counter[str]:
    return Counter(f"{epoch}:{number} appended" for number in numbers)


@pytest.mark.long
def test_a_producer_that_writes_to_every_partition(project: Project) -> None:
    """The producer resends to other partitions, restarts, and a replaced instance wakes up again.

    Attempts that wrote a duplicate before validation are retried without it."""
    upstream = made(project, records=70)
    resends(project, upstream)
    upstream.send(1, range(20))
    upstream.send(0, range(110, 114))  # after the newer epoch in each of their partitions
    ran(project)
    assert values(project, project.target) == once(0, range(110)) + once(1, range(20))
    assert sums(project) == {"appended": 130, "duplicate": 30, "fenced": 4}
    output = verb(project, "audit")
    assert "130 records in sequence; 30 duplicate, 4 fenced dropped; none accepted" in output


def resends(project: Project, upstream: Upstream) -> None:
    upstream.send(0, range(100))
    upstream.send(0, range(70, 110), by=1)
    assert len(AGAIN.findall(ran(project))) == 1, "the next micro-batches validate first"


@pytest.mark.nightly
def test_several_tasks_validate_and_write_large_micro_batches(project: Project) -> None:
    upstream = made(project, records=70)
    resends(project, upstream)
    project.declare(100_000, PARTITIONS, text=SPREAD)
    many = ONE_TASK_RECORDS_MAX + 1000
    upstream.send(0, range(100, many), by=3)
    # The ledger remembers that this upstream resends: this run validates before it writes.
    assert AGAIN.findall(ran(project)) == []
    upstream.send(0, range(many, 2 * many))
    assert AGAIN.findall(ran(project)) == []
    many *= 2
    assert sums(project) == {"appended": many, "duplicate": 40}
    assert values(project, project.target) == once(0, range(many))


@pytest.mark.nightly
def test_more_tasks_validate_than_write_if_a_target_has_few_partitions(project: Project) -> None:
    """One writer, and shards for four tasks: shards without validation would cost an attempt."""
    upstream = made(project, records=100_000)
    project.declare(100_000, 1, text=SPREAD)
    with project.profile.open("a") as profile:
        profile.write("    spark.default.parallelism: '4'\n")
    many = ONE_TASK_RECORDS_MAX + 1000
    upstream.send(0, range(many))
    done = project.run()
    assert done.returncode == 0, done.stderr
    assert "failed" not in done.stderr
    assert values(project, project.target) == once(0, range(many))


@pytest.mark.nightly
def test_in_one_partition_a_producer_waits_after_its_gap(project: Project) -> None:
    ordered = SPREAD.replace(", {source}.more", "").replace("  scope: producer\n  window: 60\n", "")
    project.declare(1000, PARTITIONS, text=ordered)
    kafka_io.create_topics(project.broker.bootstrap, PARTITIONS, project.source)
    upstream = test_dedup.Upstream(project)
    upstream.send(0, [*range(20), *range(25, 30)])
    assert "10 records sent to the dead letters by rule `dedup_gap`" in ran(project)
    upstream.send(0, range(20, 25))
    verb(project, "replay", "--rule", "dedup_gap")
    ran(project)
    wanted = Counter({f"{number} appended": PARTITIONS for number in range(30)})
    assert values(project, project.target) == wanted
    assert sum(values(project, f"{project.target}.dead").values()) == 10
    verb(project, "verify")
    # Once more what was refused first: proven by what was put back, and not by what was refused.
    upstream.send(0, range(25, 30))
    ran(project)
    assert values(project, project.target) == wanted
    file = project.folder / "dropped"
    said = verb(project, "verify", "--from-start", "--dropped", str(file))
    assert "10 duplicate; 10 proven by an earlier accepted record" in said
    found = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(found) == 10
    for each in found:
        assert (each["reason"], each["batch_id"] >= 0) == ("duplicate", True)
        proof = each["proof"]
        assert proof["partition"] == each["partition"]
        assert each["offset"] > proof["offset"] > 29  # 0 to 19, the refused, what was missing


@pytest.mark.nightly
def test_what_is_refused_waits_in_the_dead_letters_and_comes_back(project: Project) -> None:
    upstream = made(project, records=1000)
    upstream.send(0, [*range(20), *range(21, 90)])  # 80 and above are too far above 20
    output = ran(project)
    assert "10 records sent to the dead letters by rule `dedup_gap`" in output
    dead = f"{project.target}.dead"
    assert values(project, dead) == Counter(f"0:{number}" for number in range(80, 90))
    upstream.send(0, [20])
    assert "dedup_gap  10 waited, 10 put back" in verb(project, "replay")
    ran(project)
    assert values(project, project.target) == once(0, range(90))
    assert sum(values(project, dead).values()) == 10
    assert sums(project) == {"appended": 90, "gap": 10}
    # What is missing for good is let pass once, by a person.
    upstream.send(0, range(200, 203))
    ran(project)
    assert "dedup_gap  3 waited, 3 put back" in verb(project, "replay")
    recovered(project, "--accept-gap", "--yes")
    assert "accepted 1 gap" in ran(project)
    found = values(project, project.target)
    assert found["0:200 gap"] == found["0:201 gap"] + 1 == 1
    verb(project, "verify")


@pytest.mark.nightly
@pytest.mark.parametrize("scope", ["partition", "producer"])
def test_what_was_late_or_unstamped_comes_back_once_that_is_accepted(
    project: Project, scope: str
) -> None:
    refusing = SPREAD.replace(", {source}.more", "")
    refusing = refusing.replace("on_gap: dead_letter", "on_gap: accept\n  on_late: dead_letter")
    refusing = refusing.replace("expect:\n  - {{name: known, rule: how <> 'late'}}\n", "")
    if scope == "partition":
        refusing = refusing.replace("  scope: producer\n  window: 60\n", "")
    project.declare(1000, PARTITIONS, text=refusing)
    kafka_io.create_topics(project.broker.bootstrap, PARTITIONS, project.source)
    upstream = test_dedup.Upstream(project)
    upstream.send(0, [*range(5), 100])  # what lies between is given up
    ran(project)
    upstream.send(0, [50])
    nobody = kafka_io.producer(project.broker.bootstrap)
    nobody.produce(project.source, b"7", partition=0)
    assert nobody.flush(300) == 0
    ran(project)
    known = Counter({f"{number} appended": PARTITIONS for number in range(5)})
    known += Counter({"100 gap": PARTITIONS})
    assert values(project, project.target) == known
    dead = Counter({"50": PARTITIONS, "7": 1})
    assert values(project, f"{project.target}.dead") == dead
    # Put back before that is said, they would only be dead letters again.
    accepting = refusing.replace("on_late: dead_letter", "on_late: accept")
    accepting = accepting.replace("on_unstamped: dead_letter", "on_unstamped: accept")
    project.declare(1000, PARTITIONS, text=accepting)
    upstream.send(0, [101])
    output = verb(project, "replay")
    for rule, count in {"dedup_late": PARTITIONS, "dedup_unstamped": 1}.items():
        words = rf"{rule} +{count} waited, +{count} put back"
        assert re.search(words, output), output
    ran(project)
    known += Counter({"101 appended": PARTITIONS, "50 late": PARTITIONS, "7 unstamped": 1})
    assert values(project, project.target) == known
    assert values(project, f"{project.target}.dead") == dead
    verb(project, "verify")


@pytest.mark.nightly
@pytest.mark.timeout(1800)  # six starts of Spark
def test_each_record_once_whatever_dies_around_validation(project: Project) -> None:
    """In each run the first attempt writes duplicates, and validates after that."""
    upstream = made(project, records=1000)
    upstream.send(0, range(50))
    ran(project)
    steps = ("judging:before", "judging:after", "producers:before", "end_txn_sent:after")
    for turn, step in enumerate(steps, 1):
        upstream.send(0, range(turn * 50 - 10, turn * 50 + 50), by=turn)
        died = project.run_warm(EOS_CRASH_AT=f"{step}:both")
        assert died.returncode == KILLED, died.stderr
        assert len(AGAIN.findall(died.stderr)) == (0 if step.startswith("judging") else 1)
    ran(project)
    numbers = range(50 * (len(steps) + 1))
    assert values(project, project.target) == once(0, numbers)
    assert sums(project) == {"appended": len(numbers), "duplicate": 10 * len(steps)}
    verb(project, "verify")
