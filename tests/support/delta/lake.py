"""Pipelines with Delta tables, their input, and what a reader without Spark finds there.

The second half copies the three example pipelines of docs/combinations.md under names of one test.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from eos.launch.demo import Demo
from eos.stamp import EPOCH, PRODUCER, SEQUENCE
from eos.testing.outside import fill
from support.docs import ROOT
from support.kafka import kafka_io
from support.spark.project import Project

PARTITIONS, KEYS = 2, 7
COPIED = """
version: 1
name: {name}
source: {{kafka: {{topic: {source}, max_records: {records}}}}}
transform:
  - sql: SELECT CAST(value AS STRING) AS text FROM input
sink: {{delta: {{path: FOLDER/lake/all}}}}
trigger: {{available_now: true}}
"""
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
    producer = kafka_io.producer(project.broker.bootstrap)
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


def verified(project: Project, *words: str, code: int = 0) -> dict[str, Any]:
    """Return what `eos verify --json` prints."""
    command = [sys.executable, "-m", "eos", "verify", *project.words(), "--json", *words]
    env = project.environment()
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def require_proven(project: Project, name: str, **counts: int) -> None:
    """Require that no count of a table's proof but these is above 0, and that each commit has the
    ledger's digest. Spark decides how many data files it writes."""
    told = verified(project)
    assert told["findings"] == []
    found = told["tables"][name]
    assert found.pop("files") > 0
    assert found == {**dict.fromkeys(found, 0), "unchanged": counts["commits"], **counts}


def newest(numbers: Iterable[int]) -> Mapping[int, int]:
    return {number % KEYS: number for number in sorted(numbers)}


CHAIN = ("sales_clean", "sales_by_hour", "sales_lake")
SALES, UNPAID = range(1000), 500
DAY, CENTS = "2026-11-21", 100


def copy_examples(first: Project) -> tuple[Project, ...]:
    """Copy the examples beside each other; their topics begin with the first project's name."""
    made = []
    for example in CHAIN:
        project = replace(first, name=f"{first.name}_{example}")
        place = project.folder / "pipelines" / project.name
        shutil.copytree(
            ROOT / "pipelines" / example, place, ignore=shutil.ignore_patterns("__pycache__")
        )
        for path in place.iterdir():
            text = re.sub(r"(topic: )(sales)\b", rf"\1{first.name}.\2", path.read_text())
            text = re.sub(
                r"(?m)^(SOURCE|SOURCE, .*)( = .*)$", lambda m: _with_own_source(m, first.name), text
            )
            path.write_text(re.sub(r"(?m)^name: .*$", f"name: {project.name}", text))
        made.append(project)
    return tuple(made)


def _with_own_source(line: re.Match[str], name: str) -> str:
    return line[1] + line[2].replace('"sales', f'"{name}.sales')


def demo_of(project: Project) -> Demo:
    script = project.folder / "pipelines" / project.name / "demo.py"
    return Demo(script, project.broker.bootstrap)


def sales_totals(numbers: Iterable[int]) -> dict[tuple[str, int], tuple[int, int]]:
    """Return sales and cents of each shop and hour: each shop makes one sale a minute from 8:00."""
    sales, cents = Counter[tuple[str, int]](), defaultdict[tuple[str, int], int](int)
    for number in numbers:
        hour = ("north", "south")[number % 2], 8 + number // 2 // 60
        sales[hour] += 1
        cents[hour] += 100 + number * 37 % 9_900
    return {hour: (sales[hour], cents[hour]) for hour in sales}


def send_sales(clean: Project, at: Iterable[str]) -> None:
    """Write a sale of the northern shop at each of these times, stamped by a till of its own."""
    source = f"{clean.name.removesuffix(CHAIN[0])[:-1]}.sales"
    for time in at:
        sale = {"sale_id": 1000, "shop": "north", "cents": CENTS, "sold_at": f"{DAY}T{time}:00Z"}
        stamp = {PRODUCER: f"till-{time}", EPOCH: "0", SEQUENCE: "0"}
        fill(
            clean.broker.bootstrap,
            source,
            [{"value": json.dumps(sale), "headers": [*stamp.items()]}],
        )


def read_sales(folder: Path) -> dict[tuple[str, int], tuple[int, int]]:
    """Return what the table has, as `sales_totals` has it."""
    found = rows(folder / "lake" / "sales_by_hour")
    made = {(row["shop"], row["hour"].hour): (row["sales"], row["cents"]) for row in found}
    assert len(made) == len(found)
    return made


def missing_on_page(text: str) -> list[str]:
    """Return the lines of a demo's report that the page does not have."""
    page = (ROOT / "docs" / "combinations.md").read_text()
    return [line for line in text.splitlines() if line not in page]
