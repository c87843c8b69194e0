"""The audit table beside real runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.copies import audit
from support.kafka import kafka_io
from support.spark.spark_recovery import SparkPipeline

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.fixture
def past(project) -> SparkPipeline:
    return SparkPipeline(project, {project.source: 2})


def table(past: SparkPipeline) -> Path:
    return past.project.folder / "state" / "audit" / "transactions"


def check(past: SparkPipeline) -> list[dict]:
    """Each committed record of the ledger is there once. Returns the rows."""
    found = audit.table_rows(table(past), past.project.name)
    stored = kafka_io.read(past.bootstrap, past.project.ledger)
    told = [(row.offset, json.loads(row.value or b"")["kind"]) for row in stored]
    assert [*dict.fromkeys((row["ledger_offset"], row["kind"]) for row in found)] == told
    return [dict(row) for row in found]


def test_a_run_writes_its_rows_and_one_without_a_table_stops_when_it_is_too_far_behind(past):
    past.ran(3)
    rows = [row for row in check(past) if row["kind"] == "attempt"]
    assert sum(row["records"] for row in rows) == len(past.expected)
    targets = {(row["batch_id"], row["target_partition"]) for row in rows}
    assert len(targets) == len(rows), "one row for each attempt and target partition"
    assert {row["outcome"] for row in rows} == {"CompleteCommit"}

    profile = past.project.profile
    before = profile.read_text()
    profile.write_text(f"{before}\naudit: {{behind_max: 1}}\n")
    shutil.rmtree(table(past))
    table(past).write_text("in the way")
    past.write_batches(3)
    done = past.project.run_warm()
    assert done.returncode == 4, done.stderr
    assert "the audit table lacks 1 attempt, the limit is 1" in done.stderr
    assert "hint: nothing is lost" in done.stderr

    table(past).unlink()
    past.goes_on()
    check(past)

    profile.write_text(f"{before}\naudit: {{transactions: false}}\n")
    shutil.rmtree(table(past))
    past.ran(1)
    assert not table(past).exists()
