"""Numbers, times, durations and sizes as texts with their unit, for the report."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

_LARGE = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_SPANS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def number(value: float) -> str:
    for size, word in _LARGE:
        if value >= size:
            return f"{value / size:,.2f} {word}"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def counted(value: int, word: str, words: str = "") -> str:
    return f"1 {word}" if value == 1 else f"{number(value)} {words or word + 's'}"


def size(value: float) -> str:
    for each, word in _BYTES:
        if value >= each:
            return f"{value / each:,.1f} {word}"
    return f"{value:,.0f} B"


def duration(ms: float) -> str:
    for each, word in _SPANS:
        if ms >= each:
            return f"{ms / each:,.1f} {word}".replace(".0 ", " ")
    return f"{ms:.0f} ms" if ms >= 10 or ms == int(ms) else f"{ms:.1f} ms"


def time(at: datetime | None) -> str:
    return at.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC") if at else "unknown"


def moment(at: datetime, width_ms: int) -> str:
    """Return a time as a label of the time axis. `width_ms`, an interval's length, decides how
    exact it is."""
    if width_ms >= 86_400_000:
        return at.strftime("%Y-%m-%d")
    if width_ms >= 60_000:
        return at.strftime("%m-%d %H:%M")
    return at.strftime("%H:%M:%S") + (f".{at.microsecond // 100_000}" if width_ms < 1000 else "")


def ms_between(first: datetime | None, last: datetime | None) -> float:
    """Return the milliseconds between two times; 0 if one is unknown or a clock went back."""
    if first is None or last is None:
        return 0.0
    return max(0.0, (last - first) / timedelta(milliseconds=1))
