"""Parsers for texts in configuration files: durations, sizes, times and topic patterns."""

from __future__ import annotations

import re
import warnings
from datetime import datetime

DURATION_PATTERN = r"^\s*\d+(\.\d+)?\s*[a-z]+\s*$"
SIZE_PATTERN = r"^\s*\d+(\.\d+)?\s*[KMG]iB\s*$"

_MS = {
    "ms": 1,
    "millisecond": 1,
    "s": 1_000,
    "second": 1_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "day": 86_400_000,
}
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]iB)")
_WORDS = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")
_INSTANT = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)"
    r"(?:[Tt ](?P<time>\d\d:\d\d(?::\d\d)?)(?:\.(?P<fraction>\d{1,3}))?)?"
    r" ?(?P<zone>[Zz]|[+-]\d\d:?\d\d)?"
)
_PATTERN_MAX = 1_000
_MS_MAX = 2**31 - 1  # Kafka's timeouts are 32-bit


def duration_ms(words: object, *, ms_max: int = _MS_MAX) -> int:
    """Return a duration in whole milliseconds, at least 1; raise ValueError if it is malformed."""
    expected = "expected a duration such as `10 minutes`, `1 second` or `500 ms`"
    if isinstance(words, bool) or not isinstance(words, str):
        # A bare number is rejected on purpose: its unit would be a guess.
        raise ValueError(expected)  # noqa: TRY004 - pydantic turns ValueError into a problem
    match = _WORDS.fullmatch(words.strip().lower())
    if match is None:
        raise ValueError(expected)
    number, unit = match.groups()
    factor = _MS.get(unit) or _MS.get(unit.removesuffix("s"))
    if factor is None:
        raise ValueError(
            f"{expected}: unknown unit `{unit}` (use ms, seconds, minutes, hours or days)"
        )
    value = float(number) * factor
    if value < 1 or value > ms_max:
        days = ms_max // _MS["day"]
        raise ValueError(f"expected a duration from 1 ms to {days:,} days")
    return round(value)


def size_bytes(words: object) -> int:
    """Return a size in bytes, at least 1; raise ValueError if it is malformed."""
    match = _SIZE.fullmatch(words.strip()) if isinstance(words, str) else None
    if isinstance(words, int) and not isinstance(words, bool):
        found = words
    elif match is not None:
        number = float(match[1]) * _UNITS[match[2]]
        found = round(number) if number < 2**63 else 0  # `number` may be infinite
    else:
        raise ValueError("expected a size such as `64 MiB` (KiB, MiB or GiB), or a number of bytes")
    if not 1 <= found < 2**63:
        raise ValueError("expected a size of at least 1 byte")
    return found


def instant_ms(words: object) -> int:
    """Return a time as milliseconds since 1970, Kafka's unit; raise ValueError if malformed.

    A time without a zone is rejected, because author, driver and brokers may be in different zones.
    """
    example = "`2026-11-21T10:00:00Z` or `2026-11-21T10:00:00+01:00`"
    match = _INSTANT.fullmatch(words.strip()) if isinstance(words, str) else None
    if match is None or match["time"] is None:
        raise ValueError(f"expected a time such as {example}")
    if match["zone"] is None:
        raise ValueError(
            f"expected a time with its zone, such as {example}: without a zone, its meaning would "
            "depend on the machine"
        )
    zone = match["zone"].upper().replace("Z", "+00:00")
    zone = zone if ":" in zone else f"{zone[:3]}:{zone[3:]}"
    try:
        moment = datetime.fromisoformat(f"{match['day']}T{match['time']}{zone}")
    except ValueError as error:
        raise ValueError(f"expected a valid time: {error}") from error
    found = int(moment.timestamp()) * 1000 + int((match["fraction"] or "").ljust(3, "0"))
    if found < 0:
        raise ValueError("expected a time since 1970, where Kafka's timestamps begin")
    return found


def topic_pattern(text: str) -> str:
    """Return `text` if Python and Java (in Spark) read it as the same regular expression.

    Otherwise raise ValueError. Topic names are plain ASCII, so most differences between the two
    languages don't matter. Named groups are rejected, and so is `[` within `[...]`: Java reads it
    as a nested set, Python as a character.
    """
    if len(text) > _PATTERN_MAX:
        raise ValueError(f"expected a pattern of at most {_PATTERN_MAX} characters")
    if "(?P" in text:
        raise ValueError("expected a pattern without named groups: Java's syntax for them differs")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"expected a regular expression: {error}") from error
    except Warning as warning:
        raise ValueError(
            f"expected a pattern with the same meaning in Java and Python: {str(warning).lower()}"
        ) from warning
    return text
