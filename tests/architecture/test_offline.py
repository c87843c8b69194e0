"""Verbs that ask nobody answer at once: they load none of the libraries that take long to import.

What counts is what was imported, never how long it took.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = (
    *("pyspark", "py4j", "pyarrow", "numpy", "pandas", "delta", "deltalake", "kafka"),
    *("confluent_kafka", "lz4", "zstandard", "google_crc32c", "rich"),
)
PIPELINE = """
version: 1
name: light
source: {kafka: {topic: a}, value: {json: "id INT, amount DOUBLE"}, on_error: dead_letter}
expect: [{name: paid, rule: amount > 0}]
transform:
  - sql: SELECT *, amount * 2 AS twice FROM input
  - python: pipelines.light.transform:passed
    with: {times: 2}
  - {pandas: pipelines.light.transform:doubled, returns: "id INT"}
sink:
  kafka:
    - {topic: {column: t, topics: [b, c]}, key: id, value: json, partition: p, timestamp: at}
  dead_letter: d
tests: [{name: nothing, input: [], output: []}]
"""
# One process for all of them: what one verb would load stays there for the next to be told of.
PROGRAM = """
import contextlib, io, sys
from eos.__main__ import main
for line in sys.stdin.read().splitlines():
    sys.argv = ["eos", *line.split()]
    said = io.StringIO()
    code = 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as end:
            code = end.code
    loaded = [name for name in {heavy!r} if name in sys.modules]
    print(f"{line}: exit {code}, loaded {loaded}")
"""
# `eos lint` and `eos plan` import it, with what it imports itself.
TRANSFORM = """
def passed(frame, times: int):
    return frame.withColumn("twice", frame.twice * times)

def doubled(rows):
    return rows
"""
SHIPPED = sorted(
    str(path.parent)
    for path in ROOT.glob("pipelines/*/pipeline.yaml")
    if not re.search(r"\b(python|pandas|arrow):", path.read_text())
)
VERBS = (
    *("--help", "--version", "schema", "init shop", "lint pipelines/light"),
    *("plan light", "plan light --json", "plan light --mermaid"),
    *(f"{verb} --help" for verb in ("init", "lint", "test", "plan", "doctor", "verify", "recover")),
    *("broker start --help", "completion bash"),
    *(f"{verb} {path}" for path in SHIPPED for verb in ("lint", "plan", "plan --mermaid")),
)
LOOKS = ("doctor", "doctor light")  # this machine decides on their exit code


def test_verbs_that_ask_nobody_load_nothing_heavy(tmp_path: Path) -> None:
    place = tmp_path / "pipelines" / "light"
    place.mkdir(parents=True)
    (place / "pipeline.yaml").write_text(PIPELINE)
    (place / "transform.py").write_text(TRANSFORM)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("{heavy!r}", repr(HEAVY))],
        input="\n".join([*VERBS, *LOOKS]),
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    told = done.stdout.splitlines()
    assert told[: len(VERBS)] == [f"{verb}: exit 0, loaded []" for verb in VERBS]
    assert [line.partition("loaded ")[2] for line in told] == ["[]"] * len([*VERBS, *LOOKS])
