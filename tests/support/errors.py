"""Errors that tests expect, by code and not by words; and how much of a test `all` runs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from eos.errors import EosError


def make_error(kind: type[BaseException], message: str) -> BaseException:
    """Return an exception of any class; an error of this project gets the code `example`."""
    return kind("example", message) if issubclass(kind, EosError) else kind(message)


@contextmanager
def raises(code: str, kind: type[EosError] = EosError) -> Iterator[pytest.ExceptionInfo[EosError]]:
    """Expect the error with this code, as `pytest.raises` expects a class."""
    with pytest.raises(kind) as caught:
        yield caught
    assert caught.value.code == code, str(caught.value)


# tests/run sets EOS_TESTS for `quick` and `all`: they have a fifth of a property's examples. A
# nightly run has them all.
_SHARE = 5 if os.environ.get("EOS_TESTS") else 1


def examples(count: int) -> int:
    return max(1, count // _SHARE)


def in_turn(
    cases: Iterable[Any], width: int = 2, every: int = 2, *, of_these: int = 1
) -> list[Any]:
    """Return the cases as parameters. They are a table whose rows have `width` cases.

    All but every nth diagonal is nightly, so that the other runs have cases from all over the
    table. The default run has only every nth case `of_these`; the rest of them is `long`."""
    found, chosen = [], 0
    for at, case in enumerate(cases):
        marks: Any = pytest.mark.nightly
        if sum(divmod(at, width)) % every == 0:
            marks = () if chosen % of_these == 0 else pytest.mark.long
            chosen += 1
        found.append(pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=marks))
    return found
