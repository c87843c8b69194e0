"""How many source records a run says that it read: those that a reader of committed records sees,
and beside them the offsets, which count aborted records and transaction markers, too."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from support.kafka import kafka_io
from support.spark.project import PIPELINE, Project

STEP = '{{python: "pipelines.{module}.transform:passed_on"}}'


def written(project: Project) -> None:
    """Ten records that are committed, five that are not, and a marker for each transaction."""
    kafka_io.create_topics(project.broker.bootstrap, 1, project.source)
    producer = Producer(
        {"bootstrap.servers": project.broker.bootstrap, "transactional.id": project.source}
    )
    producer.init_transactions()
    for end, count in (("commit", 4), ("abort", 5), ("commit", 6)):
        producer.begin_transaction()
        for number in range(count):
            producer.produce(project.source, key=str(number % 3), value=str(number))
        producer.flush()  # else an abort drops what was not sent yet
        getattr(producer, f"{end}_transaction")()


SHAPES = {
    "as they are": (STEP, "", 10),
    "grouped": (
        '{{sql: "SELECT key, CAST(count(*) AS STRING) AS value FROM input GROUP BY key"}}',
        "output_mode: update",
        3,
    ),
    "read twice": ("{{sql: SELECT * FROM input UNION ALL SELECT * FROM input}}", "", 20),
    "no row comes out": ("{{sql: SELECT * FROM input WHERE false}}", "", 0),
}
LONG = ("read twice", "no row comes out")


@pytest.mark.parametrize(
    "shape", [pytest.param(n, marks=[pytest.mark.long] * (n in LONG)) for n in SHAPES]
)
def test_what_was_visible_is_told_beside_the_offsets(project: Project, shape: str) -> None:
    written(project)
    step, mode, out = SHAPES[shape]
    assert STEP in PIPELINE
    project.declare(1000, 1, text=f"{PIPELINE.replace(STEP, step)}{mode}\n")
    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    assert f"committed: 10 records in (18 offsets), {out} out" in done.stderr
