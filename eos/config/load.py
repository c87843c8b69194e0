"""The loader of pipeline files and profiles. No other module parses YAML.

All problems of a file are reported at once, each with line and column, in one UsageError. The
field `problems` of this error has them as values.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from yaml.constructor import SafeConstructor
from yaml.reader import ReaderError

from eos.config.model import PipelineFile, ProfileFile
from eos.config.problems import (
    Location,
    Place,
    Places,
    Problem,
    and_around,
    explain,
    refuse,
)
from eos.config.secrets import exposed_secrets, is_secret
from eos.config.trigger import Ending, ending
from eos.config.valid_parts import FileValues, Parts
from eos.config.variables import Visibility, substitute, variables_of
from eos.errors import UsageError
from eos.location import project_root
from eos.suggestion import suggestion

_FILE_BYTES_MAX = 1_048_576
_VALUES_MAX = 10_000  # aliases can expand a small file without end
_DEPTH_MAX = 40
_INT_END = 1 << 64
_NO_TEXT = "expected valid Unicode: a code from U+D800 to U+DFFF is only half a character"
_TAG = "tag:yaml.org,2002:"
# Whole numbers that YAML reads by another base: `010` is 8, `1:30` is 90.
_OTHER_BASE = re.compile(r"[-+]?0[0-9_]|.*:")
_TOO_LONG = "expected a whole number of at most 64 bits"
_NO_DECIMAL = "expected a decimal number without a leading 0 or `:`; put quotes around a text"
# Mappings whose values Kafka and Spark read as texts.
_SETTINGS: tuple[Location, ...] = (("spark", "conf"), ("kafka", "client"))
_CLOSED_BY = {"{": "}", "[": "]", '"': '"', "'": "'"}

Parsed = TypeVar("Parsed", bound=BaseModel)


def load_pipeline(
    path: Path | str,
    environ: Mapping[str, str] | None = None,
    *,
    text: str | None = None,
    ends: Ending | None = None,
) -> PipelineFile:
    """Return the pipeline file as typed values; raise UsageError with all its problems.

    Sends no request to Kafka or Spark, and imports no transform. `text` replaces the content of
    the file at `path`. `ends` overrides the file's trigger with that of the command line.
    """
    declared, content = _read_file(path, text)
    pipeline, problems, read = _read(PipelineFile, declared, content, environ)
    if pipeline is None or problems:
        raise refuse(f"the pipeline file {declared}", problems)
    resolved = declared.resolve()
    folder, places = resolved.parent, read.places
    return _with_trigger(pipeline, ends).found_at(resolved, project_root(folder), places)


def load_parts(
    path: Path | str, environ: Mapping[str, str] | None = None, *, text: str | None = None
) -> tuple[list[Problem], Parts]:
    """Return all problems of a pipeline file and its valid parts.

    If `load_pipeline` accepts the file, there are no problems and the parts are complete.
    """
    declared, content = _read_file(path, text)
    _, problems, read = _read(PipelineFile, declared, content, environ)
    folder = declared.resolve().parent
    return problems, read.parts(folder, project_root(folder))


def name_of(path: Path | str) -> tuple[str, Place]:
    """Return the pipeline's name from a pipeline file, and its line and column.

    Other problems of the file are ignored. The name is empty if the file has none.
    """
    declared, content = _read_file(path, None)
    reader = _Reader(str(declared), os.environ, partial(_visibility, is_pipeline=True))
    value = reader.read(content)
    name = value.get("name") if isinstance(value, dict) else None
    return str(name or ""), reader.values.get(("name",), Place(1, 1, ""))


def _read_file(path: Path | str, text: str | None) -> tuple[Path, str]:
    """Return the path of the pipeline file and its content, which is `text` if that is given."""
    declared = Path(path)
    if text is None and declared.is_dir() and (declared / "pipeline.yaml").is_file():
        declared = declared / "pipeline.yaml"
    return declared, text_of(declared, "the pipeline file") if text is None else text


def _with_trigger(pipeline: PipelineFile, choice: Ending | None) -> PipelineFile:
    """Return the pipeline with the command line's trigger instead of its own."""
    return pipeline if choice is None else pipeline.model_copy(update={"trigger": ending(choice)})


def load_profile(
    name_or_path: str | None, project_root: Path, environ: Mapping[str, str] | None = None
) -> ProfileFile:
    """Return the profile from `conf/NAME.yaml` or from a path.

    The name defaults to `EOS_PROFILE`, then to `local`. The default `local` needs no file, since
    every key of a profile has a default.
    """
    env = os.environ if environ is None else environ
    choice = _profile_choice(name_or_path, env)
    path = profile_path(choice, project_root, env)
    name = path.stem
    if not choice and not path.is_file():
        return ProfileFile().with_root(project_root).with_name(name)
    if not _is_path(choice) and not path.is_file():
        raise _profile_missing_error(name, path)
    subject = f"profile {name!r}"
    profile, problems, read = _read(ProfileFile, path, text_of(path, subject), env)
    if profile is not None:
        problems += exposed_secrets(read.places, profile.with_name(name))
    if profile is None or problems:
        raise refuse(f"{subject} {path}", problems)
    folder = path.resolve().parent
    return profile.with_root(folder.parent if folder.name == "conf" else folder).with_name(name)


def profile_path(
    name_or_path: str | None, project_root: Path, environ: Mapping[str, str] | None = None
) -> Path:
    """Return the profile's file, which may be missing."""
    choice = _profile_choice(name_or_path, os.environ if environ is None else environ)
    return Path(choice) if _is_path(choice) else project_root / "conf" / f"{choice or 'local'}.yaml"


def _profile_choice(name_or_path: str | None, environ: Mapping[str, str]) -> str:
    return name_or_path or environ.get("EOS_PROFILE") or ""


def _is_path(choice: str) -> bool:
    return choice.endswith((".yaml", ".yml")) or "/" in choice


def _profile_missing_error(name: str, path: Path) -> UsageError:
    known = sorted(file.stem for file in path.parent.glob("*.yaml"))
    did_you_mean = suggestion(name, known)
    return UsageError(
        "profile_missing",
        f"there is no profile {name!r}: {path} does not exist{did_you_mean}",
        hint="pass `--profile NAME` for conf/NAME.yaml, or `--profile PATH` for another .yaml file",
    )


def _read(
    kind: type[Parsed], path: Path, text: str, environ: Mapping[str, str] | None
) -> tuple[Parsed | None, list[Problem], FileValues]:
    """Return the parsed file (None if it is invalid), its problems, and its values as read."""
    visibility = partial(_visibility, is_pipeline=kind is PipelineFile)
    reader = _Reader(str(path), os.environ if environ is None else environ, visibility)
    value = reader.read(text)
    problems = reader.problems
    if value is None and not problems:
        problems.append(Problem(str(path), 1, 1, "expected keys, got an empty file"))
    places = Places(str(path), reader.keys, reader.values, reader.variables)
    found: Parsed | None = None
    mistakes = list(reader.unread)
    if value is not None:
        try:
            found = kind.model_validate(value, by_alias=True, by_name=False)
        except ValidationError as error:
            more = explain(kind, error, places, reader.unread)
            mistakes += more
            if kind is PipelineFile and isinstance(value, dict):
                more.pop((), None)  # pydantic reports only the first conflict between parts
                problems += FileValues(value, places, and_around(mistakes)).together()
            problems += [each for of_place in more.values() for each in of_place]
    return found, problems, FileValues(value, places, and_around(mistakes))


def _visibility(location: Location, *, is_pipeline: bool) -> Visibility:
    if is_pipeline:
        return Visibility.EVERYWHERE
    return Visibility.SECRET if is_secret(location) else Visibility.VALUE


def _is_setting(location: Location) -> bool:
    """Return whether the value is passed on as a text. So a number is kept as it is written: `1.10`
    may be a version, and `027` a file mode."""
    parent = location[:-1]
    if parent[:1] == ("clusters",):  # another cluster has the keys of `kafka`
        parent = ("kafka", *parent[2:])
    return parent in _SETTINGS or (parent[:1] == ("sink",) and parent[-2:] == ("create", "config"))


def text_of(path: Path, file_kind: str) -> str:
    """Return the file's text; raise UsageError if it can't be read.

    `file_kind`, such as "the pipeline file", is the file's description in the message.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_FILE_BYTES_MAX + 1)
        if len(raw) > _FILE_BYTES_MAX:
            raise UsageError(
                "config_file_too_large",
                f"{file_kind} {path} is larger than {_FILE_BYTES_MAX} bytes",
                hint="a file of this kind has a few kilobytes: check the path",
            )
        return raw.decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            "config_file_not_utf8",
            f"{file_kind} {path} is not UTF-8 text ({error})",
            hint="save the file as UTF-8, or correct the path",
        ) from error
    except OSError as error:
        raise UsageError(
            "config_file_unreadable",
            f"{file_kind} {path} can't be read: {error.strerror}",
            hint="correct the path, or the file's permissions",
        ) from error


class _Reader:
    """Converter of YAML nodes to plain values that keeps their positions and problems."""

    def __init__(
        self, path: str, environ: Mapping[str, str], shown: Callable[[Location], Visibility]
    ) -> None:
        self._visibility = shown
        self.variables: dict[str, list[Location]] = {}
        self.problems: list[Problem] = []
        self.unread: list[Location] = []
        self.keys: dict[Location, Place] = {}
        self.values: dict[Location, Place] = {}
        self._path = path
        self._environ = environ
        self._scalars = SafeConstructor()
        self._left = _VALUES_MAX

    def read(self, text: str) -> Any:
        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
        except (yaml.YAMLError, RecursionError) as error:
            line, column, reason = _unreadable(error, text)
            self.problems.append(Problem(self._path, line, column, f"expected YAML: {reason}"))
            return None
        return None if node is None else self._value(node, ())

    def _value(self, node: yaml.Node, location: Location) -> Any:
        self.values[location] = _place(node)
        self._left -= 1
        if len(location) > _DEPTH_MAX or self._left < 0:
            if self._left >= 0 or self._left == -1:
                self._add_problem(
                    node, "expected a smaller file: it has too many values or levels of nesting"
                )
            self.unread.append(location)
            return None
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, location)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(part, (*location, i)) for i, part in enumerate(node.value)]
        count = len(self.problems)
        found = self._scalar(node, location) if isinstance(node, yaml.ScalarNode) else None
        if len(self.problems) > count:
            self.unread.append(location)
        return found

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._add_problem(key_node, "expected a name as key")
                continue
            key = str(key_node.value)
            if not key.isascii() and key != key.encode(errors="replace").decode():
                self._add_problem(key_node, _NO_TEXT)
                continue
            here = (*location, key)
            if key_node.tag == f"{_TAG}merge":
                self._add_problem(
                    key_node, "expected plain keys: merging with `<<` is not supported"
                )
            elif key in found:
                first = self.keys[here].line
                self._add_problem(
                    key_node, f"expected unique keys: `{key}` is also in line {first}"
                )
            else:
                self.keys[here] = _place(key_node)
                found[key] = self._value(value_node, here)
        return found

    def _scalar(self, node: yaml.ScalarNode, location: Location) -> Any:
        kind = str(node.tag).removeprefix(_TAG)
        if kind == "null":
            return None
        if kind in ("str", "timestamp", "value"):
            for name in variables_of(str(node.value)):
                self.variables.setdefault(name, []).append(location)
            try:
                text = substitute(str(node.value), self._environ, self._visibility(location))
                text.encode()
            except UnicodeEncodeError:
                self._add_problem(node, _NO_TEXT)
            except ValueError as error:
                self._add_problem(node, str(error))
            else:
                return text
            return None
        if kind in ("int", "float") and _is_setting(location):
            return str(node.value).replace("_", "")
        try:
            if kind == "bool":
                return self._scalars.construct_yaml_bool(node)
            if kind == "int":
                return self._whole(node)
            if kind == "float":
                return self._scalars.construct_yaml_float(node)
        except (ValueError, KeyError, IndexError, OverflowError):  # such as `!!int x`, `!!int ''`
            self._add_problem(node, f"expected a value of type {kind}")
            return None
        # Without the tag in the message: it may be a password that begins with `!`.
        self._add_problem(
            node, "expected a plain value, got a tag; put quotes around a text with `!`"
        )
        return None

    def _whole(self, node: yaml.ScalarNode) -> int | None:
        found = int(self._scalars.construct_yaml_int(node))
        if abs(found) < _INT_END and not _OTHER_BASE.match(node.value):
            return found
        self._add_problem(node, _TOO_LONG if abs(found) >= _INT_END else _NO_DECIMAL)
        return None

    def _add_problem(self, node: yaml.Node, message: str) -> None:
        line, column, _ = _place(node)
        self.problems.append(Problem(self._path, line, column, message))


def _unreadable(error: yaml.YAMLError | RecursionError, text: str) -> tuple[int, int, str]:
    """Return line, column and reason of a YAML syntax error.

    For a bracket or quote that is never closed, return its own position. The parser reports the end
    of the file, where the user would not find the mistake.
    """
    if isinstance(error, ReaderError):
        line, column = 1 + text.count("\n", 0, error.position), text.rfind("\n", 0, error.position)
        code = f"{error.character:04X}"
        reason = f"the character U+{code} is not allowed; write it as `\\u{code}` in double quotes"
        return line, error.position - column, reason
    if not isinstance(error, yaml.MarkedYAMLError):
        is_deep = isinstance(error, RecursionError)
        return 1, 1, "too many levels of nesting" if is_deep else str(error).splitlines()[0]
    context, mark = error.context_mark, error.problem_mark or error.context_mark
    opened = text[context.index : context.index + 1] if context else ""
    if context and opened in _CLOSED_BY and not (mark and text[mark.index :].strip()):
        reason = f"this `{opened}` is never closed by `{_CLOSED_BY[opened]}`"
        return context.line + 1, context.column + 1, reason
    reason = ", ".join(part for part in (error.context, error.problem) if part)
    refused = re.search(r"found character '(\S+)' that cannot start any token", reason)
    if refused:
        is_tab = refused[1] == r"\t"
        reason = f"a text that begins with {refused[1]} needs quotes around it"
        reason = "got a tab; YAML indents by spaces" if is_tab else reason
    elif mark and "${" in text[text.rfind("\n", 0, mark.index) + 1 :].partition("\n")[0]:
        reason += "; inside `{ }` and `[ ]` a `${VAR}` needs quotes around it"
    elif context and opened in {"{", "["}:
        reason += (
            f"; the `{opened}` in line {context.line + 1}, column {context.column + 1} is still "
        )
        reason += f"open here: a comma, a quote or its `{_CLOSED_BY[opened]}` may be missing"
    return (mark.line + 1, mark.column + 1, reason) if mark else (1, 1, reason)


def _place(node: yaml.Node) -> Place:
    mark = node.start_mark
    if isinstance(node, yaml.ScalarNode):
        shown = str(node.value)
        written = (
            f"`{shown if len(shown) <= 60 else shown[:57] + '...'}`" if shown else "`` (empty)"
        )
    else:
        written = "a mapping" if isinstance(node, yaml.MappingNode) else "a list"
    return Place(mark.line + 1, mark.column + 1, written)
