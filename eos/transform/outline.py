"""A user's module without the libraries that take long to import: enough to see whether a function
is there and which arguments it takes.

It is run with a stand-in for each name of them. Annotations may say it; whoever does more with it,
such as a decorator or a base class, needs the library, and then the module is imported as it is.
So is one that imports modules that are neither Python's nor these. What is wrong with a module is
never told from here: an import says it in Python's own words.
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
    """The library itself. No user's `except Exception` is to take it for an error of theirs."""


class _StandIn:
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

    # Without __iter__ Python would ask for one item after the other, of which there is no end.
    __bool__ = __iter__ = __contains__ = __call__


class _WithoutLibraries(ast.NodeTransformer):
    """Puts a stand-in for each name that is imported from them, outside of functions."""

    def __init__(self) -> None:
        # All that is imported is theirs or Python's, and nothing of theirs is called: that it is
        # would be found out when it runs, and then the import would run the lines before it again.
        self.is_whole = True
        self._names: set[str] = set()

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        put = []
        for each in node.names:
            if self._is_long(each.name) and _is_there(each.name):
                put.append(self._stands_in(each.asname or each.name.partition(".")[0], node))
            else:
                kept = ast.Import([each])
                put.append(ast.copy_location(kept, node))
        return put

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt | list[ast.stmt]:
        if node.level or not node.module:
            self.is_whole = False
        elif self._is_long(node.module):
            if all(_is_there(node.module, each.name) for each in node.names):
                return [self._stands_in(each.asname or each.name, node) for each in node.names]
            self.is_whole = False
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
        return node  # its own imports happen when it is called

    def _require_no_call_of(self, node: ast.expr) -> None:
        while isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
            node = node.func if isinstance(node, ast.Call) else node.value
        self.is_whole &= not (isinstance(node, ast.Name) and node.id in self._names)

    def _stands_in(self, name: str, instead_of: ast.stmt) -> ast.stmt:
        self._names.add(name)
        made = ast.parse(f"{name} = {_STAND_IN}({name!r})").body[0]
        return ast.copy_location(made, instead_of)

    def _is_long(self, module: str) -> bool:
        first = module.partition(".")[0]
        self.is_whole &= first in _LONG or first in sys.stdlib_module_names
        return first in _LONG


def outline(name: str, within: Sequence[Path]) -> ModuleType | None:
    """None: it is to be imported. It is no module of `sys.modules`: nobody else gets it."""
    try:
        spec = importlib.util.find_spec(name)
        if name in sys.modules or spec is None or not spec.origin:
            return None
        path = Path(spec.origin)
        if path.suffix != ".py" or not any(path.is_relative_to(folder) for folder in within):
            return None
        taken = _WithoutLibraries()
        tree = taken.visit(ast.parse(importlib.util.decode_source(path.read_bytes())))
        if not taken.is_whole:
            return None
        module = importlib.util.module_from_spec(spec)
        vars(module)[_STAND_IN] = _StandIn
        code = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
        exec(code, vars(module))  # noqa: S102 - a user's module, as an import runs it
    except (Exception, SystemExit, _NeededError):  # noqa: BLE001 - whatever it is, the import says it
        return None
    return module


def fails_at_once(name: str, pipelines: Path, folder: Path) -> bool:
    """Whether an import of it fails for certain, in the driver as here: its text is no Python, or
    there is no such module where only the project can have one. Any other that is not found here
    may come with `--py-files`: the driver has those on its path, the launcher has not. Packages on
    the way to it are imported; what they raise may be of this environment alone."""
    spec = None
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if not error.name or not f"{name}.".startswith(f"{error.name}."):
            return False  # one that a package on the way to it imports
    except (Exception, SystemExit):  # noqa: BLE001 - such a package may do anything
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
    """By its files, which nobody runs: the module, and in it a module or a word of this name."""
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
