"""The steps of a stream: functions and queries, in the form of a pipeline file."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from eos.errors import UsageError
from eos.transform.arguments import fit_arguments
from eos.transform.functions import Function, Transform, is_library, own_modules
from eos.transform.sql import Query

if TYPE_CHECKING:
    from eos.config.transform import Step as DeclaredStep

Kind = Literal["python", "sql", "pandas", "arrow"]


@dataclass(frozen=True, slots=True)
class Step:
    """One step. A `python` step is a function of a DataFrame; `pandas` and `arrow` get a part of
    its rows at a time. `query` is the text of an `sql` step."""

    kind: Kind
    function: Callable[..., Any] | None = None
    query: str = ""
    arguments: Mapping[str, Any] | None = None
    returns: str = ""
    tables: tuple[str, ...] = ()
    name: str = ""

    def as_declared(self) -> dict[str, Any]:
        """Return the step as a pipeline file declares it, with the function's name as reference."""
        found: dict[str, Any] = {self.kind: self.query or reference(self.function)}
        if self.arguments:
            found["with"] = {name: _plain(value) for name, value in self.arguments.items()}
        if self.returns:
            found["returns"] = self.returns
        if self.tables:
            found["tables"] = list(self.tables)
        return found | ({"name": self.name} if self.name else {})

    def as_transform(self, number: int, declared: DeclaredStep) -> Transform:
        """Return the step as a run uses it. `declared` is the validated form of `as_declared`."""
        name = declared.name or ""
        if self.function is None:
            subject = f"SQL step `{name}`" if name else f"step {number} (SQL)"
            return Query(self.query, subject, name)
        named, call = reference(self.function), self.function
        given = fit_arguments(named, call, self.arguments or {}, self.tables, converts=False)
        kind = "python" if self.kind == "sql" else self.kind
        return Function(
            named, given, call, _modules_of(call), name, kind, self.returns, tables=self.tables
        )


def checked(function: object) -> Callable[..., Any]:
    """Return the function. Raise UsageError if it is none."""
    if not callable(function):
        raise UsageError(
            "step_not_callable",
            f"a step got {function!r:.100} of type {type(function).__name__}; expected a function",
            hint="pass the function itself and not its result: `.transform(my_step)`; an SQL query "
            "is a step of `.sql(...)`",
        )
    return function


def reference(function: Callable[..., Any] | None) -> str:
    """Return a name for the function, as `module:function`, for messages and plans.

    A lambda or an inner function can't be imported by its name. Its name here contains that of the
    function around it."""
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    named = inner if inspect.isroutine(inner) or inspect.isclass(inner) else type(inner)
    module = getattr(named, "__module__", None) or "__main__"
    name = re.sub(r"\W+", "_", getattr(named, "__qualname__", "function")).strip("_")
    return f"{module}:{name or 'function'}"


def _plain(value: Any) -> Any:
    """Return an argument in a form that a pipeline file can have."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        return [_plain(each) for each in value]
    return repr(value)[:200]


def _modules_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the imported modules of the job, which executors can't import.

    These are the modules in the folder of the function's own package. A function of an installed
    package is imported there by its name. `__main__` always travels with its functions.
    """
    name = reference(function).partition(":")[0]
    top = sys.modules.get(name.partition(".")[0])
    places = [getattr(top, "__file__", None), *list(getattr(top, "__path__", []))]
    folders = [Path(each).resolve() for each in places if each]
    if name == "__main__" or not folders:
        return ()
    folder = folders[0].parent
    return () if is_library(folder) else own_modules([folder])
