"""`eos lint`: report problems in pipeline files, without Kafka, Spark's JVM or a network."""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.util
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from eos import sql_text
from eos.cli.pipeline_argument import file_of
from eos.config.avro import is_elsewhere, subject_of
from eos.config.base import KAFKA_COLUMNS
from eos.config.load import load_parts, name_of, text_of
from eos.config.problems import Location, Problem
from eos.config.sink import KafkaSink
from eos.config.source import Source
from eos.config.valid_parts import Parts
from eos.errors import TransformError, UsageError
from eos.location import project_root
from eos.plan.outputs import outputs
from eos.plan.plan import decode
from eos.plural import plural
from eos.printable import escaped
from eos.suggestion import suggestion
from eos.transform import nondeterministic_calls
from eos.transform.functions import load
from eos.transform.sql import Query

_BLOCK = re.compile(r"^```ya?ml\b[^\n]*\n(?P<text>.*?)^```", re.DOTALL | re.MULTILINE)
# In Markdown, a block of YAML is checked as a pipeline if it has `version` and one of `source` and
# `sink`: the other one may be misspelt. Parts of a pipeline and other YAML are skipped.
_VERSION_KEY = re.compile(r"^version:", re.MULTILINE)
_SOURCE_OR_SINK = re.compile(r"^(source|sink):", re.MULTILINE)


def run(options: argparse.Namespace) -> int:
    return lint([file_of(argument) for argument in options.pipelines], as_json=options.json)


def lint(paths: Sequence[Path], *, as_json: bool) -> int:
    """Print all problems of all files. Return 1 if there is an error, else 0.

    Warnings and notes don't count, because they may be intended. A missing or unreadable file
    raises UsageError.
    """
    texts = [(path, text) for path in paths for text in _pipelines(path)]
    problems = [problem for path, text in texts for problem in _find(path, text)]
    problems += _repeated_names([path for path, text in texts if text is None])
    if as_json:
        print(json.dumps({"problems": [problem._asdict() for problem in problems]}))
    else:
        for problem in problems:
            print(escaped(str(problem)))
        if all(problem.severity == "note" for problem in problems):
            count = plural(len(texts), "pipeline")
            print(
                f"{count} without problems; `eos test` checks columns and functions with Spark",
                file=sys.stderr,
            )
    return 1 if any(problem.severity == "error" for problem in problems) else 0


def find(path: Path) -> Iterable[Problem]:
    """Return all problems of one file."""
    for text in _pipelines(path):
        yield from _find(path, text)


def errors(path: Path) -> list[Problem]:
    """Return the errors that are certain to prevent a run, within a tenth of a second.

    The driver makes two further checks of `eos lint`: it imports the modules of Python steps, which
    may need packages that only the driver has, and knows which names in a rule are columns.
    """
    return [each for each in _find(path, None, launches=True) if each.severity == "error"]


def _pipelines(path: Path) -> list[str | None]:
    """Return the text of each pipeline in a Markdown file.

    If `path` is a pipeline file, return [None]: its text is read later.
    """
    is_markdown = path.suffix.lower() in (".md", ".markdown")
    return [*_in_markdown(text_of(path, "the document"))] if is_markdown else [None]


def _in_markdown(document: str) -> Iterator[str]:
    """Yield the text of each pipeline in a document.

    Empty lines before the text make its line numbers equal to those in the document.
    """
    for block in _BLOCK.finditer(document):
        if _VERSION_KEY.search(block["text"]) and _SOURCE_OR_SINK.search(block["text"]):
            yield "\n" * document.count("\n", 0, block.start("text")) + block["text"]


def _find(path: Path, text: str | None, *, launches: bool = False) -> Iterable[Problem]:
    """Yield the problems of a pipeline file, and of the files that it names.

    With `launches`, leave out problems that only the driver can be certain of.
    """
    problems, parts = load_parts(path, text=text)
    found = [*problems, *_rules(parts, launches), *_unread_schemas(parts)]
    # A user's module may print on import; stdout is for the findings.
    with contextlib.redirect_stdout(sys.stderr):
        found += _steps(parts, launches)
    found += _sinks(parts)
    # The pipeline file first, then the files that it names.
    yield from sorted(dict.fromkeys(found), key=lambda each: (each.path != str(path), *each[:3]))


def _repeated_names(paths: Sequence[Path]) -> Iterable[Problem]:
    """Yield a warning for each file with the same pipeline name as an earlier file of its project.

    Under one profile, both pipelines would share ledger, group and transactional id. It is no
    error, because the files may be intended for different profiles, such as dev and prod.
    """
    first: dict[tuple[Path, str], Path] = {}
    for path in dict.fromkeys(path.resolve() for path in paths) if len(paths) > 1 else ():
        file = path / "pipeline.yaml" if path.is_dir() else path
        name, place = name_of(file)
        other = first.setdefault((project_root(file.parent), name), file)
        if name and other != file:
            message = f"`{name}` is also the name of {other}: under the same profile, both would "
            message += "use one ledger, group and transactional id"
            yield Problem(str(file), place.line, place.column, message, "warning")


def _steps(parts: Parts, launches: bool) -> Iterable[Problem]:
    for place, step in parts.steps.items():
        key = next(key for key in ("sql", "python", "pandas", "arrow") if getattr(step, key))
        if key != "sql" and launches and not _fails_in_driver(getattr(step, key), parts):
            continue
        try:
            (loaded,) = load([step], parts.project_root, parts.folder)
        except TransformError as error:
            yield parts.places.problem((*place, key), error.message)
            continue
        if isinstance(loaded, Query):
            yield from _unstable(loaded, parts.places.problem((*place, key), ""))
            known = sorted({sql_text.INPUT, *parts.names})
            for name in sql_text.unknown_tables(loaded.text, known):
                message = f"`{name}` is neither a step nor a table of the file (for a table of "
                message += f"Spark's catalog, write `default.{name}`){suggestion(name, known)}"
                found = parts.places.problem((*place, key), message)
                yield found._replace(severity="warning")
        else:
            yield from _unstable_calls(loaded.python)


def _fails_in_driver(reference: str, parts: Parts) -> bool:
    """Return whether the driver will certainly not find a step's function, either.

    That is so if the module's file is no valid Python or does not have the function's name, or if
    the module is missing in a folder that only the project can provide. Any other missing module
    may be in `--py-files`, which only the driver has on its path. Parent packages are imported
    here. Errors of them don't count, since their causes may only exist in this environment.
    """
    load((), parts.project_root, parts.folder)  # sets up the import path as a run does
    name, _, function = reference.partition(":")
    spec = None
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if not error.name or not f"{name}.".startswith(f"{error.name}."):
            return False  # a parent package imports another missing module
    except (Exception, SystemExit):  # noqa: BLE001 - a parent package may do anything
        return False
    if spec is not None:
        return bool(spec.origin) and not _may_have(Path(str(spec.origin)), function)
    first = name.partition(".")[0]
    if first == "pipelines" and (parts.project_root / "pipelines").is_dir():
        return True
    places = parts.folder / f"{first}.py", parts.folder / first / "__init__.py"
    return any(place.is_file() for place in places)


def _may_have(module: Path, name: str) -> bool:
    """Return whether a module's file may define this name. Only Python source is searched."""
    if module.suffix != ".py":
        return True
    try:
        text = module.read_bytes()
        ast.parse(text)
    except (SyntaxError, ValueError, OSError):
        return False
    return bool(re.search(rf"\b{re.escape(name)}\b|\bimport \*".encode(), text))


def _sinks(parts: Parts) -> Iterable[Problem]:
    for place, sink in parts.sinks.items():
        try:
            outputs((sink,), parts.folder)
        except UsageError as error:  # the file of a schema
            yield parts.places.problem(place, error.message)
        for at, expression in sink.expressions:
            yield from _unstable(Query(expression, ""), parts.places.problem((*place, *at), ""))
    for place, table in parts.tables.items():
        for key, condition in (("where", table.where), ("delete_when", table.delete_when)):
            found = parts.places.problem((*place, key), "")
            yield from _unstable(Query(condition or "true", ""), found)


def _rules(parts: Parts, launches: bool) -> Iterable[Problem]:
    """Yield the problems of the rules in `expect`.

    A nondeterministic function such as `rand()` is an error in a rule, because rules are evaluated
    a second time to write the dead letters.
    """
    columns = None  # column names are unknown, for example because only the registry has the schema
    if parts.source is not None:
        try:
            read = decode(parts.source, (), parts.folder)
            if not parts.source.reads_latest:
                columns = [*KAFKA_COLUMNS, *read.key.names, *read.value.names]
        except UsageError as error:
            yield parts.places.problem(("source",), error.message)
    for place, rule in parts.rules.items():
        at = (*place, "rule")
        for found in sql_text.unstable(rule.rule, columns):
            message = f"`{found.function}` in a rule {found.reason}; a rule may only depend on its "
            message += "record"
            yield parts.places.problem(at, message)
        known = () if launches or columns is None else columns
        for argument, close in sql_text.misspelt(rule.rule, known):
            message = f"`{argument}` is not a column of the source; did you mean `{close}`?"
            yield parts.places.problem(at, message)


def _unread_schemas(parts: Parts) -> Iterable[Problem]:
    """Yield a note for each schema that only the schema registry has."""
    sides: dict[Location, Source | KafkaSink] = dict(parts.sinks)
    if parts.source is not None:
        sides[("source",)] = parts.source
    for place, side in sides.items():
        for name in ("key", "value"):
            schema = getattr(getattr(side, name), "avro", None)
            if schema is not None and is_elsewhere(schema):
                message = f"only the schema registry has the schema of `{subject_of(schema)}`, and "
                message += "`eos lint` does not query it; `eos plan --check` does"
                yield parts.places.problem((*place, name), message)._replace(severity="note")


def _unstable(query: Query, place: Problem) -> Iterable[Problem]:
    """Yield a warning for each function in a query whose result changes when a micro-batch is
    retried.

    For a query in its own file, the warning has the function's line and column. For a query in the
    pipeline file, it has the position of the whole query.
    """
    for found in sql_text.unstable(query.text):
        message = f"`{found.function}` {found.reason}"
        if query.file:
            yield Problem(query.file, found.line, found.column, message, "warning")
        else:
            yield place._replace(message=message, severity="warning")


def _unstable_calls(reference: str) -> Iterable[Problem]:
    """Yield a warning for each call in a Python step whose result changes when a micro-batch is
    retried, such as `random.random()`."""
    file = nondeterministic_calls.file_of(reference)
    for found in (
        nondeterministic_calls.unstable(file, reference.partition(":")[2])
        if file is not None
        else ()
    ):
        message = f"`{found.function}` {found.reason}"
        yield Problem(str(file), found.line, found.column, message, "warning")
