"""Pipelines with Delta tables, what goes into them, and what a reader without Spark finds there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from deltalake import DeltaTable, QueryBuilder

from support import outside
from support.project import Project

PARTITIONS, KEYS = 2, 7
_PIPELINE = """
version: 1
name: {name}
source:
  kafka: {{topic: {source}, max_records: {records}}}
  value: {{json: "k INT, n BIGINT"}}
TABLES
transform:
  - STEP
sink:
  kafka: {{topic: {target}, key: k, value: json, create: {{partitions: {partitions}}}}}
  delta: [SINKS]
trigger: {{available_now: true}}
"""
ALL = "{{path: FOLDER/lake/all}}"
LAST = "{{path: FOLDER/lake/last, mode: merge, keys: [k], name: newest}}"


def pipeline(step: str, *sinks: str, tables: str = "") -> str:
    """For `declare`. `step`: a query, or the name of a function in TRANSFORM."""
    function = f"pipelines.{{module}}.transform:{step}"
    call = f'{{{{arrow: "{function}", with: {{{{folder: FOLDER}}}}, returns: "*"}}}}'
    query = f"{{{{sql: {step}}}}}"
    text = _PIPELINE.replace("STEP", call if step.isidentifier() else query)
    named = f"tables: {tables}" if tables else ""
    return text.replace("TABLES", named).replace("SINKS", ", ".join(sinks))


PIPELINE = pipeline("passed_on", ALL, LAST)
# Dies while a table is written: the second evaluation of rows from `first` on.
TRANSFORM = """
import os
import shutil
import signal
import time
from pathlib import Path

import pyarrow.compute as pc
from deltalake import DeltaTable


def restoring(rows, folder: str):
    # Restores the table while the topic is written.
    if rows.num_rows and (Path(folder) / "restore").exists():
        (Path(folder) / "restore").unlink()
        DeltaTable(str(Path(folder) / "lake" / "all")).restore(1)
    return rows


def removing(rows, folder: str):
    # Takes the table away while the topic is written.
    if rows.num_rows and (Path(folder) / "remove").exists():
        (Path(folder) / "remove").unlink()
        shutil.rmtree(Path(folder) / "lake" / "last")
    return rows


def passed_on(rows, folder: str):
    armed = Path(folder) / "armed"
    if armed.exists() and rows.num_rows:
        if pc.min(rows["n"]).as_py() >= int(armed.read_text()):
            again = Path(folder) / "again"
            if again.exists():
                armed.unlink()
                told = Path(folder) / "driver"
                while not (told.exists() and told.read_text().endswith("\\n")):
                    time.sleep(0.05)
                driver = int(told.read_text())
                jvm = os.getpid()
                while Path(f"/proc/{jvm}/comm").read_text().strip() != "java":
                    stat = Path(f"/proc/{jvm}/stat").read_text()
                    jvm = int(stat.rpartition(")")[2].split()[1])
                os.kill(driver, signal.SIGKILL)
                os.kill(jvm, signal.SIGKILL)
                os._exit(137)
            again.touch()
    return rows
"""


def declare(project: Project, records: int = 20, text: str = PIPELINE, **instead: str) -> None:
    for word, other in {**instead, "FOLDER": str(project.folder)}.items():
        text = text.replace(word, other)
    project.declare(records, PARTITIONS, text)
    place = project.folder / "pipelines" / project.name / "transform.py"
    place.write_text(TRANSFORM)


def feed(project: Project, numbers: Iterable[int], **more: Any) -> None:
    """A key keeps its partition, and its numbers ascend there."""
    producer = Producer(
        {**outside.IN_ORDER, "bootstrap.servers": project.broker.bootstrap, "log_level": 3}
    )
    for number in numbers:
        key = number % KEYS
        value = json.dumps({"k": key, "n": number, **more})
        producer.produce(project.source, value, b"%d" % key, partition=key % PARTITIONS)
    assert producer.flush(300) == 0


def table(project: Project, name: str) -> Path:
    return project.folder / "lake" / name


def rows(path: Path) -> list[dict[str, Any]]:
    """As delta-rs reads it."""
    made = QueryBuilder().register("t", DeltaTable(str(path))).execute("SELECT * FROM t")
    return pa.table(made.read_all()).to_pylist()


def version(path: Path, name: str) -> int:
    """The pipeline's last write, out of the table's own log; each of its versions rises."""
    found = [-1]
    for file in sorted((path / "_delta_log").glob("*.json")):
        for line in file.read_text().splitlines():
            written = json.loads(line).get("txn")
            if written and written["appId"].endswith(f"/{name}"):
                assert written["version"] > found[-1], f"{file} goes back"
                found.append(written["version"])
    return found[-1]


def newest(numbers: Iterable[int]) -> Mapping[int, int]:
    return {number % KEYS: number for number in sorted(numbers)}
