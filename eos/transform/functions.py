"""Load the Python functions and SQL queries of a pipeline's steps, check them and apply them."""

from __future__ import annotations

import importlib
import inspect
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from eos.errors import EosError, TransformError
from eos.suggestion import did_you_mean_note
from eos.transform import batch_functions, sql
from eos.transform.arguments import fit_arguments
from eos.transform.guard import guard
from eos.transform.sql import Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField, StructType

    from eos.config.transform import Step

_TRY = "call the function in a unit test with a small DataFrame: docs/testing-your-pipeline.md"
_LIBRARIES = ("site-packages", "dist-packages")
_STDLIB = Path(sysconfig.get_paths()["stdlib"])


@dataclass(frozen=True, slots=True)
class Function:
    """A step's function that is loaded, with arguments that fit its signature."""

    python: str  # module:function
    arguments: Mapping[str, Any]
    call: Callable[..., Any]
    modules: tuple[str, ...]  # the user's own modules: executors get them with the function
    name: str = ""  # later queries read its result by this name
    # "python" is a function of a Spark DataFrame; "pandas" and "arrow" get some rows at a time.
    kind: Literal["python"] | batch_functions.Kind = "python"
    returns: str = ""  # the columns that a pandas or Arrow function returns
    tables: tuple[str, ...] = ()  # lookup tables that it gets as arguments, by these names


Transform = Function | Query


def builds_dataframes(transforms: Iterable[Transform]) -> bool:
    """Return whether a function of the user returns a DataFrame. Each call may return another."""
    return any(isinstance(each, Function) and each.kind == "python" for each in transforms)


def load(steps: Iterable[Step], project_root: Path, folder: Path) -> tuple[Transform, ...]:
    """Import the steps' functions, read their queries, and return both as transforms.

    The two folders stay on `sys.path`. `project_root` goes first, so that
    `pipelines.NAME.transform` is the user's module. The pipeline's `folder` goes last, so that a
    `types.py` in it does not hide Python's module.
    """
    root, own = str(project_root), str(folder)
    if sys.path[:1] != [root]:  # if it is further back, another `pipelines` may precede it
        sys.path.insert(0, root)
    if own not in sys.path:
        sys.path.append(own)
    _claim_pipelines(project_root / "pipelines")
    importlib.invalidate_caches()
    within = (project_root / "pipelines", folder)
    find = partial(_find, within=within)
    return tuple(_step(number, step, folder, find) for number, step in enumerate(steps, 1))


def named_only(steps: Iterable[Step]) -> tuple[Transform, ...]:
    """Return the steps of a Python job, for plans that are only shown. The job's functions are in
    its own program, so they can't be called here."""

    def missing(reference: str, step: Step) -> Function:
        name, tables = step.name or "", tuple(step.tables)
        return Function(reference, step.arguments, _no_code, (), name, tables=tables)

    return tuple(_step(number, step, Path(), missing) for number, step in enumerate(steps, 1))


def _no_code(*_: object, **__: object) -> None:
    raise AssertionError("a plan that is only shown calls no function")


def _step(
    number: int, step: Step, folder: Path, find: Callable[[str, Step], Function]
) -> Transform:
    name = step.name or ""
    if step.python is not None:
        return find(step.python, step)
    kinds: dict[batch_functions.Kind, str | None] = {"pandas": step.pandas, "arrow": step.arrow}
    for kind, reference in kinds.items():
        if reference is not None:
            return replace(find(reference, step), kind=kind, returns=step.returns or "")
    if isinstance(step.sql, str):
        return Query(step.sql, f"SQL step `{name}`" if name else f"step {number} (SQL)", name)
    assert step.sql is not None, "a step has a function or a query"
    file = step.sql.file
    return Query(sql.read(file, folder), f"SQL file `{file}`", name, str(folder / file))


def _claim_pipelines(folder: Path) -> None:
    """Make `import pipelines` refer to the project's folder.

    Otherwise Python would prefer any package with `__init__.py` on the path, such as in this
    framework's own checkout, to a folder without one. And a `pipelines` package of another project
    would stay loaded.
    """
    is_import_enough = (folder / "__init__.py").exists() and "pipelines" not in sys.modules
    if folder.is_dir() and not is_import_enough:
        package = sys.modules.setdefault("pipelines", ModuleType("pipelines"))
        package.__path__ = [str(folder)]


def apply(
    frame: DataFrame,
    transforms: Iterable[Transform],
    tables: Mapping[str, DataFrame] | None = None,
) -> DataFrame:
    """Return the rows after all steps, without running a Spark job.

    `tables` are the lookup tables that the steps may join, by name.
    """
    stages: dict[str, DataFrame] = dict(tables or {})
    for step in transforms:
        if isinstance(step, Query):
            frame = sql.run_query(step, frame, stages)
        else:
            frame = _apply(frame, step, {name: stages[name] for name in step.tables})
        if step.name:
            stages[step.name] = frame
    return frame


def last_in_batches(
    frame: DataFrame,
    transforms: Sequence[Transform],
    tables: Mapping[str, DataFrame] | None = None,
) -> batch_functions.InBatches | None:
    """Apply all steps but the last, and return the last one together with its input rows.

    Return None if the last step is not a pandas or Arrow function.
    """
    last = transforms[-1] if transforms else None
    if not isinstance(last, Function) or last.kind == "python":
        return None
    return _in_batches(apply(frame, transforms[:-1], tables), last)


def batch_step(
    step: Transform, before: Sequence[StructField]
) -> tuple[batch_functions.Kind, batch_functions.TaskFunction, StructType] | None:
    """Return how tasks run a step, or None if the step is not a pandas or Arrow function.

    The result has the kind ("pandas" or "arrow"), the function that the tasks call, and the columns
    of the rows that it returns. `before` are the columns of its input rows.
    """
    if not isinstance(step, Function) or step.kind == "python":
        return None
    _travel_by_value(step.modules)
    after = batch_functions.returned(before, step.returns)
    arguments, columns = dict(step.arguments), tuple(after.names)
    part = batch_functions.TaskFunction(step.python, step.call, arguments, columns)
    return step.kind, part, after


def _in_batches(frame: DataFrame, function: Function) -> batch_functions.InBatches:
    found = batch_step(function, frame.schema.fields)
    assert found is not None, "the caller has checked the step's kind"
    return batch_functions.in_batches(frame, *found)


def _find(reference: str, step: Step, *, within: Sequence[Path]) -> Function:
    module_name, _, name = reference.partition(":")
    module = _module(reference, module_name)
    call = getattr(module, name, None)
    if call is None:
        known = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        did_you_mean = did_you_mean_note(name, known)
        raise TransformError(
            "transform_function_missing",
            f"transform `{reference}`: {module.__file__} has no function `{name}`{did_you_mean}",
            hint="correct the name: `module:function`",
        )
    if not callable(call):
        kind = type(call).__name__
        raise TransformError(
            "transform_not_callable",
            f"transform `{reference}` is not a function, it has type {kind}",
            hint="give the name of a function: `module:function`",
        )
    tables = tuple(step.tables)
    given = fit_arguments(reference, call, step.arguments, tables)
    own = own_modules(within)
    return Function(reference, given, call, own, step.name or "", tables=tables)


def _module(reference: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise TransformError(
                "transform_module_missing",
                f"transform `{reference}`: there is no module `{error.name}`",
                hint="correct the name: modules are in the folder that contains pipelines/, or in "
                "the pipeline's folder",
            ) from error
        raise _import_failed(reference, error) from error
    except (Exception, SystemExit) as error:  # a module that calls exit() would end this process
        raise _import_failed(reference, error) from error


def _import_failed(reference: str, error: Exception | SystemExit) -> TransformError:
    position, kind, reason = _line_of(error), type(error).__name__, sql.message_of(error)
    module = reference.partition(":")[0]
    return TransformError(
        "transform_import_failed",
        f"transform `{reference}` can't be imported{position}: {kind}: {reason}",
        reference=reference,
        hint="the module is imported before Spark starts: pass a type as an object, such as "
        "`DecimalType(12, 2)` in place of 'DECIMAL(12,2)', or move the call into the function"
        if "SESSION_OR_CONTEXT_NOT_EXISTS" in reason
        else f"run `python -c 'import {module}'` to see the whole traceback",
    )


def own_modules(within: Sequence[Path]) -> tuple[str, ...]:
    """Return the names of the imported modules in these folders, without the libraries of a
    virtual environment there: executors have libraries, and most can't be pickled."""
    files = {name: getattr(module, "__file__", None) for name, module in [*sys.modules.items()]}
    return tuple(
        sorted(
            name
            for name, file in files.items()
            if file and name.partition(".")[0] not in {"__main__", "eos"}
            if any(_is_own(Path(file), folder) for folder in within)
        )
    )


def _is_own(file: Path, folder: Path) -> bool:
    if not file.is_relative_to(folder):
        if is_library(file):  # as most are, and to resolve a path takes its time
            return False
        file = file.resolve()
    if not file.is_relative_to(folder):
        return False
    # The folder may itself be in a library, and an environment with its own Python in the folder.
    is_stdlib = file.is_relative_to(_STDLIB) and not folder.is_relative_to(_STDLIB)
    return not is_stdlib and not is_library(file.relative_to(folder))


def is_library(path: Path) -> bool:
    return any(part in _LIBRARIES for part in path.parts) or path.is_relative_to(_STDLIB)


def _apply(frame: DataFrame, function: Function, tables: Mapping[str, DataFrame]) -> DataFrame:
    from pyspark.sql import DataFrame

    if function.kind != "python":
        return _in_batches(frame, function).applied()
    _travel_by_value(function.modules)
    try:
        with guard(function.python):
            result = function.call(frame, **function.arguments, **tables)
    except EosError:
        raise
    except (Exception, SystemExit) as error:  # a step that calls exit() would end this process
        position, kind, reason = _line_of(error), type(error).__name__, sql.message_of(error)
        raise TransformError(
            "transform_failed",
            f"transform `{function.python}` failed{position}: {kind}: {reason}",
            reference=function.python,
            hint=_TRY,
        ) from error
    if not isinstance(result, DataFrame):
        description = "nothing" if result is None else f"a {type(result).__name__}"
        raise TransformError(
            "transform_return_type",
            f"transform `{function.python}` returned {description}; expected a DataFrame",
            hint="add the missing `return`" if result is None else "",
        )
    return result


def _travel_by_value(modules: Iterable[str]) -> None:
    """Let functions of these modules be pickled with their code, and not as names to import.

    Executors can't import the modules, since they don't have the project's folder.
    """
    from pyspark import cloudpickle

    register: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
    for name in modules:
        if name in sys.modules:
            register(sys.modules[name])


def _line_of(error: Exception | SystemExit) -> str:
    """Return the last line of user code in an error's traceback as ` (FILE:LINE)`, or ""."""
    spark = (sys.modules.get(name) for name in ("pyspark", "py4j"))  # perhaps in SPARK_HOME
    files = [__file__, *(module.__file__ for module in spark if module and module.__file__)]
    others = ("<frozen", *(f"{Path(file).parent}/" for file in files))
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(others) and not is_library(Path(frame.filename))
    ]
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
