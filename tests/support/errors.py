"""A test that expects an error names it by its code; its words may change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from eos.errors import EosError


def made(kind: type[BaseException], message: str) -> BaseException:
    """Return an exception of any class; an error of this project gets the code `example`."""
    return kind("example", message) if issubclass(kind, EosError) else kind(message)


@contextmanager
def raises(code: str, kind: type[EosError] = EosError) -> Iterator[pytest.ExceptionInfo[EosError]]:
    """Expect the error with this code, as `pytest.raises` expects a class."""
    with pytest.raises(kind) as caught:
        yield caught
    assert caught.value.code == code, str(caught.value)
