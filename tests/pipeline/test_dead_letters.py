"""Records that can't be taken: each comes out once, in the target or among the dead letters."""

from __future__ import annotations

import json
import time
from collections import Counter

import pytest
from support.kafka import kafka_io
from support.spark.project import Project

TIME_MS = int(time.time() * 1000) - 600_000  # older than a week, and retention would take them
LACKS = "the value lacks the column `id`, which is NOT NULL"
PIPELINE = """
version: 1
name: {name}
source:
  kafka: {{topic: {source}, max_records: {records}}}
  value: {{json: "id BIGINT NOT NULL, amount INT"}}
  on_error: dead_letter
expect:
  - {{name: paid, rule: amount > 0, on_error: dead_letter}}
  - {{name: known, rule: id < 1000, on_error: drop}}
transform:
  - sql: SELECT *, amount * 2 AS twice FROM input WHERE amount < 50
sink:
  kafka: {{topic: {target}, key: id, value: {{json: [id, twice]}}, create: {{partitions: 4}}}}
  dead_letter: {{topic: {target}.dlq, create: {{partitions: {partitions}}}}}
trigger: {{available_now: true}}
"""


def given(number: int) -> tuple[bytes | None, str]:
    """A record's value, and what becomes of it."""
    kind = number % 10
    if kind == 1:
        return b"no order %d" % number, "malformed"
    if kind == 2:
        return b'{"amount": 1, "no id": %d}' % number, "malformed"
    if kind == 3:
        return json.dumps({"id": number, "amount": 0}).encode(), "paid"
    if kind == 4:
        return json.dumps({"id": number + 1000, "amount": 1}).encode(), "dropped"
    if kind == 5:
        return json.dumps({"id": number, "amount": 60}).encode(), "left out"
    if kind == 6:
        return None, "paid"  # a tombstone has no amount
    return json.dumps({"id": number, "amount": 1 + number % 7}).encode(), "taken"


def fill(project: Project, numbers: range) -> None:
    """Number n is the n-th record: in partition n % 2, at offset n // 2. Few have a key."""
    records = []
    for n in numbers:
        key = b"key %d" % n if n % 3 else None
        headers = (("trace", b"\xff%d" % n), ("none", None)) if n % 4 else ()
        records.append(kafka_io.Record(n % 2, key, given(n)[0], headers, TIME_MS + n))
    kafka_io.write_records(project.broker.bootstrap, project.source, records)


def check(project: Project, numbers: range) -> None:
    """Against what went in: by value for what was taken, by coordinates for what was not."""
    bootstrap = project.broker.bootstrap
    kinds = {n: given(n)[1] for n in numbers}
    out = [json.loads(row.value) for row in kafka_io.read(bootstrap, project.target)]
    taken = [n for n in numbers if kinds[n] == "taken"]
    assert sorted(row["id"] for row in out) == taken
    assert all(row["twice"] == 2 * (1 + row["id"] % 7) for row in out)

    dead = kafka_io.read_records(bootstrap, f"{project.target}.dlq")
    by_number = {2 * int(d.told["eos.offset"]) + int(d.told["eos.partition"]): d for d in dead}
    refused = [n for n in numbers if kinds[n] in ("malformed", "paid")]
    assert len(dead) == len(by_number)
    assert sorted(by_number) == refused
    for n, each in by_number.items():
        assert each.value == given(n)[0]
        assert each.key == (b"key %d" % n if n % 3 else None)
        own = (("trace", b"\xff%d" % n), ("none", None)) if n % 4 else ()
        assert each.headers[: len(own)] == own
        told = dict(each.told)
        assert (
            told.pop("eos.error")
            in {
                "malformed": ("the value does not fit its schema", LACKS),
                "paid": ("not true: amount > 0",),
            }[kinds[n]]
        )
        assert told == {
            "eos.pipeline": project.name,
            "eos.topic": project.source,
            "eos.partition": str(n % 2),
            "eos.offset": str(n // 2),
            "eos.timestamp": str(TIME_MS + n),
            "eos.rule": kinds[n],
        }
    # With or without a key: in the order of the source partition, all in one partition.
    for source in (0, 1):
        of_source = [d for d in dead if d.told["eos.partition"] == str(source)]
        assert {d.partition for d in of_source} == {source}
        offsets = [int(d.told["eos.offset"]) for d in of_source]
        assert offsets == sorted(offsets)


@pytest.mark.long
def test_each_record_once_in_the_target_or_among_the_dead_letters_whatever_dies(
    project: Project,
) -> None:
    """Killed after the dead letters were acknowledged, and before the transaction's last steps."""
    project.declare(200, 2, PIPELINE)
    kafka_io.create_topics(project.broker.bootstrap, 2, project.source)
    fill(project, range(400))
    log = project.folder / "died"
    at = "dead_letters:after:python"
    died = project.run(EOS_CRASH_AT=at, EOS_CRASH_LOG=str(log))
    assert died.returncode != 0, died.stderr
    assert log.exists(), died.stderr
    assert kafka_io.read(project.broker.bootstrap, f"{project.target}.dlq") == []
    half = kafka_io.read(project.broker.bootstrap, f"{project.target}.dlq", "read_uncommitted")
    assert len(half) == 80, "the attempt wrote the dead letters of its micro-batch"

    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    check(project, range(400))
    first = (
        f"40 malformed records sent to the dead letters, the first is {project.source}-0 at "
        "offset 1\n"
    )
    assert done.stderr.count(first) == 1, done.stderr
    assert done.stderr.count("20 records dropped by rule `known`") == 2
    total = "drained; 80 malformed records sent to the dead letters; 80 records sent to the dead "
    assert f"{total}letters by rule `paid`" in done.stderr
    ledger = kafka_io.read(project.broker.bootstrap, project.ledger)
    attempts = [record for row in ledger if (record := json.loads(row.value))["kind"] == "attempt"]
    told = Counter()
    for record in attempts:
        for rule, answers in record["attempt"]["refused"].items():
            told.update({(rule, answer): count for answer, count in answers.items()})
    assert told == {
        ("malformed", "dead_letter"): 80,
        ("paid", "dead_letter"): 80,
        ("known", "drop"): 40,
    }
