"""The page's templates, which escape each value that is not marked as the project's own text.

Names of pipelines, topics and machines, and texts of errors, may contain HTML.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def render(name: str, **values: object) -> str:
    """Return a template of this package with these values. Raise for a value that is missing."""
    return _environment().get_template(name).render(values)


@cache
def own_text(name: str) -> Markup:
    """Return a file of this package as text that templates insert without escaping."""
    return Markup(files("eos.report").joinpath(name).read_text(encoding="utf-8"))  # noqa: S704


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("eos.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return made
