"""`${VAR}`, `${VAR:-default}`, `${file:/path}` and `$$` in the values of a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from eos.secret import read_file

_USE = re.compile(r"\$(?:(\$)|\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\{file:(/[^}]+)\}|(\{))")


class Filled(str):
    """A text that came from variables; `written` is what stands in the file instead."""

    __slots__ = ("written",)
    written: str

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


def substitute(text: str, environ: Mapping[str, str]) -> str:
    """The text with its variables filled in. Raises ValueError naming the first that fails.

    As in a shell, `:-` also stands in for a variable that is set but empty. A `$` before
    anything else stays. Of a file, the last line's end goes. What came from a variable stays a
    text: it is never read as YAML.
    """

    def fill(match: re.Match[str]) -> str:
        dollar, name, default, path, broken = match.groups()
        if dollar:
            return "$"
        if path:
            return read_file(Path(path)).removesuffix("\n")
        if broken:
            raise ValueError(
                "expected `${VAR}` or `${VAR:-default}` or `${file:/path}` after `$`; `$$` means "
                "`$`"
            )
        value = environ.get(name, "")
        if value or (name in environ and default is None):
            return value
        if default is not None:
            return str(default)
        raise ValueError(
            f"expected the environment variable `{name}`, which is not set; "
            f"`${{{name}:-default}}` would give it a default"
        )

    found = _USE.sub(fill, text)
    if not _USE.search(text):
        return found
    filled = Filled(found)
    filled.written = text
    return filled
