"""The example pipelines on a real broker, each under names of its own; what their files test, on
Spark alone, is in test_cases.py."""

from __future__ import annotations

import json
import re
import shutil
import zlib
from collections import Counter
from pathlib import Path

import pytest
from support.kafka import kafka_io
from support.kafka.kafka_io import DAY, DAY_MS
from support.spark.project import Project

from eos.testing import require_each_once
from eos.testing.outside import fill, read

ROOT = Path(__file__).parents[2]


def declare(project: Project, example: str, topics: str) -> None:
    """The example's folder in this project; `topics` is how its topics begin."""
    place = project.folder / "pipelines" / example
    own = shutil.ignore_patterns("__pycache__")  # others write there at the same time
    shutil.copytree(ROOT / "pipelines" / example, place, ignore=own)
    file = place / "pipeline.yaml"
    text = re.sub(rf"\b{topics}\b(?=[.,}}])", f"{project.name}.{topics}", file.read_text())
    text, count = re.subn(rf"(?m)^name: {example}$", f"name: {project.name}", text)
    assert count == 1
    # Runs are of the folder that has the project's name.
    file.write_text(text.replace(f"pipelines.{example}.", f"pipelines.{project.name}."))
    place.rename(place.with_name(project.name))


def ran(project: Project, *options: str, **environment: str) -> None:
    done = project.run_warm(*options, **environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_what_fans_out_is_where_it_belongs_once_although_an_attempt_failed(
    project: Project,
) -> None:
    declare(project, "orders_fanned_out", "orders")
    at, names = project.broker.bootstrap, f"{project.name}.orders"
    markets = ("DE", "FR", "JP", "BR")
    orders = {
        f"o{n}": {
            "market": markets[n % 4],
            "amount": n * 100,
            "placed": f"{DAY}T10:{n:02}:00Z",
        }
        for n in range(40)
    }
    kafka_io.create_topics(at, 2, f"{names}.changes")
    sent = [{"key": key, "value": json.dumps(order)} for key, order in orders.items()]
    deleted = [f"o{n}" for n in range(0, 40, 7)]
    # In the order of their key's partition: a deletion comes behind what it deletes.
    fill(at, f"{names}.changes", [*sent, *({"key": key, "value": None} for key in deleted)])
    folder = project.folder / "faults"
    folder.mkdir()
    faults = {"EOS_TASK_FAULTS": "0/written:after:worker", "EOS_TASK_FAULTS_FOLDER": str(folder)}
    ran(project, **faults)
    assert list(folder.glob("0.written*")), "the attempt did not fail"

    current = read(at, f"{names}.current")
    require_each_once([*orders, *deleted], [(record.key or b"").decode() for record in current])
    for record in current:
        assert record.partition == zlib.crc32(record.key or b"") % 4
        if record.value is None:
            assert record.key.decode() in deleted
        else:
            minute = orders[record.key.decode()]["placed"][14:16]
            assert record.timestamp_ms == DAY_MS + (600 + int(minute)) * 60_000
    for market, of in (("eu", ("DE", "FR")), ("asia", ("JP",))):
        there = [record.key.decode() for record in read(at, f"{names}.{market}")]
        require_each_once([key for key, each in orders.items() if each["market"] in of], there)
    large = read(at, f"{names}.large")
    wanted = [key for key, each in orders.items() if each["amount"] > 1000]
    require_each_once(wanted, [record.key.decode() for record in large])
    assert {record.headers for record in large} == {(("placed", DAY.encode()),)}


@pytest.mark.long
def test_a_session_is_told_once_when_it_is_over_whichever_run_saw_its_clicks(
    project: Project,
) -> None:
    declare(project, "sessions", "clicks")
    at, names = project.broker.bootstrap, f"{project.name}.clicks"
    kafka_io.create_topics(at, 1, names)

    def click(user: str, minute: int) -> dict[str, bytes]:
        at_time = f"2026-11-21T{10 + minute // 60:02}:{minute % 60:02}:00Z"
        return {"value": json.dumps({"user": user, "ts": at_time}).encode()}

    def told() -> Counter[tuple[str, str, int]]:
        found = [record.json for record in read(at, f"{names}.sessions")]
        return Counter((each["user"], each["first_click"][11:16], each["clicks"]) for each in found)

    fill(at, names, [click("ann", 0), click("bob", 5), click("ann", 20), click("bob", 60)])
    ran(project, "--available-now")
    # The newest click is of 11:00, so that until 10:50 nothing can come any more: ann's session
    # ended at 10:50, bob's first at 10:35.
    assert told() == Counter([("ann", "10:00", 2), ("bob", "10:05", 1)])
    # Another process goes on with the state of the first: bob's second session gets a click more.
    fill(at, names, [click("bob", 80), click("ann", 200)])
    ran(project, "--available-now")
    assert told() == Counter([("ann", "10:00", 2), ("bob", "10:05", 1), ("bob", "11:00", 2)])
