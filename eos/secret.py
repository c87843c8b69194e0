"""References to secrets. A secret's value is read only at the moment of its use.

Plans, pickles and the options of Spark's source contain the reference only, `${VAR}` or
`${file:/path}`. Driver and executors each read the secret themselves. In Spark's source, Kafka's
own configuration providers read it.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path

from eos.errors import UsageError

# A path must be absolute, so that it means the same to each process. It has none of the characters
# that end a reference in Kafka's syntax.
PATH_PATTERN = r"/[^:${}\x00-\x1f]*[^/:${}\x00-\x1f]"
REFERENCE_PATTERN = r"^\$\{([A-Za-z_][A-Za-z0-9_]*|file:" + PATH_PATTERN + r")\}$"
_REFERENCE = re.compile(REFERENCE_PATTERN)
_BYTES_MAX = 65_536


def file_of(reference: str) -> Path | None:
    """Return the file of a reference `${file:/path}`. Return None for an environment variable."""
    inner = reference[2:-1]
    return Path(inner.removeprefix("file:")) if inner.startswith("file:") else None


def variable_of(reference: str) -> str:
    """Return the text inside the reference's brackets: a variable's name, or `file:/path`."""
    return reference[2:-1]


def identity(name: str) -> str:
    """Return a name that is equal for two references to the same variable or file. `name` is the
    text inside a reference.

    For a file the name contains device and inode, because `/x/./secret`, a link and a second mount
    lead to the same file.
    """
    if not name.startswith("file:"):
        return name
    path = name.removeprefix("file:")
    try:
        found = Path(path).stat()
    except (OSError, ValueError):  # the file is missing, so its path must do
        return f"file:{os.path.normpath(path)}"
    return f"file:{found.st_dev}:{found.st_ino}"


def is_reference(text: str) -> bool:
    return _REFERENCE.match(text) is not None


def reveal(reference: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the secret of a reference, for immediate use. Text that is no reference is returned
    unchanged."""
    if not is_reference(reference):
        return reference
    path = file_of(reference)
    try:
        if path is not None:
            return read_file(path)
        found = (os.environ if environ is None else environ).get(variable_of(reference))
    except ValueError as error:
        raise _unreadable(reference, str(error)) from error
    if not found:
        raise _unreadable(reference, "the environment variable is not set")
    return found


def read_file(path: Path) -> str:
    """Return the file's text. If it can't be read, raise ValueError, whose message contains none of
    the text."""
    try:
        with path.open("rb") as file:
            raw = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise ValueError(f"the file {path} can't be read: {error.strerror}") from error
    if len(raw) > _BYTES_MAX:
        raise ValueError(f"the file {path} is larger than {_BYTES_MAX} bytes")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ValueError(f"the file {path} is not UTF-8 text") from None


def _unreadable(reference: str, reason: str) -> UsageError:
    host = socket.gethostname()
    return UsageError(
        "secret_unavailable",
        f"the secret {reference} can't be read on {host}: {reason}",
        hint="the driver and all executors need the secret under this name",
        reference=reference,
    )
