"""What Spark with Delta's own library reads of a table, as JSON: a program of its own, since jars
belong to a JVM and the one of this process may be there already."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from eos.launch import spark
from eos.launch.java_and_jars import ensure_java
from eos.local import jars
from support.archived import class_path, with_archive, words_of_a_run

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
_JOB = Path(__file__).with_name("delta_job.py")
_S_MAX = 600  # a bound, not a measure


def read(location: Path) -> Sequence[dict[str, Any]]:
    java = ensure_java().home
    found = spark.find_spark()
    files = ",".join(map(str, jars.ensure(jars.DELTA)[jars.DELTA]))
    words = [str(found.home / "bin" / "spark-submit"), "--master", "local[1]", "--jars", files]
    run = words_of_a_run("local[1]")
    for name, value in {**_CONF, **class_path(run)}.items():
        words += ["--conf", f"{name}={value}"]
    done = subprocess.run(
        [*words, str(_JOB), str(location)],
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
