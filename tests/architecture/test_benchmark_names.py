"""Benchmarks are not run with the tests: do the names of `eos` that they use still exist, and do
calls have the arguments that functions take?"""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[1] / "bench"


def imported(tree: ast.AST) -> Iterator[tuple[str, str, str]]:
    """Each imported name of `eos`: its module, the name, and its name in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "eos":
            yield from (
                (str(node.module), each.name, each.asname or each.name) for each in node.names
            )


def value(module: str, name: str) -> object:
    found = importlib.import_module(module)
    return (
        getattr(found, name)
        if hasattr(found, name)
        else importlib.import_module(f"{module}.{name}")
    )


def missing(tree: ast.AST) -> list[str]:
    modules: dict[str, ModuleType] = {}
    lacks: list[str] = []
    for module, name, here in imported(tree):
        try:
            found = value(module, name)
        except ImportError:
            lacks.append(f"{module}.{name}")
            continue
        if isinstance(found, ModuleType):
            modules[here] = found
    return lacks + list(attributes(tree, modules))


def attributes(tree: ast.AST, modules: Mapping[str, ModuleType]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            if module is not None and not hasattr(module, node.attr):
                yield f"{module.__name__}.{node.attr} (line {node.lineno})"


@pytest.mark.parametrize("path", sorted(BENCH.rglob("*.py")), ids=lambda path: path.stem)
def test_names_exist(path: Path) -> None:
    assert missing(ast.parse(path.read_text(encoding="utf-8"))) == []


@pytest.mark.long
def test_calls_have_the_arguments_that_functions_take() -> None:
    """Of mypy's errors only these: most others are about a benchmark's doubles."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--explicit-package-bases", str(BENCH)],
        env={**os.environ, "MYPYPATH": "tests:."},
        cwd=BENCH.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.rstrip().endswith("source files)"), done.stdout + done.stderr
    assert [line for line in done.stdout.splitlines() if line.endswith("[call-arg]")] == []


def test_missing_names_are_found() -> None:
    text = (
        "from eos.run import gone, pipeline\nfrom eos.run.pipeline import lost\npipeline.shown()\n"
    )
    assert missing(ast.parse(text)) == [
        "eos.run.gone",
        "eos.run.pipeline.lost",
        "eos.run.pipeline.shown (line 3)",
    ]
