"""`${VAR}`, `${VAR:-default}` and `$$` in the values of a file."""

from __future__ import annotations

import re
from collections.abc import Mapping

_USE = re.compile(r"\$(?:(\$)|\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|(\{))")


def substitute(text: str, environ: Mapping[str, str]) -> str:
    """The text with its variables filled in. Raises ValueError naming the first that fails.

    As in a shell, `:-` also stands in for a variable that is set but empty. A `$` before
    anything else stays. What came from a variable stays a text: it is never read as YAML.
    """

    def fill(match: re.Match[str]) -> str:
        dollar, name, default, broken = match.groups()
        if dollar:
            return "$"
        if broken:
            raise ValueError("expected `${VAR}` or `${VAR:-default}` after `$`; `$$` means `$`")
        value = environ.get(name, "")
        if value or (name in environ and default is None):
            return value
        if default is not None:
            return str(default)
        raise ValueError(
            f"expected the environment variable `{name}`, which is not set; "
            f"`${{{name}:-default}}` would give it a default"
        )

    return _USE.sub(fill, text)
