"""A pipeline on an older broker, killed in the middle of a transaction: the same promise."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from support.kafka import brokers, kafka_io
from support.spark.project import KILLED, PROFILE, Project, WarmDriver

from eos.local.embedded_kafka import EmbeddedKafka

PARTITIONS, RECORDS = 4, 51_000  # of each micro-batch: with a shuffle, so that several tasks write
COUNT = 2 * RECORDS


@pytest.fixture
def older(
    project: Project, older_broker: EmbeddedKafka, tmp_path: Path, warm: WarmDriver
) -> Project:
    made = Project(tmp_path, older_broker, project.name, warm)
    text = PROFILE.format(bootstrap=older_broker.bootstrap, root=tmp_path / "state")
    made.profile.write_text(text)
    return made


@pytest.mark.nightly
@pytest.mark.long  # without Spark: tests/kafka/test_older.py
def test_every_record_once_in_order_across_a_kill(older: Project, tmp_path: Path) -> None:
    bootstrap, log = older.broker.bootstrap, tmp_path / "crash.log"
    older.declare(RECORDS, PARTITIONS)
    kafka_io.create_topics(bootstrap, PARTITIONS, older.source)
    kafka_io.fill(bootstrap, older.source, range(COUNT))
    died = older.run_warm(EOS_CRASH_AT="offsets:after:both", EOS_CRASH_LOG=str(log))
    assert died.returncode == KILLED, died.stderr
    assert log.exists(), died.stderr
    last = older.run_warm()
    assert last.returncode == 0, last.stderr

    went_in = kafka_io.read(bootstrap, older.source)
    came_out = kafka_io.read(bootstrap, older.target)
    assert Counter((row.key, row.value) for row in came_out) == Counter(
        (row.key, row.value) for row in went_in
    )
    newest: dict[bytes | None, int] = {}
    for row in came_out:
        number = int(row.value or b"-1")
        assert newest.get(row.key, -1) < number, f"key {row.key!r}: {number} after a later one"
        newest[row.key] = number
    ends = kafka_io.ends(bootstrap, older.source)
    assert kafka_io.group_offsets(bootstrap, older.group, older.source) == ends

    markers = brokers.check_topic(older.broker, older.target)
    assert markers["ABORT"] >= PARTITIONS, "no half-written transaction was left behind"
    assert markers["COMMIT"] >= 2 * PARTITIONS
