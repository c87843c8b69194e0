"""The settings of a pipeline file in the form in which ledger records keep them.

`eos plan --against-running` compares the settings of the last run with those of the file. Only keys
that the file sets are recorded, so another release with other defaults finds no change.

Ledger records may have more readers than the pipeline file, and a file may contain values of
environment variables. So only names, numbers and words of the file's own vocabulary are recorded as
text. Every other value, such as an expression or a step's argument, is recorded as a digest.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eos.config.model import PipelineFile

DIGEST = "sha256:"
# Keys whose texts are names in Kafka or on disk, or one of the values that the schema allows.
_READABLE = frozenset(
    (
        *("topic", "topics", "pattern", "start", "reader", "name", "path", "mode", "scope"),
        *("keys", "compression", "partitioner", "on_error", "on_gap", "on_late", "on_unknown"),
        *("on_unstamped", "output_mode"),
    )
)
_NAMES = ("topic", "name", "path")  # the key that names an entry of a list
_WHOLE = frozenset(("with", "headers", "config"))  # mappings with keys of the user
# Keys that change no run, and the trigger, which options of `eos run` replace.
_UNCOMPARED = {"version", "name", "tests", "guarantee", "trigger"}
_TEXT_MAX = 200
BYTES_MAX = 8 * 1024


def declared(pipeline: PipelineFile) -> Mapping[str, str]:
    """Return the settings of the pipeline file: each value by its path, such as
    `source.kafka.topic`.

    If they take more than `BYTES_MAX` bytes, return one digest for each top-level key."""
    file = pipeline.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude=_UNCOMPARED)
    found = dict(_flat(file, ""))
    return found if len(json.dumps(found)) <= BYTES_MAX else folded(found)


def folded(settings: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings with one digest for each top-level key of the file."""
    if is_folded(settings):
        return settings
    parts: dict[str, dict[str, str]] = {}
    for path, text in settings.items():
        parts.setdefault(re.split(r"[.\[]", path, maxsplit=1)[0], {})[path] = text
    return {key: _digest(part) for key, part in parts.items()}


def is_folded(settings: Mapping[str, str]) -> bool:
    """Return whether each top-level key has a single digest. Otherwise there is a path of two keys
    at least, since `source` is a mapping."""
    return not any("." in path for path in settings)


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    key = path.rpartition(".")[2]
    if isinstance(value, dict) and value and key not in _WHOLE:
        for name, each in value.items():
            yield from _flat(each, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        names = [_name(each) for each in value]
        for number, (each, name) in enumerate(zip(value, names, strict=True), 1):
            is_unique = name and names.count(name) == 1
            yield from _flat(each, f"{path}[{name if is_unique else number}]")
    else:
        yield path, _text(value, key)


def _name(entry: Any) -> str:
    """Return the name of an entry in a list; "" if it has none."""
    found = [entry.get(key) for key in _NAMES] if isinstance(entry, dict) else []
    text = next((each for each in found if isinstance(each, str)), "")
    return text.rstrip("/").rpartition("/")[2]  # a table's name is the last part of its path


def _text(value: Any, key: str) -> str:
    text = json.dumps(value, ensure_ascii=True)
    is_plain = value is None or isinstance(value, bool | int | float) or key in _READABLE
    return text if is_plain and len(text) <= _TEXT_MAX else _digest(value)


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return DIGEST + hashlib.sha256(text.encode()).hexdigest()[:16]
