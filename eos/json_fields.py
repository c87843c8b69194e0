"""Typed and checked access to the fields of a JSON object that another program may have written.

Anybody with write permission can put any JSON into a ledger or a checkpoint. So each field's type,
range and size are checked before it is used. A wrong field raises a `FieldError` with its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eos.kafka.api import Identity, TopicPartition

INT64_MAX = 2**63 - 1
INT32_MAX = 2**31 - 1
EPOCH_MAX = 2**15 - 1
TIME_MS_MAX = 253_402_300_799_999  # the last millisecond of the year 9999
NAME_MAX, TEXT_MAX = 1_000, 100_000
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_NEVER = object()


class FieldError(ValueError):
    """A missing JSON field, or one with a type or range that no release of this project writes."""


def parsed(value: bytes | None) -> Fields:
    """Return the JSON object in these bytes. Raise ValueError, or its subclass FieldError, if they
    contain anything else."""
    try:
        text = (value or b"").decode()
        body = json.loads(text, parse_constant=_no_number)
        if "\\ud" in text.lower():  # reject half of a surrogate pair
            json.dumps(body, ensure_ascii=False).encode()
    except RecursionError as error:
        raise FieldError("nested too deeply") from error
    return Fields(body)


class Fields:
    """One JSON object. A getter with a default returns it if the field is absent, but not if it is
    null."""

    def __init__(self, value: Any, path: str = "") -> None:
        if not isinstance(value, dict):
            raise FieldError(f"{path or 'the value'} is no object")
        self.value: Mapping[str, Any] = value
        self._path = path

    def number(self, name: str, low: int, high: int, default: Any = _NEVER) -> int:
        value = self._get(name, default)
        if type(value) is not int or not low <= value <= high:
            if value is default:  # any value of the caller, also None
                return default  # type: ignore[no-any-return]  # the type is the caller's choice
            raise self._wrong(name, f"a whole number from {low} to {high}")
        return value

    def text(
        self,
        name: str,
        default: Any = _NEVER,
        *,
        most: int = NAME_MAX,
        pattern: re.Pattern[str] | None = None,
    ) -> str:
        value = self._get(name, default)
        if value is default:
            return default  # type: ignore[no-any-return]  # the type is the caller's choice
        if not isinstance(value, str) or len(value) > most:
            raise self._wrong(name, f"a text of {most} characters at most")
        if pattern is not None and not pattern.fullmatch(value):
            raise self._wrong(name, f"a text like {pattern.pattern}")
        return value

    def flag(self, name: str) -> bool:
        value = self._get(name, False)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value

    def object(self, name: str, default: Any = _NEVER) -> Fields:
        return Fields(self._get(name, default), self._at(name))

    def objects(self, name: str) -> Iterator[Fields]:
        """Yield the objects in a list field; none if the field is absent."""
        for number, each in enumerate(self._list(name)):
            yield Fields(each, f"{self._at(name)}[{number}]")

    def texts(self, name: str, characters_max: int, texts_max: int) -> tuple[str, ...]:
        """Return a field that is a list of texts; none if it is absent."""
        found = self._list(name)
        if len(found) > texts_max or not all(
            isinstance(each, str) and len(each) <= characters_max for each in found
        ):
            raise self._wrong(name, f"a list of {texts_max} texts at most")
        return tuple(found)

    def rows(self, name: str, types: Sequence[type]) -> None:
        """Raise FieldError unless the field is absent or a list of lists, each with values of these
        types."""
        for row in self._list(name):
            is_valid = isinstance(row, list) and [type(each) for each in row] == list(types)
            if not is_valid or any(abs(each) > INT64_MAX for each in row if type(each) is int):
                raise self._wrong(name, f"a list of lists of {len(types)} values")

    def numbers(self, name: str, default: Any = _NEVER) -> dict[str, int]:
        """Return a field that is an object of whole numbers from 0 up, as a dict."""
        found = self.object(name, default)
        return {each: found.number(each, 0, INT64_MAX) for each in found.value}

    def offsets(self, name: str, default: Any = _NEVER) -> dict[TopicPartition, int]:
        return self.object(name, default).topic_offsets()

    def topic_offsets(self) -> dict[TopicPartition, int]:
        """Return this object's offsets, `{topic: {"0": offset}}`: the format of Spark and of the
        ledger."""
        found: dict[TopicPartition, int] = {}
        for topic in self.value:
            require_topic(topic)
            partitions = self.object(topic)
            for each in partitions.value:
                if not _PARTITION.fullmatch(each) or int(each) > INT32_MAX:
                    raise FieldError(f"{self._at(topic)} has a partition {each[:20]!r}")
                offset = partitions.number(each, 0, INT64_MAX)
                found[TopicPartition(topic, int(each))] = offset
        return found

    def identity(self) -> Identity:
        return Identity(
            self.number("producer_id", 0, INT64_MAX), self.number("epoch", 0, EPOCH_MAX)
        )

    def _list(self, name: str) -> list[Any]:
        value = self._get(name, [])
        if not isinstance(value, list):
            raise self._wrong(name, "a list")
        return value

    def _get(self, name: str, default: Any) -> Any:
        value = self.value.get(name, default)
        if value is _NEVER:
            raise FieldError(f"{self._at(name)} is missing")
        return value

    def _wrong(self, name: str, expected: str) -> FieldError:
        return FieldError(f"{self._at(name)} is {_shown(self.value.get(name))}, not {expected}")

    def _at(self, name: str) -> str:
        return f"{self._path}.{name[:60]}" if self._path else name[:60]


def require_topic(name: str) -> None:
    if not _TOPIC.fullmatch(name) or name in {".", ".."}:
        raise FieldError(f"{name[:60]!r} is no name of a topic")


def _no_number(constant: str) -> Any:
    raise FieldError(f"{constant} is no number of JSON")


def _shown(value: Any) -> str:
    if isinstance(value, int) and abs(value) > INT64_MAX:
        return "a larger number"
    return ascii(value)[:60] if isinstance(value, (int, float, str, type(None))) else "another type"
