"""How a task's error and a row's coordinates reach the driver through Spark's text: as signed
marks.

Spark turns an exception of a task into text, and puts text of records next to it. So the driver
accepts only text with a signature. The secret is random for each process, and travels to the tasks
inside their pickled closures. No author of a record can know it beforehand.

*Guarantees* Text without a valid signature is never read as an error of ours, and reading it raises
nothing. *Not guaranteed* that a signature stays secret: logs show signatures, but not the secret.
At worst, a reader of the logs could repeat a mark in the same run. A plan shows the word for
`raise_error`, which is derived from the secret.
"""

from __future__ import annotations

import base64
import functools
import hmac
import json
import os
import re
import secrets
from collections.abc import Iterable
from typing import Any

from eos import errors
from eos.errors import EosError, reword

_MARK = re.compile(r"\[eos-error ([A-Za-z0-9+/=]{1,524288}) ([0-9a-f]{64})\]")
_MESSAGE_MAX, _HINT_MAX, _FIELD_MAX, _FIELDS_MAX = 4_000, 2_000, 300, 32
_TEXT_MAX = 4 << 20  # of Spark's text: a mark is near its beginning or end


class CrossingError(Exception):
    """An EosError on its way from a task to the driver."""


class Seal:
    """The secret of one run. It pickles, and is never printed."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secret or secrets.token_bytes(32)

    def __reduce__(self) -> tuple[type[Seal], tuple[bytes]]:
        return Seal, (self._secret,)

    def __repr__(self) -> str:
        return "Seal(***)"

    def crossing(self, error: EosError) -> CrossingError:
        """Return the exception that a task raises in place of the error. Long texts are cut."""
        plain = [(key, value) for key, value in error.fields.items() if _is_plain(value)]
        fields = {key: _cut(value, _FIELD_MAX) for key, value in plain[:_FIELDS_MAX]}
        message, hint = _cut(error.message, _MESSAGE_MAX), _cut(error.hint, _HINT_MAX)
        text = json.dumps([type(error).__name__, error.code, message, hint, fields])
        body = base64.b64encode(text.encode()).decode()
        shown = reword(error, message=message, hint=hint)
        return CrossingError(f"{shown} [eos-error {body} {self._signature(body)}]")

    def crossed(self, text: str) -> EosError | None:
        """Return the error that a task of this run raised, from Spark's text; None if there is
        none."""
        if len(text) > _TEXT_MAX:
            text = f"{text[: _TEXT_MAX // 2]}\n{text[-_TEXT_MAX // 2 :]}"
        for body, signature in _MARK.findall(text):
            if hmac.compare_digest(signature, self._signature(body)):
                return _read(body)
        return None

    def opening(self, kind: str) -> str:
        """Return the beginning of a text for SQL's `raise_error`. The text must end with `]`."""
        return f"[eos-{kind} {self._signature(kind)[:32]} "

    def raised(self, kind: str, texts: Iterable[str]) -> str | None:
        """Return the content of the first of these texts that has the signed beginning and the `]`
        at its end; None if there is none."""
        opening = self.opening(kind)
        found = (text for text in texts if text.startswith(opening) and text.endswith("]"))
        return next((text[len(opening) : -1] for text in found), None)

    def _signature(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(), "sha256").hexdigest()


def of_this_process() -> Seal:
    """Return the driver's seal. A task uses the one from its closure."""
    return _of(os.getpid())  # by process id, so that a fork gets a seal of its own


def crossed(text: str) -> EosError | None:
    return of_this_process().crossed(text)


@functools.cache
def _of(_pid: int) -> Seal:
    return Seal()


def _read(body: str) -> EosError | None:
    """Return the error of a signed mark. Return None for a mark in the format of another
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
