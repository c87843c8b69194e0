"""Others read the audit table, too: what they see is what its own library sees, all of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from support.spark.spark_session import class_path, with_archive, words_of_a_run

from eos.audit import rows as made
from eos.audit.projection import Projection
from eos.audit.table import TransactionsTable
from eos.kafka.api import Identity, TopicPartition
from eos.launch import spark
from eos.launch.java_wheel import ensure_java
from eos.ledger.receipt import Receipt
from eos.ledger.record import LedgerRecord, Position, nested
from eos.local import jars

_CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # A short life, and little to read: half of it would go into optimising and into empty tasks.
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
_JOB = """
import json, sys
from pyspark.sql import SparkSession

session = SparkSession.builder.getOrCreate()
for row in session.read.format("delta").load(sys.argv[1]).collect():
    print(json.dumps(row.asDict(recursive=True), default=str))
"""
_S_MAX = 600  # a bound, not a measure


def read_with_spark(location: Path) -> Sequence[dict[str, Any]]:
    """Return the rows that Spark with Delta's own library reads, in a program of its own: jars
    belong to a JVM, and the one of this process may be there already."""
    job = location.with_name("job.py")
    job.write_text(_JOB)
    java = ensure_java().home
    found = spark.find_spark()
    files = ",".join(map(str, jars.paths_of(*found.delta_jar_sets())))
    words = [str(found.home / "bin" / "spark-submit"), "--master", "local[1]", "--jars", files]
    run = words_of_a_run("local[1]")
    for name, value in {**_CONF, **class_path(run)}.items():
        words += ["--conf", f"{name}={value}"]
    done = subprocess.run(
        [*words, str(job), str(location)],
        env={
            **with_archive(os.environ, "local[1]", run),
            "JAVA_HOME": str(java),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "TZ": "UTC",  # in which Spark hands over times
        },
        capture_output=True,
        text=True,
        timeout=_S_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"[-5000:]
    return [_timed(json.loads(line)) for line in done.stdout.splitlines() if line[:1] == "{"]


def _timed(row: dict[str, Any]) -> dict[str, Any]:
    for name in ("begun_at", "ended_at"):
        if row[name] is not None:
            row[name] = datetime.fromisoformat(row[name]).replace(tzinfo=timezone.utc)
    return row


COMMITS = 70  # maintenance comes after 64
Rows = Sequence[Mapping[str, Any]]


def record(number: int) -> LedgerRecord:
    """Two source and two target partitions; one in ten comes after an attempt that was aborted,
    one in ten wrote nothing."""
    sources = [TopicPartition("in", partition) for partition in range(2)]
    receipts = [Receipt("out", p, 5, 9 * number, 9 * number + 4, 99, -number) for p in range(2)]
    attempt = {
        "number": 1,
        "begun_ms": 1_700_000_000_123 + number,
        "starts": nested(dict.fromkeys(sources, number)),
        "receipts": [each.as_json() for each in receipts] if number % 10 else [],
    }
    failed = {"producer_id": 9, "epoch": number, "error": "task_failed", "reason": "it's \u00fc"}
    return LedgerRecord(
        "attempt",
        Position(dict.fromkeys(sources, number + 1), {}, "q", number),
        {"deployment": "d", "host": "h", "process": 1},
        1_700_000_000_456 + number,
        2 * number,
        Identity(10, number),
        attempt,
        failed=[failed] if number % 10 == 5 else [],
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> TransactionsTable:
    """With all that maintenance leaves behind: files that are gone, checkpoints, a shorter log."""
    kept = TransactionsTable(tmp_path_factory.mktemp("audit") / "transactions")
    for number in range(COMMITS):
        kept.known("p/lid")
        kept.append(made.table(made.rows("p", "l", "lid", [record(number)])), "p/lid", 2 * number)
        if number % 64 == 63:
            Projection(kept, None, "p", "l").maintain(64)
    other = made.table(made.rows("another", "l2", "lid2", [record(1)]))
    kept.append(other, "another/lid2", 2)
    assert kept.location.local is not None
    assert list(kept.location.local.glob("_delta_log/*.checkpoint.parquet"))
    return kept


@pytest.fixture(scope="module")
def own(table: TransactionsTable) -> Rows:
    found = table.query("SELECT * FROM transactions")
    kinds = {(row["pipeline"], row["outcome"], row["target_topic"]) for row in found}
    assert len(kinds) == 4
    assert len(found) == 2 * COMMITS - 7 + 7 + 2
    return ordered(found)


def ordered(rows: Rows) -> Rows:
    def place(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return (row["pipeline"], row["ledger_offset"], row["outcome"], row["target_partition"] or 0)

    return sorted(rows, key=place)


def test_polars(table: TransactionsTable, own: Rows):
    found = pl.scan_delta(table.location.uri).collect()
    assert set(found.columns) == set(made.NAMES)
    assert ordered(found.to_dicts()) == own
    one = pl.scan_delta(table.location.uri).filter(pl.col("ledger_offset") == 10).collect()
    assert one["epoch"].to_list() == [5, 5, 5]


@pytest.mark.nightly
@pytest.mark.spark
def test_spark(table: TransactionsTable, own: Rows):
    assert table.location.local is not None
    assert ordered(read_with_spark(table.location.local)) == own
