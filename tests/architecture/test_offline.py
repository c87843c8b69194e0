"""Verbs that ask nobody answer at once: they load none of the libraries that take long to import.

What counts is what was imported, never how long it took.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = (
    *("pyspark", "py4j", "pyarrow", "numpy", "pandas", "deltalake", "kafka", "confluent_kafka"),
    *("lz4", "zstandard", "google_crc32c", "rich"),
)
PIPELINE = """
version: 1
name: light
source: {kafka: {topic: a}, value: {json: "id INT, amount DOUBLE"}, on_error: dead_letter}
expect: [{name: paid, rule: amount > 0}]
transform:
  - sql: SELECT *, amount * 2 AS twice FROM input
  - python: pipelines.light.transform:passed
sink:
  kafka:
    - {topic: {column: t, topics: [b, c]}, key: id, value: json, partition: p, timestamp: at}
  dead_letter: d
tests: [{name: nothing, input: [], output: []}]
"""
PROGRAM = """
import sys
from eos.cli.main import main
sys.argv = ["eos", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    print("exit", end.code, file=sys.stderr)
print("loaded", [name for name in {heavy!r} if name in sys.modules], file=sys.stderr)
"""
HELP = ("init", "lint", "test", "plan", "doctor")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose own modules are light: what a user's module imports is the user's."""
    made = tmp_path_factory.mktemp("offline")
    place = made / "pipelines" / "light"
    place.mkdir(parents=True)
    (place / "pipeline.yaml").write_text(PIPELINE)
    (place / "transform.py").write_text("def passed(frame):\n    return frame\n")
    return made


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "schema",
        "init shop",
        "lint pipelines/light",
        "plan light",
        "doctor",
        "doctor light",
    ]
    + [f"{verb} --help" for verb in HELP],
)
def test_a_verb_that_asks_nobody_loads_nothing_heavy(words: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(heavy=HEAVY), *words.split()],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    *_, ended, loaded = done.stderr.splitlines()
    assert loaded == "loaded []"
    assert ended == "exit 0" or words.startswith("doctor"), done.stderr
