"""`${VAR}`, `${VAR:-default}`, `${file:/path}` and `$$` in the values of a file.

A secret never prints. What a pipeline file says is printed by `eos plan`, in errors, by Spark. So
a secret can't be filled in there: a variable or a file that is named like one, or that a profile
names as a password (`secrets.py`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path

from eos.secret import read_file

_USE = re.compile(r"\$(?:(\$)|\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\{file:(/[^}]+)\}|(\{))")
# The same groups, for text without a `}`: there `_USE` would look for one again from each `${` on.
_OPEN = re.compile(r"\$(?:(\$)|(?!)()()()|(\{))")

# At the end of a name, so that `TOKEN_TOPIC` is none; a number may follow.
_SECRET = re.compile(
    r"(?i)(password|passwd|passphrase|secret|token|credential|[_.-]pwd|(^|[_.-])(pw|pass|cred)"
    r"|(access|secret|private|api|encryption|signing|master|ssh)[_.-]?key"
    r"|jaas[_.-]?config|basic[_.-]?auth|connection[_.-]?string)s?([_.-]?(base64|b64|[0-9]{1,4}))?$"
)
# Of files that hold keys and logins, and of folders that hold nothing else. `/proc` has the
# environment and the open files of every process.
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
_SHOWS = "this value shows in plans, logs, errors and Spark's own pages"


class Visibility(Enum):
    """Where a value may be seen."""

    SECRET = "nowhere"  # noqa: S105 - handed on as a reference only
    VALUE = "in a profile"  # where it is needed
    EVERYWHERE = "in a pipeline"


class FilledText(str):
    """A text that came from variables; `written` is what stands in the file instead."""

    __slots__ = ("written",)
    written: str

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


def substitute(text: str, environ: Mapping[str, str], shown: Visibility = Visibility.VALUE) -> str:
    """The text with its variables filled in. Raises ValueError naming the first that fails.

    As in a shell, `:-` also stands in for a variable that is set but empty. A `$` before
    anything else stays. Of a file, the last line's end goes. What came from a variable stays a
    text: it is never read as YAML.
    """

    def fill(match: re.Match[str]) -> str:
        dollar, name, default, path, broken = match.groups()
        if dollar:
            return "$"
        if broken:
            forms = "`${file:/path}`" if shown is Visibility.SECRET else "`${VAR:-default}`"
            raise ValueError(f"expected `${{VAR}}` or {forms} after `$`; `$$` means `$`")
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
    """The environment's that a text names, and files, as `file:/path`."""
    for match in _uses(text):
        if match[2] or match[4]:
            yield match[2] or f"file:{match[4]}"


def _uses(text: str) -> Iterator[re.Match[str]]:
    """Yield each place with a variable, in time linear in the text."""
    end = text.rfind("}") + 1
    yield from _USE.finditer(text, 0, end)
    yield from _OPEN.finditer(text, end)


def says_secret(name: str) -> bool:
    """Whether a variable's name is a secret's, or a file's path, as written or as it resolves."""
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
            f"expected no `{written}` in a pipeline file: by its name it is a secret, and "
            f"{_SHOWS}. Who the pipeline is stands in the profile (`password`); what may be seen "
            "needs another name"
        )


def _not_set(name: str, shown: Visibility) -> str:
    told = f"expected the environment variable `{name}`, which is not set; "
    if shown is Visibility.SECRET:
        return told + "set it, or let `${file:/path}` name a file; a secret has no default"
    if says_secret(name):
        return told + "set it: a default would be a secret in this file"
    return told + f"`${{{name}:-default}}` would give it a default"
