"""Errors end with what to do next: each error that a person may see is made with a hint."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from eos import errors
from eos.errors import EosError, Recovery

ROOT = Path(__file__).parents[2]
# What is redone never leaves the process by itself.
TOLD = {
    name
    for name, each in vars(errors).items()
    if inspect.isclass(each) and issubclass(each, EosError) and each.recovery is not Recovery.REDO
}
# Made where no person is, and why.
WITHOUT = {
    ("eos/transaction/coordinator.py", "no request was sent yet"): "stands in until one was",
}


def made_without_hint(text: str) -> list[tuple[int, str]]:
    """Line and message of each error that has none, or an empty one."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        hints = [each.value for each in node.keywords if each.arg in {"hint", None}]
        is_empty = all(isinstance(each, ast.Constant) and not each.value for each in hints)
        if node.func.id in TOLD and len(node.args) > 1 and is_empty:
            found.append((node.lineno, ast.unparse(node.args[1]).strip("f'\"")))
    return found


def test_each_error_that_a_person_may_see_has_a_hint() -> None:
    lacking, used = [], set()
    for path in sorted((ROOT / "eos").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        for line, message in made_without_hint(path.read_text()):
            known = {at for at in WITHOUT if at[0] == name and message.startswith(at[1])}
            used |= known
            if not known:
                lacking.append(f"{name}:{line}: {message[:80]}")
    assert not lacking, "what is a person to do next?\n" + "\n".join(lacking)
    assert used == set(WITHOUT), "these have a hint now, or are gone"


def test_what_has_none_is_seen() -> None:
    text = (
        "raise UsageError('x', 'a')\nraise UsageError('x', 'b', hint='c')\n"
        "UsageError('x', 'd', hint='')\n"
    )
    assert made_without_hint(text) == [(1, "a"), (3, "d")]
    assert (
        made_without_hint("raise AttemptFailedError('x', 'a')\nraise UsageError('x', 'b', **m)")
        == []
    )
