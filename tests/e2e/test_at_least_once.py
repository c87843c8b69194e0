"""`guarantee: at_least_once`: Spark's own sink writes the same records, without a transaction."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from confluent_kafka import Producer
from support import outside
from support.project import Project

RECORDS = 120
PIPELINE = """
version: 1
name: {name}
guarantee: at_least_once
source:
  kafka: {{topic: {source}, max_records: {records}}}
  value: {{json: "n BIGINT NOT NULL"}}
transform:
  - sql: |
      SELECT *, IF(n < 1000, IF(n % 2 = 0, '{target}.even', '{target}.odd'), NULL) AS place
      FROM input
sink:
  kafka:
    - topic: {target}
      key: n
      value: json
      headers: {{from: "concat(topic, '-', partition)"}}
      where: n % 3 = 0
      create: {{partitions: {partitions}}}
    - topic: {{column: place, topics: ["{target}.even", "{target}.odd"]}}
      partition: partition
      create: {{partitions: 2}}
trigger: {{available_now: true}}
"""


def produce(project: Project, *values: bytes) -> None:
    producer = Producer(
        {**outside.IN_ORDER, "bootstrap.servers": project.broker.bootstrap, "log_level": 3}
    )
    for at, value in enumerate(values):
        producer.produce(project.source, value, b"k", headers={"h": b"1"}, partition=at % 2)
    assert producer.flush(300) == 0


def written(project: Project) -> Counter[int]:
    """What the sink by column wrote, which has every record as it came."""
    found: Counter[int] = Counter()
    for parity, name in enumerate(("even", "odd")):
        for row in outside.read(project.broker.bootstrap, f"{project.target}.{name}"):
            number = json.loads(row.value or b"")["n"]
            assert number % 2 == parity
            assert (row.key, row.headers) == (b"k", (("h", b"1"),))
            assert row.partition == number % 2  # as in the source
            found[number] += 1
    return found


def committed(project: Project) -> list[Path]:
    """Spark's notes of micro-batches that are written."""
    checkpoint = project.folder / "state" / "at_least_once" / f"eos.{project.name}"
    return sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))


def test_a_micro_batch_that_spark_has_not_noted_is_written_again(project: Project) -> None:
    bootstrap = project.broker.bootstrap
    project.declare(RECORDS // 2, text=PIPELINE)
    outside.create_topics(bootstrap, 2, project.source)
    produce(project, *(b'{"n": %d}' % n for n in range(RECORDS)))
    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    once = Counter(range(RECORDS))
    assert written(project) == once
    thirds = outside.read(bootstrap, project.target)
    assert Counter(row.key for row in thirds) == Counter(b"%d" % n for n in once if n % 3 == 0)
    for row in thirds:
        number = int(row.key or b"")
        assert json.loads(row.value or b"")["n"] == number
        assert row.headers == (("from", f"{project.source}-{number % 2}".encode()),)
    assert project.ledger not in outside.topics(bootstrap)
    assert project.group not in outside.groups(bootstrap)

    # As if it had died between the writing and Spark's note of it.
    *_, last = committed(project)
    assert len(committed(project)) > 1
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    again = project.run_warm()
    assert again.returncode == 0, again.stderr
    repeated = written(project) - once
    assert len(repeated) == RECORDS // 2  # of one micro-batch, each twice
    assert set(repeated.values()) == {1}

    # Nothing is left out: what has no topic, or can't be read, ends the run.
    produce(project, b'{"n": 1000}')
    nowhere = project.run_warm()
    assert nowhere.returncode == 4, nowhere.stderr
    assert "a sink does not list the topic null" in nowhere.stderr
    path = project.folder / "pipelines" / project.name / "pipeline.yaml"
    path.write_text(path.read_text().replace("partition: partition", "where: place IS NOT NULL"))
    produce(project, b"no object")
    malformed = project.run_warm()
    assert malformed.returncode == 4, malformed.stderr
    assert f"the record {project.source}-0 at offset {RECORDS // 2 + 1} is" in malformed.stderr
    assert written(project) == once + repeated
    refused = project.run_warm("--take-over")
    assert refused.returncode == 2
    assert "are for a pipeline that has a ledger" in refused.stderr


LARGE = """
version: 1
name: {name}
guarantee: at_least_once
source: {{kafka: {{topic: {source}, max_records: {records}}}}}
sink:
  kafka: {{topic: {target}, create: {{partitions: 1, config: {{max.message.bytes: "3000000"}}}}}}
trigger: {{available_now: true}}
"""


def test_a_record_that_no_start_can_write_ends_it_for_good(project: Project) -> None:
    """Each start would write its micro-batch again. What the topic takes, the client takes, too."""
    project.declare(10, text=LARGE)
    outside.create_topics(project.broker.bootstrap, 1, project.source)
    producer = Producer(
        {
            **outside.IN_ORDER,
            "bootstrap.servers": project.broker.bootstrap,
            "log_level": 3,
            "message.max.bytes": 8_000_000,
            "compression.type": "lz4",  # so that the source takes it, whatever its limit
        }
    )
    producer.produce(project.source, b"x" * 2_000_000, partition=0)
    assert producer.flush(300) == 0
    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    (row,) = outside.read(project.broker.bootstrap, project.target)
    assert len(row.value or b"") == 2_000_000

    producer.produce(project.source, b"x" * 4_000_000, partition=0)
    assert producer.flush(300) == 0
    large = project.run_warm()
    assert large.returncode == 4, large.stderr
    assert "or raise max.message.bytes of the topic" in large.stderr
