"""Tests that pages and catalogues name: `tests/FOLDER/FILE.py`, perhaps with `::FUNCTION`."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@cache
def functions(file: str) -> frozenset[str]:
    """Names of the test functions in a file, and of the test classes that a state machine makes."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    names |= {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return frozenset(name for name in names if name.startswith(("test", "Test")))


def problem_of(test: str) -> str:
    """Why there is no such test; empty if there is one."""
    file, _, function = test.partition("::")
    if not (ROOT / file).is_file():
        return f"{test}: there is no such file"
    if function and function.partition("[")[0] not in functions(file):
        return f"{test}: the file has no such function"
    return ""
