"""`--rewind-to` with Delta tables: they are named with their versions, or restored to them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from support.delta import lake
from support.kafka import kafka_io
from support.kafka.brokers import Kafka
from support.spark.project import Project, WarmDriver

TABLES = {"all": "all", "newest": "last"}  # folders by name
SQL = "'SELECT * FROM input'"


def recover(project: Project, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "eos", "recover", *project.words(), *words, "--json"]
    env = project.environment(**environment)
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def recovered(project: Project, *words: str) -> dict[str, Any]:
    done = recover(project, *words)
    assert done.returncode == (0 if "--yes" in words else 1), done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def ran(tmp_path: Path, broker: Kafka, with_delta: WarmDriver) -> Project:
    """Two micro-batches of ten records, in versions 1 and 2 of both tables."""
    project = Project.made(tmp_path, broker, with_delta)
    kafka_io.create_topics(broker.bootstrap, lake.PARTITIONS, project.source)
    lake.declare(project, 1000, lake.pipeline(SQL, lake.ALL, lake.LAST))
    for numbers in (range(10), range(10, 20)):
        lake.feed(project, numbers)
        assert project.run_warm().returncode == 0
    return project


def ledger_offsets(project: Project, kind: str) -> list[str]:
    records = kafka_io.read(project.broker.bootstrap, project.ledger)
    kinds = {row.offset: json.loads(row.value or b"")["kind"] for row in records}
    return [str(offset) for offset, each in kinds.items() if each == kind]


def versions(project: Project) -> dict[str, int]:
    return {
        name: DeltaTable(str(lake.table(project, folder))).version()
        for name, folder in TABLES.items()
    }


def numbers_of(project: Project) -> list[int]:
    return sorted(row["n"] for row in lake.rows(lake.table(project, "all")))


def require_each_row_once(project: Project) -> None:
    assert numbers_of(project) == list(range(20))
    newest = {row["k"]: row["n"] for row in lake.rows(lake.table(project, "last"))}
    assert newest == lake.newest(range(20))


@pytest.mark.nightly  # several runs of Spark
def test_a_rewind_restores_the_tables_and_each_row_is_there_once(ran: Project) -> None:
    """Also if it dies between two tables, and between the last one and the ledger's record."""
    words = ("--rewind-to", ledger_offsets(ran, "attempt")[0], "--restore-tables")
    shown = recovered(ran, *words)
    assert shown["command"].endswith(f"--rewind-to {words[1]} --restore-tables --yes")
    assert [(each["table"], each["as_in_version"]) for each in shown["restores"]] == [
        ("all", 1),
        ("newest", 1),
    ]
    assert not any("a second time" in each and "Delta" in each for each in shown["says"])
    assert versions(ran) == {"all": 2, "newest": 2}

    # There and back. A recovery record has the tables' states at the position that it moved to.
    stop = ledger_offsets(ran, "stop")[-1]
    recovered(ran, *words, "--yes")
    assert (versions(ran), numbers_of(ran)) == ({"all": 3, "newest": 3}, list(range(10)))
    recovered(ran, "--rewind-to", stop, "--restore-tables", "--yes")
    assert versions(ran) == {"all": 4, "newest": 4}
    require_each_row_once(ran)

    # The second table has a commit of another program: the first table isn't restored, either.
    last = DeltaTable(str(lake.table(ran, "last")))
    last.delete("n = 19")
    refused = recover(ran, *words, "--yes")
    assert (refused.returncode, "[table_restore_foreign]" in refused.stderr) == (2, True)
    assert "the table newest (" in refused.stderr
    assert versions(ran) == {"all": 4, "newest": 5}
    last.restore(1)  # as the hint says

    died = recover(ran, *words, "--yes", EOS_CRASH_AT="tables:after:python")
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert versions(ran) == {"all": 5, "newest": 6}
    stopped = ran.run_warm()
    assert (stopped.returncode, "[table_restore_unfinished]" in stopped.stderr) == (4, True)
    found = json.loads(recover(ran).stdout)["findings"]
    ways = {each["case"]: each["ways"][0]["command"] for each in found}
    assert "--rewind-to OFFSET --restore-tables" in ways["table_restore_unfinished"]

    died = recover(ran, *words, "--yes", EOS_CRASH_AT="recovery.end_txn_sent:before:python")
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert ran.run_warm().returncode == 4

    recovered(ran, *words, "--yes")
    again = json.loads(recover(ran, *words, "--yes").stdout)
    assert (again["done"], again["says"]) == (False, ["the ledger is at that position"])
    assert (versions(ran), numbers_of(ran)) == ({"all": 5, "newest": 6}, list(range(10)))
    done = ran.run_warm()
    assert done.returncode == 0, done.stderr
    require_each_row_once(ran)
    told = lake.verified(ran)
    assert told["findings"] == []
    assert {each["commits"] for each in told["tables"].values()} == {3}


@pytest.mark.nightly  # several runs of Spark
def test_restored_tables_get_each_row_once_after_a_rewind(ran: Project) -> None:
    said = recovered(ran, "--rewind-to", ledger_offsets(ran, "attempt")[0], "--yes")["says"]
    for name, folder in TABLES.items():
        place = lake.table(ran, folder)
        (text,) = (each for each in said if each.startswith(f"the Delta table {name} "))
        (path, version) = re.findall(r"RESTORE TABLE delta\.`(.*)` TO VERSION AS OF (\d+)", text)[0]
        assert path == str(place)
        DeltaTable(path).restore(int(version))
        assert max(row["n"] for row in lake.rows(place)) == 9
        assert f"--accept-table {name} --yes`" in text
        assert "add --restore-tables, or" in text
        recovered(ran, "--accept-table", name, "--yes")
    done = ran.run_warm()
    assert done.returncode == 0, done.stderr
    require_each_row_once(ran)
