"""Suggest the valid name that is closest to a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggestion(wrong: str, known: Iterable[str], *, or_all: bool = True) -> str:
    """Return `; did you mean ...?` with the closest valid name. Without a close one, return a list
    of all names, or ""."""
    names = list(known)
    close = difflib.get_close_matches(wrong.strip("`"), names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean `{close[0]}`?"
    return f"; known here: {', '.join(names)}" if or_all and names else ""


def did_you_mean_note(wrong: str, known: Iterable[str]) -> str:
    """Return ` (did you mean ...?)` with the closest known name; "" if none is close."""
    close = difflib.get_close_matches(wrong, list(known), n=1)
    return f" (did you mean `{close[0]}`?)" if close else ""
