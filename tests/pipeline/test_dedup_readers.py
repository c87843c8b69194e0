"""The same upstream read by Python tasks, and by Spark's source with its two passes: the same
records, dead letters, verdicts and states. Each reader continues with the states of the other.

Python tasks pass the records on to SQL, or process them alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pipeline.test_dedup import AGAIN, attempts, verb
from support.kafka import kafka_io
from support.kafka.kafka_io import NOW_MS, Headers, Record
from support.spark.project import Project

from eos.dedup.buckets import SCOPE_STATES, STATES, read_states
from eos.dedup.state_table import ProducersTable, StateVersion
from eos.micro_batch.jobs import ONE_TASK_RECORDS_MAX
from eos.plan.reader import ARROW_NAME, OVERRIDE, SPARK_NAME

PIPELINE = """
version: 1
name: {name}
source:
  kafka: {{topic: SOURCE, max_records: {records}}}
STEPS
dedup:
  producer: {{id: header(producer), epoch: header(epoch), sequence: header(sequence)}}
  scope: SCOPE
  on_gap: dead_letter
  on_late: accept
  on_unstamped: dead_letter
sink:
  kafka: {{topic: {target}, partition: partitionVALUE, create: {{partitions: {partitions}}}}}
  dead_letter: {{topic: {target}.dead, create: {{partitions: {partitions}}}}}
trigger: {{available_now: true}}
"""
ON_ARROW = """\
  value: {{json: "id BIGINT"}}
transform: [{{sql: "SELECT *, id + 7 AS rest FROM input WHERE id >= 0"}}]
expect: [{{name: common, rule: "id NOT IN (40, 30000)", on_error: dead_letter}}]
"""  # Spark goes on with the attempts that have these two
SQL = """\
  value: {{json: "id BIGINT"}}
transform: [{{sql: "SELECT *, id % 7 AS rest FROM input"}}]
expect: [{{name: common, rule: "id % 100 <> 13", on_error: dead_letter}}]
"""
# Several for each of the two tasks. With `scope: producer`, each producer writes to all of them.
PARTITIONS, PRODUCERS = 6, 11
FAR = 200_000  # beyond the window of `scope: producer`
MANY = ONE_TASK_RECORDS_MAX + 5000
NAMES = {"arrow": ARROW_NAME, "spark": SPARK_NAME}


def record(scope: str, number: int, sequence: int | None = None) -> Record:
    partition, turn = number % PARTITIONS, number // PARTITIONS
    who = f"{partition}-{turn % PRODUCERS}" if scope == "partition" else f"{number % PRODUCERS}"
    found = turn // PRODUCERS if scope == "partition" else number // PRODUCERS
    stamp = {"producer": who, "epoch": "0", "sequence": found if sequence is None else sequence}
    headers = tuple((name, str(part).encode()) for name, part in stamp.items())
    return Record(partition, None, b'{"id": %d}' % number, headers, NOW_MS)


def sent(scope: str, first: int, last: int) -> Iterator[Record]:
    """Records, some of them twice; those of one producer lack a number, and one has no stamp."""
    yield from (record(scope, number) for number in range(first, last))
    yield from (record(scope, number) for number in range(max(0, first - 30), first + 40))
    yield replace(record(scope, first), headers=())
    yield record(scope, last, FAR + first)
    yield record(scope, last, FAR + first + 1)


class Side:
    """The pipeline of one reader, as of the first round."""

    def __init__(self, project: Project, topic: str, scope: str, steps: str) -> None:
        self.project = project
        self.scope = scope
        text = PIPELINE.replace("SOURCE", topic).replace("SCOPE", scope).replace("STEPS", steps)
        text = text.replace("VALUE", ", value: {{json: [id, rest]}}" if steps else "")
        project.declare(4 * MANY, PARTITIONS, text=text)

    def run(self, reader: str) -> str:
        done = self.project.run_warm(**{OVERRIDE: reader})
        assert done.returncode == 0, done.stderr
        assert f"{NAMES[reader]} reads the source" in done.stderr
        return done.stderr

    def results(self) -> dict[str, Any]:
        """All that the pipeline left, but for what names it."""
        bootstrap, target = self.project.broker.bootstrap, self.project.target
        rows = kafka_io.read(bootstrap, target)
        dead = kafka_io.read(bootstrap, f"{target}.dead")
        bodies = attempts(self.project)
        return {
            "records": [
                [(row.key, row.value, row.headers) for row in rows if row.partition == partition]
                for partition in range(PARTITIONS)
            ],
            "dead": Counter((row.key, row.value, unnamed(row.headers)) for row in dead),
            "dedup": [body["attempt"]["dedup"] for body in bodies],
            "refused": [body["attempt"]["refused"] for body in bodies],
            "validate_first": [body.get("validate_first", 0) for body in bodies],
            "states": self.states(),
        }

    def states(self) -> list[dict[str, Any]]:
        rows = kafka_io.read(self.project.broker.bootstrap, self.project.ledger)
        version = StateVersion.of(json.loads(rows[-1].value or b"")["producers"])
        (folder,) = (self.project.folder / "state" / "dedup").glob(f"*{self.project.name}")
        schema = STATES if self.scope == "partition" else SCOPE_STATES
        found = [
            {"bucket": tuple(key), **row}
            for key, file in ProducersTable(Path(folder), "").files(version).items()
            for row in read_states(folder, file, kept(schema)).to_pylist()
        ]
        return sorted(found, key=lambda each: (each["bucket"], each["producer"], each["epoch"]))


def unnamed(headers: Headers) -> Headers:
    return tuple(each for each in headers if each[0] != "eos.pipeline")


def kept(schema: pa.Schema) -> pa.Schema:
    """Leave the time out at which a producer was seen last."""
    return schema.remove(schema.get_field_index("at_ms"))


@pytest.mark.parametrize(
    ("scope", "steps"),
    [
        pytest.param("partition", "", marks=pytest.mark.nightly, id="partition"),
        pytest.param("producer", "", marks=pytest.mark.nightly, id="producer"),
        pytest.param("partition", SQL, marks=pytest.mark.nightly, id="partition, SQL"),
        pytest.param("partition", ON_ARROW, marks=pytest.mark.long, id="partition, Arrow"),
        pytest.param("producer", SQL, marks=pytest.mark.nightly, id="producer, SQL"),
    ],
)
def test_both_readers_leave_the_same(project: Project, scope: str, steps: str) -> None:
    other = replace(project, name=f"{project.name}s")
    sides = [Side(each, project.source, scope, steps) for each in (project, other)]
    kafka_io.create_topics(project.broker.bootstrap, PARTITIONS, project.source)

    logs: list[str] = []

    def round_of(records: Iterable[Record], readers: tuple[str, str]) -> list[int]:
        """Return how often each side wrote duplicates first."""
        kafka_io.write_records(project.broker.bootstrap, project.source, records)
        said = [side.run(reader) for side, reader in zip(sides, readers, strict=True)]
        logs.extend(said)
        first, second = (side.results() for side in sides)
        for name, found in first.items():
            assert found == second[name], name
        return [len(AGAIN.findall(text)) for text in said]

    writes_first = int(scope == "producer")
    few, many = 900, 900 + MANY
    assert round_of(sent(scope, 0, few), ("arrow", "spark")) == [writes_first] * 2
    # In two tasks. The ledger remembers that this upstream resends.
    assert round_of(sent(scope, few, many), ("arrow", "spark")) == [0, 0]
    assert round_of(sent(scope, many, many + 900), ("spark", "arrow")) == [0, 0]
    found = sides[0].results()
    values = Counter(value for rows in found["records"] for _, value, _ in rows)
    counted: Counter[str] = Counter()
    for body in found["dedup"]:
        counted.update(body["verdicts"])
    assert set(values.values()) == {1}, "a record came out twice"
    rules = Counter(dict(headers)["eos.rule"] for _, _, headers in found["dead"].elements())
    assert sum(values.values()) == counted["appended"] + counted["late"] - rules[b"common"]
    assert counted["duplicate"] > 100
    assert rules[b"dedup_gap"] + rules[b"dedup_unstamped"] > 6
    assert rules.total() == counted["gap"] + counted["unstamped"] + rules[b"common"]
    assert (rules[b"common"] > MANY // 100 // 2) == (steps == SQL)
    left = sum(text.count("Spark has to run the steps") for text in logs)
    assert left == (2 if steps == ON_ARROW else 0)
    verb(project, "verify")
