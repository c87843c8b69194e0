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

    __bool__ = __call__


class _WithoutLibraries(ast.NodeTransformer):
    """Puts a stand-in for each name that is imported from them, outside of functions."""

    def __init__(self) -> None:
        self.is_whole = True  # all that is imported is theirs or Python's

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        put = []
        for each in node.names:
            if self._is_long(each.name) and _is_there(each.name):
                put.append(_stands_in(each.asname or each.name.partition(".")[0], node))
            else:
                kept = ast.Import([each])
                put.append(ast.copy_location(kept, node))
        return put

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt | list[ast.stmt]:
        if node.level or not node.module:
            self.is_whole = False
        elif self._is_long(node.module):
            if all(_is_there(node.module, each.name) for each in node.names):
                return [_stands_in(each.asname or each.name, node) for each in node.names]
            self.is_whole = False
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        return node  # its own imports happen when it is called

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.stmt:
        return node

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
    except (Exception, _NeededError):  # noqa: BLE001 - whatever it is, the import says it
        return None
    return module


def _stands_in(name: str, instead_of: ast.stmt) -> ast.stmt:
    return ast.copy_location(ast.parse(f"{name} = {_STAND_IN}({name!r})").body[0], instead_of)


def _is_there(module: str, name: str = "") -> bool:
    """By its files, which nobody runs: the module, and in it a module or a word of this name."""
    first, *rest = module.split(".")
    spec = importlib.util.find_spec(first)
    places = spec.submodule_search_locations if spec else None
    folder = Path(places[0], *rest) if places else Path()
    files = sorted(folder.glob("*.py")) or [folder.with_suffix(".py")]
    if not places or not files[0].is_file() or name == "*":
        return False
    if not name or (folder / name).is_dir() or (folder / f"{name}.py").is_file():
        return True
    word = re.compile(rf"\b{re.escape(name)}\b".encode())
    return any(word.search(file.read_bytes()) for file in files)
