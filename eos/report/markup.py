"""Markup in which nothing that came from outside can be more than text.

Names of pipelines, topics and machines, and the words of errors, are whatever somebody wrote. A
plain `str` is always escaped; only what `tag` and `raw` made is markup. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from typing import Any

_VOID = frozenset({"meta", "input", "rect", "line", "path", "polyline", "br"})


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


Content = str | Markup | None | Iterable[Any]


def raw(text: str) -> Markup:
    """Of our own files only."""
    return Markup(text)


def tag(name: str, /, *content: Content, **attributes: object) -> Markup:
    """`class_` is written `class`, `aria_label` `aria-label`. An attribute that is None is left
    out, one that is True stands alone."""
    opened = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(
            f"<{name}{opened}>" if name in {"meta", "input", "br"} else f"<{name}{opened}/>"
        )
    return Markup(f"<{name}{opened}>{markup(content)}</{name}>")


def markup(content: Content) -> Markup:
    if content is None:
        return Markup("")
    if isinstance(content, Markup):
        return content
    if isinstance(content, str):
        return Markup(escape(content))
    return Markup("".join(markup(each) for each in content))


def data(value: object) -> Markup:
    """JSON for a script element, which nothing in it can end."""
    text = json.dumps(value, separators=(",", ":"))  # ASCII: other line ends are escaped, too
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
