"""References to secrets and files in a profile, as types of its keys."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from eos.config.variables import FilledText
from eos.secret import PATH_PATTERN, REFERENCE_PATTERN, file_of, is_reference, read_file

FILE_PATTERN = f"^{PATH_PATTERN}$"
USER_PATTERN = r"^[^\s\"\\$]{1,200}$"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# A password with one of these would end the quoted text in which Kafka's Java client puts it.
_BREAKS_QUOTES = re.compile(r"[\"\\]")


def _refuse(words: str) -> PydanticCustomError:
    """Return an error of the kind "secret": its message never shows the rejected value."""
    return PydanticCustomError("secret", "{words}", {"words": f"expected {words}"})


def _reference(value: object) -> object:
    """Return the reference to a secret (`${VAR}` or `${file:/path}`) as written in the file.

    Raise an error if `value` is no such reference, or if the secret is empty or has a line break.
    """
    if value is None:
        return value
    written = value.written if isinstance(value, FilledText) else value
    if not isinstance(written, str) or not is_reference(written):
        raise _refuse(
            "`${VAR}` or `${file:/absolute/path}` and no other text: a profile contains neither a "
            "secret nor a default for it"
        )
    if isinstance(value, FilledText):
        _require_one_line(value)
    return written


def _require_one_line(found: FilledText) -> None:
    path = file_of(found.written)
    exact = read_file(path) if path is not None else str(found)
    if not exact:
        raise _refuse(f"a secret that is not empty in {found.written}")
    if _CONTROL.search(exact):
        raise _refuse(
            f"one line without a line break in {found.written}: Kafka's Java client would read the "
            "line break as part of the secret (`printf %s` writes none)"
        )


def _password(value: object) -> object:
    found = _reference(value)
    if isinstance(value, FilledText) and _BREAKS_QUOTES.search(value):
        raise _refuse(
            f"a password without double quotes and backslashes in {found}: Kafka's Java client "
            "can't read them from a variable or file"
        )
    return found


_AS_TEXT = WithJsonSchema(
    {"type": "string", "pattern": REFERENCE_PATTERN, "examples": ["${file:/run/secrets/kafka}"]}
)
Password = Annotated[str, BeforeValidator(_password), _AS_TEXT]
# An absolute path, so that it means the same file whatever a process's working directory is.
PemFile = Annotated[str, Field(pattern=FILE_PATTERN)]
