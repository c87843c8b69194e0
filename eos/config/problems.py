"""Problems of a configuration file, as messages with line and column.

All problems of a file are reported at once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from eos.config import (
    base,
    dedup,
    kerberos,
    model,
    monitoring,
    oauth,
    references,
    registry,
    rejected_records,
    security,
    transform,
)
from eos.errors import UsageError
from eos.suggestion import suggestion

Location = tuple[str | int, ...]

PATTERNS = {
    model.NAME_PATTERN: "a name of lower-case letters, digits, `_`, `-` and `.` that begins "
    "with a letter",
    base.TOPIC_PATTERN: "a topic name (letters, digits, `.`, `_`, `-`; at most 249 characters)",
    transform.FUNCTION_PATTERN: "a function as `package.module:function`",
    model.ADDRESS_PATTERN: "an address as `host:port`",
    base.IDENTIFIER_PATTERN: "a name of letters, digits and `_` that does not begin with a digit",
    rejected_records.RULE_PATTERN: "a name of at most 50 letters, digits and `_` that does not "
    "begin with a digit",
    dedup.FIELD_PATTERN: "header(NAME), value(PATH), key or the name of a column",
    references.FILE_PATTERN: "an absolute path without `:`, `$`, `{` and `}`",
    references.USER_PATTERN: "a name without spaces, quotes, backslashes and `$`",
    oauth.SCOPE_PATTERN: "scopes, separated by one space each",
    oauth.EXTENSION_PATTERN: "a name of letters",
    registry.HEADER_PATTERN: "the name of an HTTP header",
    registry.VALUE_PATTERN: "printable text without line breaks",
    oauth.JAVA_CLASS_PATTERN: "the full name of a Java class",
    kerberos.PRINCIPAL_PATTERN: "a principal with its realm, such as `eos@EXAMPLE.COM` or "
    "`eos/host@EXAMPLE.COM`",
    kerberos.KEYTAB_PATTERN: "an absolute path without `:`, `$`, `{`, `}`, quotes and backslashes",
    kerberos.SERVICE_PATTERN: "a name of letters, digits, `_`, `.` and `-`",
    security.REGION_PATTERN: "a region of AWS, such as `eu-west-1`",
    monitoring.URL_PATTERN: "an address that begins with `http://` or `https://`, without a user",
    monitoring.PATH_PATTERN: "a path without spaces, `:`, `?` and `#`",
    model.PREFIX_PATTERN: "a prefix of letters, digits, `.`, `_` and `-`, at most 64 characters",
}
_KINDS = {
    "string_type": "a text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "a mapping of names to values",
    "tuple_type": "a list",
    "path_type": "a path",
    "string_too_short": "a text that is not empty",
    "too_short": "at least one entry",
}
# Parts of pydantic's locations that are in no file: the tags of a value's form, and the mark of a
# problem with a key.
_NOT_WRITTEN = {base.WORD, base.MAPPING, base.PRODUCER, base.COLUMNS}
_KEY = "[key]"
_SHOWN_MAX = 100  # problems in one message; the field `problems` has all
_KEY_MAX = 60
# The user and the query of a URL.
_SECRETS_IN_URL = (re.compile(r"(://)[^/\s@]*(?=@)"), re.compile(r"(://[^?`]*\?)[^\s`]+"))
# Problems of a key: an unknown and a missing one. They are right even if values are unreadable.
_OF_KEYS = {"extra_forbidden", "missing"}


class Problem(NamedTuple):
    """A problem in a file, with its line and column, both counted from 1.

    An error has to be fixed. A warning may be intended. A note names a check that was not made.
    """

    path: str
    line: int
    column: int
    message: str
    severity: Literal["error", "warning", "note"] = "error"

    def __str__(self) -> str:
        subject = "" if self.severity == "error" else f"{self.severity}: "
        # A value that is in no file, such as an argument of a Python job, has no line.
        place = f"{self.path}:{self.line}:{self.column}" if self.line else self.path
        return f"{place}: {subject}{self.message}" if place else f"{subject}{self.message}"


class Place(NamedTuple):
    """Position of a value and its text as written: `${VAR}` is kept, so no secret shows."""

    line: int
    column: int
    written: str


@dataclass(frozen=True, slots=True)
class Places:
    """Positions of all keys and values of one file."""

    path: str
    keys: Mapping[Location, Place]
    values: Mapping[Location, Place]
    variables: Mapping[str, Sequence[Location]] = field(default_factory=dict)  # files: `file:/path`

    def problem(self, location: Location, message: str, *, at_key: bool = False) -> Problem:
        place = self._find(self.keys if at_key else self.values, location)
        return Problem(self.path, place.line, place.column, message)

    def written(self, location: Location) -> str:
        return self._find(self.values, location).written

    def closest(self, location: Location) -> Location:
        """Return the location, or its closest enclosing location that is in the file."""
        return self._existing(self.values, location)

    def _find(self, places: Mapping[Location, Place], location: Location) -> Place:
        """Return the place of the location, or of its closest enclosing location."""
        for found in (places, self.values):
            existing = self._existing(found, location)
            if existing in found:
                return found[existing]
        return Place(1, 1, "")

    def _existing(self, places: Mapping[Location, Place], location: Location) -> Location:
        """Return the location without those parts that are not in the file.

        Such a part is a missing key, or index 0 of a list in which a validator wrapped a single
        value.
        """
        existing: Location = ()
        for part in location:
            if (*existing, part) in places or (*existing, part) in self.values:
                existing = (*existing, part)
        return existing


def refuse(file: str, problems: Sequence[Problem]) -> UsageError:
    """Return one error that lists all problems in the file's order."""
    ordered = sorted(set(problems), key=lambda problem: problem[:3])
    count = "a problem" if len(ordered) == 1 else f"{len(ordered)} problems"
    lines = [count, *(f"  {problem}" for problem in ordered[:_SHOWN_MAX])]
    if len(ordered) > _SHOWN_MAX:
        lines.append(f"  and {len(ordered) - _SHOWN_MAX} more")
    problem_list = "\n".join(lines)
    return UsageError(
        "config_invalid",
        f"{file} has {problem_list}",
        problems=tuple(ordered),
        hint="docs/reference.md lists all keys; `eos lint` checks a pipeline file without a run",
    )


def explain(
    root: type[BaseModel], error: ValidationError, places: Places, unread: Collection[Location] = ()
) -> dict[Location, list[Problem]]:
    """Return pydantic's errors as problems, by location in the file.

    `unread` has the locations of values that could not be read, which are already reported. A
    problem at such a location, or at one that encloses it, is skipped: it only follows from the
    missing value.
    """
    entries = error.errors(include_url=False, include_input=False)
    for entry in entries:
        entry["loc"] = tuple(part for part in entry["loc"] if part not in _NOT_WRITTEN)
    inner = {entry["loc"][:depth] for entry in entries for depth in range(len(entry["loc"]))}
    around_unread = and_around(unread)
    found: dict[Location, list[Problem]] = {}
    for entry in entries:
        location, kind = entry["loc"], entry["type"]
        nearest = places.closest(location)
        of_place = found.setdefault(location if kind == "missing" else nearest, [])
        # If the only entry of a list is wrong, pydantic also reports the list as too short. One
        # message is enough.
        is_repeated = kind == "too_short" and location in inner
        is_repeated |= nearest in around_unread and kind not in _OF_KEYS
        if not is_repeated:
            context = entry.get("ctx") or {}
            of_place.append(_problem(root, kind, location, context, entry["msg"], places))
    return found


def and_around(locations: Iterable[Location]) -> frozenset[Location]:
    """Return the locations and all locations that enclose them."""
    return frozenset(each[:depth] for each in locations for depth in range(len(each) + 1))


def _problem(
    root: type[BaseModel],
    kind: str,
    location: Location,
    context: Mapping[str, Any],
    message: str,
    places: Places,
) -> Problem:
    if kind == "extra_forbidden":
        known = _keys(root, location[:-1])
        key = str(location[-1])
        key = key if len(key) <= _KEY_MAX else f"{key[: _KEY_MAX - 3]}..."
        text = f"unknown key `{key}`" + suggestion(key, known)
        return places.problem(location, text, at_key=True)
    if kind == "missing":
        return places.problem(location[:-1], f"expected key `{location[-1]}`, which is missing")
    is_key = location[-1:] == (_KEY,)
    if is_key:
        location = location[:-1]
    got = f", got `{location[-1]}`" if is_key else _got(places, location)
    got = "" if kind == "secret" else got  # the value may be the secret
    expected = _expected(root, kind, location, context, message)
    text = expected if ", got " in expected else f"{expected}{got}"
    if kind == "literal_error":
        options = re.findall(r"'([^']*)'", str(context["expected"]))
        text += suggestion(places.written(location), options, or_all=False)
    elif kind in {"string_type", "text_or_mapping"} and _got(places, location):
        text += "; put quotes around it if it is a text"
    return places.problem(location, text, at_key=is_key)


def _expected(
    root: type[BaseModel],
    kind: str,
    location: Location,
    context: Mapping[str, Any],
    message: str,
) -> str:
    if kind in _KINDS:
        return f"expected {_KINDS[kind]}"
    if kind == "string_pattern_mismatch":
        pattern = str(context["pattern"])
        return f"expected {PATTERNS.get(pattern, f'a text like `{pattern}`')}"
    if kind == "literal_error":
        words = str(context["expected"])
        return "expected true" if words == "True" else f"expected {words.replace(chr(39), '')}"
    if kind == "greater_than_equal":
        return f"expected a number of at least {context['ge']}"
    if kind == "less_than_equal":
        return f"expected a number of at most {context['le']}"
    if kind == "string_too_long":
        return f"expected at most {context['max_length']} characters"
    if kind in ("model_type", "model_attributes_type"):
        return f"expected a mapping with the keys {', '.join(_keys(root, location))}"
    if kind == "value_error":
        return str(context["error"])
    return message if message.startswith("expected ") else f"expected another value ({message})"


def _got(places: Places, location: Location) -> str:
    """Return `, got VALUE`, the end of a message, with the value as written in the file.

    Return an empty text for a mapping or list. A URL's user and query may be secrets, and are
    replaced.
    """
    written = places.written(location)
    for secret in _SECRETS_IN_URL:
        written = secret.sub(r"\1***", written)
    return f", got {written}" if written.startswith("`") else ""


def _keys(root: type[BaseModel], location: Location) -> list[str]:
    """Return the keys that the models allow in the mapping at `location`."""
    found: list[type[BaseModel]] = [root]
    for part in location:
        if not isinstance(part, int):
            inside = (field for name, field in _fields(found) if name == part)
            found = [model for field in inside for model in _models(field.annotation)]
    return list(dict.fromkeys(name for name, _ in _fields(found)))


def _fields(models: Iterable[type[BaseModel]]) -> Iterator[tuple[str, FieldInfo]]:
    for each in models:
        for name, info in each.model_fields.items():
            yield info.alias or name, info


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models inside `X`, `X | Y`, `tuple[X, ...]` and Annotated forms of these."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    for part in get_args(annotation):
        yield from _models(part)
