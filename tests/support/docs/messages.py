"""All errors of the source, by code, as the page docs/messages.md shows them.

Run as a program, this prints the page: `python -m support.docs.messages > docs/messages.md`, with
`tests` in PYTHONPATH. The texts are read from the syntax trees of the places that raise, with the
names of values in braces.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from eos import errors
from eos.errors import EosError, Recovery
from eos.kafka import outcomes

ROOT = Path(__file__).parents[3]
CODE = re.compile(r"[a-z][a-z0-9_]{3,49}")
CLASSES = {
    name: each
    for name, each in vars(errors).items()
    if inspect.isclass(each) and issubclass(each, EosError)
}
_STOPS = re.compile(r"^### `([a-z0-9_]+)`$", re.MULTILINE)
_HEAD = """# Messages

Find an error by its code, the word in brackets after `eos:`, and read what to do. For example:

```
eos: [ledger_empty] orders: the checkpoint ... has committed micro-batches, but the ledger ... has none
```

Words in braces stand for values. Where texts are separated by ` / `, an error shows one of them. The exit code is what
the process ends with if this error ends it. A failed attempt is retried first. [recovery.md](recovery.md) is the runbook
by symptom. This page is generated.
"""  # noqa: E501 - a page of docs/ has longer lines


class Entry(NamedTuple):
    """One place that raises an error."""

    code: str
    kind: str  # name of the class, or the variable that chooses it
    message: str
    hint: str
    where: str


@cache
def entries() -> list[Entry]:
    found = [each for path in sorted((ROOT / "eos").rglob("*.py")) for each in _of_file(path)]
    return sorted([*found, *_of_kafka()])


def page() -> str:
    by_code: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries():
        by_code[entry.code].append(entry)
    return "\n".join([_HEAD, *("\n".join(_section(code, by_code[code])) for code in by_code)])


def _section(code: str, of_code: list[Entry]) -> Iterator[str]:
    yield f"## `{code}`\n"
    exits = sorted({exit_code(entry.kind) for entry in of_code} - {0})
    if any(is_retried(entry.kind) for entry in of_code):
        yield f"The attempt is retried. Exit code {exits[0]} if no retry succeeds.\n"
    elif exits:
        yield f"Exit code {' or '.join(map(str, exits))}.\n"
    else:
        yield "The exit code depends on when it happens.\n"
    for message, hint in dict.fromkeys((entry.message, entry.hint) for entry in of_code):
        yield f"> {message}\n"
        if hint:
            yield f"Cause and fix: {hint}" + ("\n" if hint[-1:] in ".?" else ".\n")
    if code in described():
        yield f"More: [{described()[code]}]({described()[code]}#{code})\n"


def exit_code(kind: str) -> int:
    """Return the exit code of a class; 0 if it is chosen when the error is raised."""
    if kind not in CLASSES:
        return 0
    recovery = CLASSES[kind].recovery
    return (Recovery.RESTART if recovery is Recovery.REDO else recovery).value


def is_retried(kind: str) -> bool:
    return kind in CLASSES and CLASSES[kind].recovery is Recovery.REDO


@cache
def described() -> dict[str, str]:
    """Return the page in docs/ with more about an error, by code."""
    pages = sorted((ROOT / "docs").glob("stops-*.md"))
    return {code: page.name for page in pages for code in _STOPS.findall(page.read_text())}


def _of_kafka() -> Iterator[Entry]:
    """Yield one error for each refusal of Kafka and cause that this project has words for."""
    for api, known in outcomes._MEANINGS.items():
        for number in sorted(filter(None, known)):
            error = outcomes.describe(api, number)
            yield Entry(error.code, type(error).__name__, error.message, error.hint, "eos/kafka")


def _of_file(path: Path) -> Iterator[Entry]:
    where = path.relative_to(ROOT)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    module = importlib.import_module(
        ".".join(where.with_suffix("").parts).removesuffix(".__init__")
    )
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    seen: set[int] = set()
    for function in reversed(functions):  # the innermost first
        texts = _Texts(module, function)
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and id(node) not in seen:
                seen.add(id(node))
                yield from _of_call(node, texts, str(where))


def _of_call(node: ast.Call, texts: _Texts, where: str) -> Iterator[Entry]:
    named = {each.arg: each.value for each in node.keywords if each.arg}
    hint = texts.of(named["hint"]) if "hint" in named else ""
    callee = node.func.id if isinstance(node.func, ast.Name) else ""
    first = node.args[0] if len(node.args) > 1 else None
    is_error = callee in CLASSES or (callee == "kind" and "hint" in named)
    if first is not None and is_error:
        codes = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
        for code in (each for each in codes if isinstance(each, ast.Constant)):
            yield Entry(texts.of(code), callee, texts.of(node.args[1]), hint, where)
    elif callee == "existing_topics":
        code, kind = ast.literal_eval(named["code"]), ast.unparse(named["missing"])
        message = f"the {texts.of(named['what'])} topic {{topic}} does not exist"
        yield Entry(code, kind, message, hint, where)


class _Texts:
    """Converter of an expression to its text, with the names of values in braces."""

    def __init__(self, module: ModuleType, function: ast.FunctionDef) -> None:
        self._module = module
        self._assigned: dict[str, list[ast.expr]] = defaultdict(list)
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._assigned[node.targets[0].id].append(node.value)

    def of(self, node: ast.expr) -> str:
        if isinstance(node, ast.Constant):
            return str(node.value)
        if isinstance(node, ast.JoinedStr):
            return "".join(map(self.of, node.values))
        if isinstance(node, ast.FormattedValue):
            return self.of(node.value)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.of(node.left) + self.of(node.right)
        if isinstance(node, ast.IfExp):
            return " / ".join(filter(None, (self.of(node.body), self.of(node.orelse))))
        if isinstance(node, ast.Lambda):
            return self.of(node.body)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._named(node)
        return f"{{{_name(node)}}}"

    def _named(self, node: ast.Name | ast.Attribute) -> str:
        """Return the text of a constant, or of a variable that is assigned a text once."""
        if isinstance(node, ast.Name):
            values = self._assigned.get(node.id, [])
            if len(values) == 1 and isinstance(values[0], (ast.JoinedStr, ast.Constant)):
                return self.of(values[0])
            found = None if values else getattr(self._module, node.id, None)
        else:
            base = node.value.id if isinstance(node.value, ast.Name) else ""
            found = getattr(getattr(self._module, base, None), node.attr, None)
        return found if isinstance(found, str) else f"{{{_name(node)}}}"


def _name(node: ast.AST) -> str:
    """Return a word for a value: the name of the variable, field or function that it is from."""
    if isinstance(node, ast.Name):
        return node.id.strip("_")
    if isinstance(node, ast.Attribute):
        return node.attr.strip("_")
    if isinstance(node, ast.Call):
        name = _name(node.func)
        is_plain = name in {"join", "sorted", "list", "len", "str", "min", "max", "repr", "set"}
        return _name(node.args[0]) if is_plain and node.args else name
    if isinstance(node, (ast.Subscript, ast.Starred)):
        return _name(node.value)
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        return _name(node.elt)
    if isinstance(node, ast.BoolOp):
        return _name(node.values[0])
    if isinstance(node, ast.BinOp):
        return _name(node.left)
    return "value"


if __name__ == "__main__":
    print(page(), end="")
