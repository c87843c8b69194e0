"""`--rewind-to` with Delta tables: each table is named, with the version that it had there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from support import kafka_io, lake
from support.brokers import Kafka
from support.project import Project, WarmDriver

TABLES = {"all": "all", "newest": "last"}  # folders by name
SQL = "'SELECT * FROM input'"


def recovered(project: Project, *words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "eos", "recover", *project.words(), *words, "--json"]
    env = project.environment()
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == (0 if "--yes" in words else 1), done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.long  # several runs of Spark
def test_restored_tables_get_each_row_once_after_a_rewind(
    tmp_path: Path, broker: Kafka, with_delta: WarmDriver
) -> None:
    project = Project.made(tmp_path, broker, with_delta)
    kafka_io.create_topics(broker.bootstrap, lake.PARTITIONS, project.source)
    lake.declare(project, 1000, lake.pipeline(SQL, lake.ALL, lake.LAST))
    for numbers in (range(10), range(10, 20)):
        lake.feed(project, numbers)
        assert project.run_warm().returncode == 0
    records = kafka_io.read(broker.bootstrap, project.ledger)
    attempts = [row.offset for row in records if json.loads(row.value or b"")["kind"] == "attempt"]

    said = recovered(project, "--rewind-to", str(attempts[0]), "--yes")["says"]
    for name, folder in TABLES.items():
        place = lake.table(project, folder)
        (text,) = (each for each in said if each.startswith(f"the Delta table {name} "))
        (path, version) = re.findall(r"RESTORE TABLE delta\.`(.*)` TO VERSION AS OF (\d+)", text)[0]
        assert path == str(place)
        DeltaTable(path).restore(int(version))
        assert max(row["n"] for row in lake.rows(place)) == 9
        assert f"--accept-table {name} --yes`" in text
        recovered(project, "--accept-table", name, "--yes")
    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    rows = sorted(row["n"] for row in lake.rows(lake.table(project, "all")))
    assert rows == list(range(20))
    newest = {row["k"]: row["n"] for row in lake.rows(lake.table(project, "last"))}
    assert newest == lake.newest(range(20))
