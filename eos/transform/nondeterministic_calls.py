"""Find calls in a user's Python function that give other results when a micro-batch is retried.

Examples are `random.random()` and `datetime.now()`. `sql_text.py` finds them in queries. Only the
source code is analysed. Nothing is imported or run.

A name counts only if the module's imports show what it is, so a column `now` or a method `random`
does not count. Only code that the function uses is checked, so a helper for tests is not reported.
Names that get their value while the function runs are ignored.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path

from eos import sql_text
from eos.sql_text import AGAIN, CLOCK, Unstable

_SPARK = "pyspark.sql.functions."
_NEW = "uuid1", "uuid4", "uuid6", "uuid7"
_ALWAYS = {
    **{_SPARK + name: reason for name, reason in sql_text.UNSTABLE.items()},
    **dict.fromkeys((f"uuid.{name}" for name in _NEW), AGAIN),
    "os.urandom": AGAIN,
    **dict.fromkeys(
        (
            "time.time",
            "time.time_ns",
            "datetime.date.today",
            *(f"datetime.datetime.{name}" for name in ("now", "today", "utcnow")),
            *(f"pandas.Timestamp.{name}" for name in ("now", "today", "utcnow")),
        ),
        CLOCK,
    ),
}
# All functions of these modules count as non-deterministic, except those in `_NONE`, most of which
# create or seed a generator. `_WITHOUT_ARGUMENTS` has those that count if they get no argument.
_MODULES = "random.", "secrets.", "numpy.random."
_NONE = frozenset(
    {"seed", "Random", "SystemRandom", "default_rng", "Generator", "RandomState", "SeedSequence"}
    | {"getstate", "setstate", "get_state", "set_state", "compare_digest", "BitGenerator"}
    | {"PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"}
)
_WITHOUT_ARGUMENTS = {
    **dict.fromkeys(
        ("random.Random", "numpy.random.default_rng", "numpy.random.RandomState"), AGAIN
    ),
    "random.SystemRandom": AGAIN,
    **dict.fromkeys(("time.localtime", "time.gmtime", "time.ctime", "time.asctime"), CLOCK),
    **{f"{_SPARK}{name}": CLOCK for name in ("unix_timestamp", "to_unix_timestamp")},
}
_ASKED = {"selectExpr", "sql"}  # methods that take SQL texts
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Binding = dict[str, str]  # a name, and the imported object it means; empty: something else


def file_of(reference: str) -> Path | None:
    """Return the file of the module in `module:function`, or None if it has no Python file.

    The project's folders must be on the path already (`functions.load`).
    """
    try:
        spec = importlib.util.find_spec(reference.partition(":")[0])
    except (ImportError, ValueError):
        return None
    origin = spec.origin if spec is not None else None
    return Path(origin) if origin and origin.endswith(".py") else None


def unstable(path: Path, function: str) -> tuple[Unstable, ...]:
    """Return the non-deterministic calls of a function in a Python file, in the order of the lines.

    Return none for a file that can't be parsed, since loading it reports that error.
    """
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ()
    module = _Module(tree)
    found = {each for part in module.reached(function) for each in module.unstable_calls(part)}
    return tuple(sorted(found, key=lambda each: (each.line, each.column)))


class _Module:
    """The top level of a parsed module: its statements by the names they bind, and its imports."""

    def __init__(self, tree: ast.Module) -> None:
        self._statements: dict[str, list[ast.stmt]] = {}
        self._names: _Binding = {}
        self._stars: list[str] = []
        for statement in _flat(tree.body):
            bound = dict(_bound([statement], self._stars))
            self._names.update(bound)
            for name in bound:
                self._statements.setdefault(name, []).append(statement)

    def reached(self, function: str) -> Iterator[ast.stmt]:
        """Yield the statements that define the function and all top-level names that it uses.

        Names that are used indirectly are included."""
        waiting, visited = [function], {function}
        while waiting:
            for statement in self._statements.get(waiting.pop(), ()):
                if isinstance(statement, ast.Import | ast.ImportFrom):
                    continue
                yield statement
                named = {each.id for each in ast.walk(statement) if isinstance(each, ast.Name)}
                waiting += sorted(named - visited)
                visited |= named

    def unstable_calls(self, node: ast.AST, names: _Binding | None = None) -> Iterator[Unstable]:
        """Yield the non-deterministic calls in a syntax node. `names` are the names in scope."""
        known = self._names if names is None else names
        if isinstance(node, _Function):
            known = known | _inside(node, self._stars)
        position = getattr(node, "lineno", 0), getattr(node, "col_offset", 0) + 1
        dotted = self._dotted(node, known)
        if dotted:
            reason = _reason(dotted)
            if reason:
                yield Unstable(dotted.removeprefix(_SPARK), reason, *position)
            return
        if isinstance(node, ast.Call):
            yield from self._called(node, known)
        for child in ast.iter_child_nodes(node):
            yield from self.unstable_calls(child, known)

    def _called(self, node: ast.Call, known: _Binding) -> Iterator[Unstable]:
        dotted = self._dotted(node.func, known)
        reason = _WITHOUT_ARGUMENTS.get(dotted, "")
        if reason and not node.args and not node.keywords:
            yield Unstable(
                dotted.removeprefix(_SPARK), reason, node.func.lineno, node.func.col_offset + 1
            )
        is_method = isinstance(node.func, ast.Attribute) and node.func.attr in _ASKED
        for each in node.args if is_method or dotted == f"{_SPARK}expr" else ():
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                for found in sql_text.unstable(each.value):
                    yield found._replace(line=each.lineno, column=each.col_offset + 1)

    def _dotted(self, node: ast.AST, known: _Binding) -> str:
        """Return the full name that a syntax node refers to, such as `pyspark.sql.functions.rand`.

        Return an empty text if the module's imports don't show it."""
        if isinstance(node, ast.Attribute):
            before = self._dotted(node.value, known)
            return _plain(f"{before}.{node.attr}") if before else ""
        if not isinstance(node, ast.Name):
            return ""
        if node.id not in known and f"{_SPARK}{node.id}" in _ALWAYS:
            return f"{_SPARK}{node.id}" if _SPARK[:-1] in self._stars else ""
        return known.get(node.id, "")


def _reason(dotted: str) -> str:
    for module in _MODULES:
        name = dotted.removeprefix(module)
        if name != dotted and "." not in name and name not in _NONE:
            return AGAIN
    return _ALWAYS.get(dotted, "")


def _plain(dotted: str) -> str:
    return dotted.replace("pyspark.sql.functions.builtin.", _SPARK)


def _flat(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, with those inside of `if`, `try`, `with` and loops in place of these.

    The inner statements bind names in the same scope."""
    for each in statements:
        if not isinstance(each, ast.If | ast.Try | ast.With | ast.For | ast.While):
            yield each
            continue
        for field in ("body", "handlers", "orelse", "finalbody"):
            for part in getattr(each, field, ()):
                yield from _flat(part.body if isinstance(part, ast.ExceptHandler) else [part])


def _inside(node: _Function, stars: list[str]) -> _Binding:
    """Return the names that a function binds: its arguments, assignments, imports and functions."""
    arguments = [each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)]
    body = [] if isinstance(node, ast.Lambda) else node.body
    return {**dict.fromkeys(arguments, ""), **dict(_bound(body, stars))}


def _bound(statements: Iterable[ast.stmt], stars: list[str]) -> Iterator[tuple[str, str]]:
    waiting: list[ast.AST] = list(statements)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Import):
            for each in node.names:
                first = each.name.partition(".")[0]
                yield (each.asname, each.name) if each.asname else (first, first)
        elif isinstance(node, ast.ImportFrom):
            for each in node.names:
                if each.name == "*":
                    stars.append(node.module or "")
                    continue
                is_known = node.module and not node.level
                yield (
                    each.asname or each.name,
                    _plain(f"{node.module}.{each.name}") * bool(is_known),
                )
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, ""
        else:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id, ""
            if not isinstance(node, ast.Lambda):
                waiting.extend(ast.iter_child_nodes(node))
