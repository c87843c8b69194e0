"""Spark's checkpoint files as this Spark writes them, and what happens when they are gone."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from support.kafka import kafka_io
from support.spark.project import Project

from eos.checkpoint.offset_log import parse_ends, parse_query_id, parse_starts
from eos.kafka.api import TopicPartition

PARTITIONS, RECORDS = 2, 300


def parsed(folder: Path, name: str):
    parse = {"metadata": parse_query_id, "sources": parse_starts, "offsets": parse_ends}
    path = folder / name
    return parse[name.split("/", maxsplit=1)[0]](path.read_text(encoding="utf-8"), str(path))


def newest(folder: Path) -> str:
    return f"offsets/{max(int(each.name) for each in folder.glob('offsets/[0-9]*'))}"


def ends(project: Project) -> dict[TopicPartition, int]:
    rows = kafka_io.read(project.broker.bootstrap, project.source)
    counted = Counter(row.partition for row in rows)
    return {TopicPartition(project.source, number): n for number, n in counted.items()}


def run_to_the_end(project: Project) -> None:
    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    values = Counter(row.value for row in kafka_io.read(project.broker.bootstrap, project.source))
    assert values == Counter(
        row.value for row in kafka_io.read(project.broker.bootstrap, project.target)
    )


@pytest.mark.long
def test_files_are_read_as_written_and_the_ledger_knows_where_to_go_on_without_them(
    project: Project, tmp_path: Path
) -> None:
    bootstrap = project.broker.bootstrap
    project.declare(RECORDS // 2, PARTITIONS)
    kafka_io.create_topics(bootstrap, PARTITIONS, project.source)
    kafka_io.fill(bootstrap, project.source, range(RECORDS))
    run_to_the_end(project)

    folder = tmp_path / "state" / "checkpoints" / f"eos.{project.name}" / "0001"
    before = ends(project)
    assert parsed(folder, "sources/0/0") == dict.fromkeys(before, 0)
    assert parsed(folder, newest(folder)) == before
    record = kafka_io.read(bootstrap, project.ledger)[-1].value
    assert json.loads(record)["query_id"] == parsed(folder, "metadata")

    # What a start leaves that died before its first micro-batch; meanwhile the topic grows.
    shutil.rmtree(folder / "offsets")
    shutil.rmtree(folder / "commits")
    kafka_io.add_partitions(bootstrap, project.source, PARTITIONS + 1)
    kafka_io.fill(bootstrap, project.source, range(RECORDS, 2 * RECORDS))
    run_to_the_end(project)
    fresh = folder.parent / "0002"
    after = ends(project)
    assert len(after) == PARTITIONS + 1
    assert parsed(fresh, "sources/0/0") == {**dict.fromkeys(after, 0), **before}
    assert parsed(fresh, newest(fresh)) == after


@pytest.mark.long
def test_a_checkpoint_whose_first_files_spark_has_purged_is_gone_on_with(
    project: Project, tmp_path: Path
) -> None:
    bootstrap = project.broker.bootstrap
    profile = tmp_path / "conf" / "test.yaml"
    retained = "    spark.sql.streaming.minBatchesToRetain: 2\n"
    profile.write_text(profile.read_text() + retained)
    project.declare(RECORDS // 6, PARTITIONS)
    kafka_io.create_topics(bootstrap, PARTITIONS, project.source)
    kafka_io.fill(bootstrap, project.source, range(RECORDS))
    run_to_the_end(project)
    checkpoints = tmp_path / "state" / "checkpoints" / f"eos.{project.name}"
    assert not (checkpoints / "0001" / "offsets" / "0").exists(), "nothing was purged"

    kafka_io.fill(bootstrap, project.source, range(RECORDS, 2 * RECORDS))
    run_to_the_end(project)
    assert [each.name for each in checkpoints.iterdir()] == ["0001"]

    # Without its ledger it must stop: beginning anew would write everything again.
    kafka_io.delete_topics(bootstrap, project.ledger)
    stopped = project.run_warm()
    assert stopped.returncode == 4, stopped.stderr
    assert f"the ledger '{project.ledger}' is empty" in stopped.stderr
