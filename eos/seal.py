"""How do a task's error and a rejected record's position reach the driver? As signed marks in
Spark's error text.

Spark turns an exception of a task into text, and puts text of records next to it. So the driver
accepts only text with a signature. The secret is random for each process, and travels to the tasks
inside their pickled closures. No author of a record can know it beforehand.

*Guarantees* Text without a valid signature is never read as an error of this project, and reading
it raises nothing. *Not guaranteed* that a signature stays secret: logs show signatures, but not the
secret. At worst, a reader of the logs could repeat a mark in the same run. A query plan shows the
opening word for `raise_error`, which is derived from the secret.
"""

from __future__ import annotations

import base64
import functools
import hmac
import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from eos import errors
from eos.errors import EosError, reword

_MARK = re.compile(r"\[eos-error ([A-Za-z0-9+/=]{1,524288}) ([0-9a-f]{64})\]")
_MESSAGE_MAX, _HINT_MAX, _FIELD_MAX, _FIELDS_MAX = 4_000, 2_000, 300, 32
_TEXT_MAX = 4 << 20  # limit of Spark's text; a mark is near its beginning or end


class CrossingError(Exception):
    """An EosError on its way from a task to the driver."""


class Seal:
    """The secret with which one run signs its marks. It can be pickled, and is never printed."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secret or secrets.token_bytes(32)

    def __reduce__(self) -> tuple[type[Seal], tuple[bytes]]:
        return Seal, (self._secret,)

    def __repr__(self) -> str:
        return "Seal(***)"

    def crossing(self, error: EosError) -> CrossingError:
        """Return the exception that a task raises in place of `error`: its text contains the error
        as a signed mark. Long texts are cut."""
        plain = [(key, value) for key, value in error.fields.items() if _is_plain(value)]
        fields = {key: _cut(value, _FIELD_MAX) for key, value in plain[:_FIELDS_MAX]}
        message, hint = _cut(error.message, _MESSAGE_MAX), _cut(error.hint, _HINT_MAX)
        text = json.dumps([type(error).__name__, error.code, message, hint, fields])
        body = base64.b64encode(text.encode()).decode()
        shown = reword(error, message=message, hint=hint)
        return CrossingError(f"{shown} [eos-error {body} {self._signature(body)}]")

    @contextmanager
    def crossing_errors(self) -> Iterator[None]:
        """Raise each EosError of the context as `crossing` returns it."""
        try:
            yield
        except EosError as error:
            raise self.crossing(error) from error

    def crossed(self, text: str) -> EosError | None:
        """Return the error that a task of this run raised, read from Spark's text. None if no
        signed mark is in it."""
        if len(text) > _TEXT_MAX:
            text = f"{text[: _TEXT_MAX // 2]}\n{text[-_TEXT_MAX // 2 :]}"
        for body, signature in _MARK.findall(text):
            if hmac.compare_digest(signature, self._signature(body)):
                return _read(body)
        return None

    def opening(self, kind: str) -> str:
        """Return the signed beginning of a message for SQL's `raise_error`. The caller appends the
        content and `]`."""
        return f"[eos-{kind} {self._signature(kind)[:32]} "

    def raised(self, kind: str, texts: Iterable[str]) -> str | None:
        """Return the content of the first text that begins with `opening(kind)` and ends with `]`.
        None if there is none."""
        opening = self.opening(kind)
        found = (text for text in texts if text.startswith(opening) and text.endswith("]"))
        return next((text[len(opening) : -1] for text in found), None)

    def _signature(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(), "sha256").hexdigest()


def of_this_process() -> Seal:
    """Return the seal of this process, the driver. A task uses the seal in its closure instead."""
    return _of(os.getpid())  # by process id, so that a fork gets a seal of its own


def crossed(text: str) -> EosError | None:
    return of_this_process().crossed(text)


@functools.cache
def _of(_pid: int) -> Seal:
    return Seal()


def _read(body: str) -> EosError | None:
    """Return the error in a signed mark. Return None if the mark has the format of another
    release."""
    try:
        name, code, message, hint, fields = json.loads(base64.b64decode(body, validate=True))
        kind = getattr(errors, name, None)
        if not (isinstance(kind, type) and issubclass(kind, EosError)):
            kind = EosError  # a class that this release lacks: its message is kept
        if not all(isinstance(each, str) for each in (code, message, hint)):
            return None
        return kind(code, message, hint=hint, **fields)
    except (ValueError, TypeError, RecursionError):
        return None


def _cut(value: Any, limit: int) -> Any:
    is_long = isinstance(value, str) and len(value) > limit
    return f"{value[: limit - 3]}..." if is_long else value


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))
