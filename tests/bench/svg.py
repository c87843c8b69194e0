"""An SVG that stands by itself in a page of docs, in light and in dark, in the report's colours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from eos.report.rendering import own_text

_COLOURS = str(own_text("page.css")).split("* {")[0]
_STYLE = (
    _COLOURS
    + """
text { font: 13px system-ui, "Segoe UI", "Liberation Sans", sans-serif; fill: var(--soft); }
.title { font-size: 15px; font-weight: 600; fill: var(--ink); }
.ground { fill: var(--card); }
.grid { stroke: var(--line); }
.one { --shade: var(--committed); }
.two { --shade: var(--redone); }
.three { --shade: var(--written); }
.curve, .spread { stroke: var(--shade); fill: none; stroke-width: 2; }
.spread { stroke-width: 1.5; }
.point { fill: var(--shade); }
.range { stroke: var(--ink); stroke-width: 1.5; }
"""
)
_PICTURE = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{ width }} {{ height }}" width="{{ width }}" \
height="{{ height }}" role="img"><title>{{ about }}</title><style>{{ style }}</style>\
<rect class="ground" width="{{ width }}" height="{{ height }}" rx="8"/>
{%- for each in shapes %}<{{ each.name }}{{ each.attributes|xmlattr }}>\
{% if each.about %}<title>{{ each.about }}</title>{% endif %}{{ each.text }}</{{ each.name }}>
{%- endfor %}</svg>"""


@dataclass(frozen=True, slots=True)
class Shape:
    """An element of the picture. `about` is shown at the pointer."""

    name: str
    attributes: Mapping[str, object]
    text: str
    about: str


def shape(name: str, text: str = "", about: str = "", **attributes: object) -> Shape:
    """Attribute `class_` becomes `class`, and `text_anchor` becomes `text-anchor`."""
    named = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    return Shape(name, named, text, about)


def picture(about: str, width: int, height: int, shapes: Iterable[Shape]) -> str:
    made = Environment(autoescape=True, undefined=StrictUndefined).from_string(_PICTURE)
    return made.render(
        about=about, width=width, height=height, style=Markup(_STYLE), shapes=list(shapes)
    )
