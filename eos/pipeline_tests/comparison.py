"""The comparison of a test's output with the records that the pipeline file expects.

An expected entry describes a part of a record. Only the fields, JSON keys and headers that the
entry names are compared. With `exact: true` the record's key, value and headers must have nothing
else. An entry may match several records, and a record several entries. So they are paired: each
entry with one record at most, each record with one entry at most, and as many pairs as possible.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eos.config.pipeline_tests import OutputRecord

Headers = Sequence[tuple[str, str | None]]


@dataclass(frozen=True, slots=True)
class Written:
    """A record that a sink would write, with key, value and headers as text."""

    topic: str
    key: str | None
    value: str | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """The result of a comparison.

    `matched` is the number of expected entries that have a record. `missing` has the other entries,
    and `unexpected` the records without an entry, both as JSON texts."""

    matched: int
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()


def compare(expected: Sequence[OutputRecord], found: Sequence[Written]) -> ComparisonResult:
    """Pair expected entries with found records, and return what has no partner."""
    candidates = [[at for at, each in enumerate(found) if matches(e, each)] for e in expected]
    entry_of = _pair(candidates)
    paired = set(entry_of.values())
    fields = {field for record in expected for field in record.model_fields_set}
    if any(record.exact for record in expected):
        fields |= {"headers"}
    # If no entry names a field, an unexpected record is shown by its topic and value.
    fields = fields - {"exact"} or {"topic", "value"}
    return ComparisonResult(
        matched=len(entry_of),
        missing=tuple(_line(_entry(e)) for at, e in enumerate(expected) if at not in paired),
        unexpected=tuple(
            _line({name: _field_to_show(each, name) for name in fields})
            for at, each in enumerate(found)
            if at not in entry_of
        ),
    )


def matches(entry: OutputRecord, record: Written) -> bool:
    """Return whether the record has all that the entry names; with `exact`, nothing else either."""
    named = entry.model_fields_set
    if "topic" in named and entry.topic != record.topic:
        return False
    texts = (("key", entry.key, record.key), ("value", entry.value, record.value))
    if any(name in named and not _is_text(a, b, entry.exact) for name, a, b in texts):
        return False
    if entry.exact:
        return sorted(entry.headers.items(), key=repr) == sorted(record.headers, key=repr)
    return set(entry.headers.items()) <= set(record.headers)


def _is_text(expected: Any, text: str | None, exact: bool) -> bool:
    if not isinstance(expected, dict | list):
        # A key or value in Kafka is bytes. So an expected number or boolean is compared as text.
        is_plain = expected is None or isinstance(expected, str)
        return bool(text == (expected if is_plain else json.dumps(expected)))
    return text is not None and _is_within(expected, _parse_json(text), exact)


def _is_within(expected: Any, found: Any, exact: bool) -> bool:
    """Return whether the JSON value `found` contains `expected`.

    A mapping may have more keys than expected, unless `exact`. Lists must have the same length and
    order."""
    if isinstance(expected, dict):
        if not isinstance(found, dict) or (exact and expected.keys() != found.keys()):
            return False
        return all(k in found and _is_within(v, found[k], exact) for k, v in expected.items())
    if isinstance(expected, list):
        is_as_long = isinstance(found, list) and len(found) == len(expected)
        return is_as_long and all(map(_is_within, expected, found, [exact] * len(expected)))
    # In Python, `1 == True`. In JSON they differ, but `1` equals `1.0`.
    return isinstance(expected, bool) == isinstance(found, bool) and bool(expected == found)


def _pair(candidates: Sequence[Sequence[int]]) -> dict[int, int]:
    """Pair as many entries with records as possible, and return the entry of each paired record.

    `candidates` has for each entry the records that match it. This is a maximum bipartite matching
    by augmenting paths."""
    entry_of: dict[int, int] = {}
    for start in range(len(candidates)):
        came_from: dict[int, int] = {}  # record: the entry from which the search reached it
        record_of = {entry: record for record, entry in entry_of.items()}
        waiting, free = [start], -1
        while waiting and free < 0:
            entry = waiting.pop()
            for record in candidates[entry]:
                if record in came_from:
                    continue
                came_from[record] = entry
                if record not in entry_of:
                    free = record
                    break
                waiting.append(entry_of[record])
        while free >= 0:  # along the found path, pair each entry with the record it reached
            entry = came_from[free]
            entry_of[free], free = entry, record_of.get(entry, -1)
    return entry_of


def _entry(entry: OutputRecord) -> dict[str, Any]:
    named = entry.model_fields_set
    return {name: getattr(entry, name) for name in sorted(named) or ["topic"]}


def _field_to_show(record: Written, name: str) -> Any:
    """Return a field of a record as a test's output shows it.

    Headers are an object, or a list of pairs if a name repeats. JSON objects and lists are parsed.
    All else is text, or None for a null."""
    if name == "headers":
        as_dict = dict(record.headers)
        return as_dict if len(as_dict) == len(record.headers) else list(record.headers)
    text = getattr(record, name)
    read = None if text is None or name == "topic" else _parse_json(text)
    return read if isinstance(read, dict | list) else text


def _parse_json(text: str) -> Any:
    """Return a text parsed as JSON, or None if it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, sort_keys=True)
