"""HTML elements built from Python, with all outside text escaped.

Names of pipelines, topics and machines, and texts of errors, may contain HTML. A plain `str` is
always escaped; only results of `tag` and `raw` are inserted as HTML.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from typing import Any

_VOID = frozenset({"meta", "input", "rect", "line", "path", "polyline", "br"})


class Markup(str):
    """HTML text, which is inserted without escaping."""

    __slots__ = ()


Content = str | Markup | None | Iterable[Any]


def raw(text: str) -> Markup:
    """Return a text as HTML without escaping. Use it for the project's own files only."""
    return Markup(text)


def tag(name: str, /, *content: Content, **attributes: object) -> Markup:
    """Return an HTML element with attributes and escaped content.

    Attribute `class_` becomes `class`, and `aria_label` becomes `aria-label`. An attribute whose
    value is None is left out; one whose value is True is written without a value.
    """
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
    """Return a value as JSON for a `<script>` element, escaped so that it can't end the element."""
    text = json.dumps(value, separators=(",", ":"))  # ASCII: also escapes U+2028, a line end in JS
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
