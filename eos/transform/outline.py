"""Load a user's module without its slow libraries, to look up its functions and their arguments.

Libraries such as Spark and pandas take long to import. So the user's module runs with a placeholder
for each name that it imports from them. A placeholder may be used in annotations. Code that does
more with it, such as a decorator or a base class, needs the library. Then the user's module is
imported normally, as is one that imports other libraries. `outline` never reports errors of the
user's module: the normal import reports them with Python's own message.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NoReturn

_LONG = ("pyspark", "pandas", "pyarrow", "numpy", "delta")
_STAND_IN = "_eos_stand_in"


class _NeededError(BaseException):
    """Error of code that needs the real library in place of a placeholder.

    It is a BaseException, so that the user's `except Exception` does not catch it."""


class _StandIn:
    """A placeholder for a name that is imported from a slow library."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name

    def __getattr__(self, name: str) -> _StandIn:
        if name.startswith("__"):
            raise AttributeError(name)
        return _StandIn(f"{self._name}.{name}")

    def __or__(self, _other: object) -> _StandIn:
        return self

    __ror__ = __getitem__ = __or__

    def __call__(self, *_: object, **__: object) -> NoReturn:
        raise _NeededError

    # Without __iter__, Python would iterate by __getitem__, which never ends.
    __bool__ = __iter__ = __contains__ = __call__


class _WithoutLibraries(ast.NodeTransformer):
    """A rewrite of a module: imports of slow libraries outside functions become placeholders."""

    def __init__(self) -> None:
        # False if the module imports other libraries, or calls a slow library at the top level.
        # Such a call would fail only while the module runs, and the normal import would then run
        # the lines before it a second time.
        self.is_complete = True
        self._names: set[str] = set()

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        put = []
        for each in node.names:
            if self._is_long(each.name) and _is_there(each.name):
                put.append(self._stand_in(each.asname or each.name.partition(".")[0], node))
            else:
                kept = ast.Import([each])
                put.append(ast.copy_location(kept, node))
        return put

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt | list[ast.stmt]:
        if node.level or not node.module:
            self.is_complete = False
        elif self._is_long(node.module):
            if all(_is_there(node.module, each.name) for each in node.names):
                return [self._stand_in(each.asname or each.name, node) for each in node.names]
            self.is_complete = False
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self._require_no_call_of(node.func)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.stmt:
        return self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.stmt:
        for each in node.decorator_list:
            self._require_no_call_of(each)
        return node  # imports inside a function run only when it is called

    def _require_no_call_of(self, node: ast.expr) -> None:
        while isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
            node = node.func if isinstance(node, ast.Call) else node.value
        self.is_complete &= not (isinstance(node, ast.Name) and node.id in self._names)

    def _stand_in(self, name: str, instead_of: ast.stmt) -> ast.stmt:
        self._names.add(name)
        result = ast.parse(f"{name} = {_STAND_IN}({name!r})").body[0]
        return ast.copy_location(result, instead_of)

    def _is_long(self, module: str) -> bool:
        first = module.partition(".")[0]
        self.is_complete &= first in _LONG or first in sys.stdlib_module_names
        return first in _LONG


def outline(name: str, within: Sequence[Path]) -> ModuleType | None:
    """Return a user's module, run without its slow libraries; None if it needs a normal import.

    The module is not added to `sys.modules`, so no other code can import it.
    """
    try:
        spec = importlib.util.find_spec(name)
        if name in sys.modules or spec is None or not spec.origin:
            return None
        path = Path(spec.origin)
        if path.suffix != ".py" or not any(path.is_relative_to(folder) for folder in within):
            return None
        outlined = _WithoutLibraries()
        tree = outlined.visit(ast.parse(importlib.util.decode_source(path.read_bytes())))
        if not outlined.is_complete:
            return None
        module = importlib.util.module_from_spec(spec)
        vars(module)[_STAND_IN] = _StandIn
        code = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
        exec(code, vars(module))  # noqa: S102 - a user's module, as an import runs it
    except (Exception, SystemExit, _NeededError):  # noqa: BLE001 - a normal import reports it
        return None
    return module


def fails_at_once(name: str, pipelines: Path, folder: Path) -> bool:
    """Return whether the driver will certainly fail to import a user's module, too.

    The import fails if the file is no valid Python, or if the module is missing in a folder that
    only the project can provide. Any other missing module may be in `--py-files`, which only the
    driver has on its path. Parent packages are imported here. Errors of them don't count, since
    they may have causes that only exist in this environment.
    """
    spec = None
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if not error.name or not f"{name}.".startswith(f"{error.name}."):
            return False  # a parent package imports another missing module
    except (Exception, SystemExit):  # noqa: BLE001 - a parent package may do anything
        return False
    if spec is not None and spec.origin:
        try:
            if spec.origin.endswith(".py"):
                ast.parse(Path(spec.origin).read_bytes())
        except (SyntaxError, ValueError, OSError):
            return True
        return False
    first = name.partition(".")[0]
    if first == "pipelines" and pipelines.is_dir():
        return True
    return (folder / f"{first}.py").is_file() or (folder / first / "__init__.py").is_file()


def _is_there(module: str, name: str = "") -> bool:
    """Return whether a library's module exists and probably has this name, without importing it.

    The name must be a submodule, or a word in the module's source text."""
    first, *rest = module.split(".")
    spec = importlib.util.find_spec(first)
    places = spec.submodule_search_locations if spec else None
    folder = Path(places[0], *rest) if places else Path()
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    if not places or not file.is_file() or name == "*":
        return False
    if not name or (folder / name).is_dir() or (folder / f"{name}.py").is_file():
        return True
    return re.search(rf"\b{re.escape(name)}\b".encode(), file.read_bytes()) is not None
