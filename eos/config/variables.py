"""Substitution of `${VAR}`, `${VAR:-default}`, `${file:/path}` and `$$` in configuration files.

`eos plan`, errors and Spark print values of a pipeline file, but must never print a secret. So a
pipeline file must not use a variable or file whose name looks like a secret's, or that the profile
uses as a password (`secrets.py`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path

from eos.secret import read_file

_USE = re.compile(r"\$(?:(\$)|\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\{file:(/[^}]+)\}|(\{))")
# For the text after the last `}`, with the same groups as `_USE`. There `_USE` would search for a
# `}` from each `${` to the end of the text, which takes quadratic time.
_OPEN = re.compile(r"\$(?:(\$)|(?!)()()()|(\{))")

# Names of secrets, recognized by their end: `KAFKA_TOKEN` or `TOKEN_2`, but not `TOKEN_TOPIC`.
_SECRET = re.compile(
    r"(?i)(password|passwd|passphrase|secret|token|credential|[_.-]pwd|(^|[_.-])(pw|pass|cred)"
    r"|(access|secret|private|api|encryption|signing|master|ssh)[_.-]?key"
    r"|jaas[_.-]?config|basic[_.-]?auth|connection[_.-]?string)s?([_.-]?(base64|b64|[0-9]{1,4}))?$"
)
# Files that hold keys and logins, and folders that hold nothing else. `/proc` has the environment
# and the open files of every process.
_SECRET_SUFFIXES = frozenset(
    [".pem", ".key", ".p8", ".p12", ".pfx", ".pkcs12", ".jks", ".keystore", ".keytab", ".ppk"]
)
_SECRET_FILES = frozenset(
    (
        *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".netrc", "_netrc", ".pgpass", ".my.cnf"),
        *(".npmrc", ".pypirc", ".git-credentials", ".htpasswd", ".dockercfg", ".env", "shadow"),
    )
)
_SECRET_FOLDERS = frozenset(["secrets", ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker"])
_SHOWS = "this value is printed in plans, logs, errors and Spark's web UI"


class Visibility(Enum):
    """The places at which a value of a configuration file may be shown after substitution."""

    SECRET = "nowhere"  # noqa: S105 - handed on as a reference only
    VALUE = "in a profile"  # at the place that needs it
    EVERYWHERE = "in a pipeline"


class FilledText(str):
    """A text after substitution; `written` is the text before it, as in the file."""

    __slots__ = ("written",)
    written: str

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


def substitute(text: str, environ: Mapping[str, str], shown: Visibility = Visibility.VALUE) -> str:
    """Return the text with its variables replaced; raise ValueError at the first failure.

    As in a shell, the default after `:-` also replaces a variable that is set but empty. A `$`
    before any other character is kept. The newline at the end of a file is removed. The result is
    always text: it is never parsed as YAML.
    """

    def fill(match: re.Match[str]) -> str:
        dollar, name, default, path, broken = match.groups()
        if dollar:
            return "$"
        if broken:
            forms = "`${file:/path}`" if shown is Visibility.SECRET else "`${VAR:-default}`"
            raise ValueError(f"expected `${{VAR}}` or {forms}; write `$$` for a literal `$`")
        if path:
            _require_seen(f"${{file:{path}}}", path, shown)
            return read_file(Path(path)).removesuffix("\n")
        _require_seen(f"${{{name}}}", name, shown)
        value = environ.get(name, "")
        if value or (name in environ and default is None):
            return value
        if default is not None:
            return str(default)
        raise ValueError(_not_set(name, shown))

    end = text.rfind("}") + 1
    found = _USE.sub(fill, text[:end]) + _OPEN.sub(fill, text[end:])
    if next(_uses(text), None) is None:
        return found
    filled = FilledText(found)
    filled.written = text
    return filled


def variables_of(text: str) -> Iterator[str]:
    """Yield the environment variables in a text, and its files as `file:/path`."""
    for match in _uses(text):
        if match[2] or match[4]:
            yield match[2] or f"file:{match[4]}"


def _uses(text: str) -> Iterator[re.Match[str]]:
    """Yield a match for each `$` expression in the text, in time linear in the text's length."""
    end = text.rfind("}") + 1
    yield from _USE.finditer(text, 0, end)
    yield from _OPEN.finditer(text, end)


def says_secret(name: str) -> bool:
    """Return whether `name` looks like that of a secret.

    `name` is an environment variable, or the absolute path of a file. For a path, the path with all
    links resolved is checked, too.
    """
    if not name.startswith("/"):
        return _SECRET.search(name) is not None
    return any(_is_secrets(Path(each)) for each in (name, os.path.realpath(name)))


def _is_secrets(path: Path) -> bool:
    name, folders = path.name.lower(), [each.lower() for each in path.parts[:-1]]
    return (
        not _SECRET_FOLDERS.isdisjoint(folders)
        or folders[1:2] == ["proc"]
        or path.suffix.lower() in _SECRET_SUFFIXES
        or name in _SECRET_FILES
        or any(map(_SECRET.search, (name, path.stem)))
    )


def _require_seen(written: str, name: str, shown: Visibility) -> None:
    if shown is Visibility.EVERYWHERE and says_secret(name):
        raise ValueError(
            f"expected no `{written}` in a pipeline file: its name is that of a secret, and "
            f"{_SHOWS}. Put credentials into the profile (`password`). If the value is not a "
            "secret, rename it"
        )


def _not_set(name: str, shown: Visibility) -> str:
    text = f"expected the environment variable `{name}`, which is not set; set it"
    if shown is Visibility.SECRET:
        return text + ", or read a file with `${file:/path}` (a secret has no default)"
    if says_secret(name):
        return text + " (a default would put the secret into this file)"
    return text + f", or write `${{{name}:-default}}` to give it a default"
