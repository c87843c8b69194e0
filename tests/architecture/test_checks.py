"""The checks that a reviewer would run by hand: they run with the tests, so nobody forgets one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# What Python workers load. Each is imported alone, in a fresh interpreter.
ON_EXECUTORS = (
    "eos.encode.stage",
    "eos.transaction.writer",
    "eos.kafka.client",
    "eos.ledger.receipt",
)
KEPT_OFF_EXECUTORS = ("yaml", "pydantic", "eos.config", "eos.plan", "eos.cli", "argparse", "rich")


@pytest.mark.parametrize("words", ["ruff check .", "mypy", "lint-imports --no-cache"])
def test_check_has_nothing_to_say(words: str) -> None:
    name, *arguments = words.split()
    done = subprocess.run(
        [str(Path(sys.executable).parent / name), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("module", ON_EXECUTORS)
def test_what_executors_import_loads_no_settings_and_no_spark_sql(module: str) -> None:
    names = (*KEPT_OFF_EXECUTORS, "pyspark.sql")
    program = f"import sys, {module}\nprint([name for name in {names!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_launcher_starts_without_libraries() -> None:
    """It stands before every start of a pipeline: what it imports, everybody waits for."""
    heavy = ("pyspark", "numpy", "pandas", "pyarrow", "kafka", "pydantic", "yaml")
    program = f"import sys, eos.cli.run\nprint([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
