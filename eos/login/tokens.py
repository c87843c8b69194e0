"""Tokens of an OAuth login: from a token endpoint, a file, a function, or AWS's signer.

A `TokenSource` only says where a token is from, so it can be pickled and printed. Each process
gets its own tokens with `current`, which keeps a token for 80 % of its lifetime.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from eos.deadline import Backoff, Deadline
from eos.errors import EosError, UnavailableError, UsageError
from eos.login.bounded_call import LateError, bounded_call
from eos.secret import read_file

_USED = 0.8  # part of a token's lifetime after which it is replaced
_CHARACTERS_MAX = 65_536
_END_MAX = 10**11  # seconds since 1970; a later end is no time
_REPLACED_MS = 1_000  # a file may be empty for so long while a program writes it again


@dataclass(frozen=True, slots=True)
class Token:
    """A token, and its end on the wall clock in seconds; None if the end is unknown."""

    value: str = field(repr=False)
    ends_at: float | None = None
    got_at: float = 0.0
    since: float = field(default_factory=time.monotonic)

    @property
    def is_fresh(self) -> bool:
        """Return whether the token can be used again. A token without an end is used once."""
        return self._lives(_USED)

    @property
    def is_valid(self) -> bool:
        """Return whether the token has an end that has not passed."""
        return self._lives(1)

    def _lives(self, part: float) -> bool:
        """Return whether less than this part of the token's lifetime has passed.

        The larger of two measures counts: the wall clock may be set back, and the monotonic clock
        may stand still while a machine sleeps."""
        if self.ends_at is None:
            return False
        age_s = max(time.time() - self.got_at, time.monotonic() - self.since)
        return age_s < part * (self.ends_at - self.got_at)


class TokenSource(Protocol):
    """A hashable description of where tokens are from."""

    def fetch(self, deadline: Deadline) -> Token:
        """Return a new token. Raise UsageError if it is refused, UnavailableError without one."""


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A file whose whole text is the token. It is read at each login, so it may change."""

    path: str
    block: str  # of the profile, for messages

    def fetch(self, deadline: Deadline) -> Token:
        again, backoff = Deadline.after_ms(deadline.at_most_ms(_REPLACED_MS)), Backoff(50)
        while True:
            try:
                return self._read()
            except UsageError:
                if again.has_passed:
                    raise
                backoff.sleep(again)

    def _read(self) -> Token:
        try:
            text = read_file(Path(self.path)).strip()
        except ValueError as error:
            raise self._unusable(str(error)) from error
        if not is_token(text):
            raise self._unusable(f"the file {self.path} has no token: expected one word")
        return Token(text)  # without an end, so that the next login reads the file again

    def _unusable(self, reason: str) -> UsageError:
        return UsageError(
            "token_file_unusable",
            f"the login has no token: {reason}",
            hint=f"`{self.block}.token_file` must name a file with nothing but the token, readable "
            "on the driver and all executors",
        )


@dataclass(frozen=True, slots=True)
class TokenFunction:
    """A user's function that returns a token, or a token and its end in seconds since 1970."""

    name: str  # package.module:function
    block: str

    def fetch(self, deadline: Deadline) -> Token:
        module, _, name = self.name.partition(":")
        try:
            function = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise UsageError(
                "token_function_missing",
                f"the function {self.name} of `{self.block}.callback` can't be loaded: {error}",
                hint="expected `package.module:function`, importable on the driver and all "
                "executors",
            ) from error
        try:
            found = bounded_call(self.name, function, deadline)
        except LateError as error:
            raise UnavailableError(
                "token_function_late",
                f"the function {self.name} of `{self.block}.callback` has not returned in time",
                hint="let it return within four seconds, since connections wait for it: get the "
                "token before it is needed, or limit the function's own requests",
            ) from error
        except Exception as error:
            kind = type(error).__name__
            raise UnavailableError(
                "token_function_failed",
                f"the function {self.name} of `{self.block}.callback` raised {kind}",
                hint=f"call it on this machine: `python -c 'import {module} as m; m.{name}()'`. "
                "The error's text is not shown, since it may have a secret",
            ) from error
        value, ends_at = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
        if not is_token(value) or not (ends_at is None or isinstance(ends_at, int | float)):
            kind = type(found).__name__
            raise UsageError(
                "token_function_invalid",
                f"the function {self.name} of `{self.block}.callback` returned no token, but a "
                f"value of type {kind}",
                hint="it must return the token as a text, or a tuple of the token and the time at "
                "which it ends, in seconds since 1970",
            )
        return token_of(value, ends_at)


def token_of(value: str, ends_at: float | None = None) -> Token:
    """Return a token that was issued now. Without `ends_at`, its end is the claim `exp` if it is a
    JWT."""
    end = ends_at if ends_at is not None else claims(value).get("exp")
    return Token(value, _time(end), time.time())


def _time(end: Any) -> float | None:
    """Return the end of a token as seconds since 1970; None for what is no such time."""
    is_number = isinstance(end, int | float) and not isinstance(end, bool)
    return float(end) if is_number and 0 < end < _END_MAX else None


def is_token(value: object) -> bool:
    """Return whether a value is a text that an `Authorization: Bearer` header can carry."""
    return (
        isinstance(value, str)
        and 0 < len(value) <= _CHARACTERS_MAX
        and value.isascii()
        and value.isprintable()
        and " " not in value
    )


def require_jwt(token: Token) -> None:
    """Raise UsageError for a token that Kafka's Java client can't use.

    The Java client would put any other token into its log and error messages.
    """
    if not {"sub", "exp"} <= claims(token.value).keys():
        raise UsageError(
            "token_not_for_java",
            "the token of `kafka.security.oauth` is no JWT with the claims `sub` and `exp`, and "
            "Kafka's Java client in Spark accepts no other",
            hint="let the issuer provide JWTs, or set `java_class` to a Java class that provides "
            "the tokens of Spark's client (docs/logins.md)",
        )


def claims(token: str) -> Mapping[str, Any]:
    """Return the claims of a JWT without checking its signature; empty if it is no JWT."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        body = parts[1] + "=" * (-len(parts[1]) % 4)
        found = json.loads(base64.urlsafe_b64decode(body))
    except (binascii.Error, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


class _Kept:
    """The newest token of a source in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.token: Token | None = None

    def renewed(self, source: TokenSource, deadline: Deadline) -> Token:
        """Return the token while it is fresh, else a new one."""
        if not self._lock.acquire(timeout=deadline.left_ms / 1000):
            raise UnavailableError(
                "token_timeout",
                "the login has no token in time: another thread of this process still waits for "
                "one",
                hint="the token endpoint or the function answers too slowly; the client connects "
                "again on its own",
            )
        try:
            if self.token is None or not self.token.is_fresh:
                self.token = source.fetch(deadline)
            return self.token
        finally:
            self._lock.release()


_kept: dict[TokenSource, _Kept] = {}
_lock = threading.Lock()


def current(source: TokenSource, deadline: Deadline) -> Token:
    """Return a token of the source: the newest one of this process while it is fresh, else a new
    one.

    If there is no new one although the newest is still valid, return the newest.
    """
    with _lock:
        kept = _kept.setdefault(source, _Kept())
    last = kept.token
    try:
        return kept.renewed(source, deadline)
    except EosError:
        if last is None or not last.is_valid:
            raise
        return last


def last_token(source: TokenSource) -> Token | None:
    """Return the token that `current` returned last in this process."""
    kept = _kept.get(source)
    return None if kept is None else kept.token
