"""The generator of docs/reference.md, which lists all keys of a pipeline file and of a profile."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from eos.config.model import PipelineFile, ProfileFile
from eos.config.problems import PATTERNS

Schema = Mapping[str, Any]
_HEAD = """\
# Reference

All keys of a pipeline file and of a profile. `eos schema --markdown` generates this page from the
models that validate both files. `docs/pipelines.md` and the other guides explain the keys, and the
defaults that are not a single value.
"""


def reference() -> str:
    parts = [_HEAD]
    for title, model in (("A pipeline file", PipelineFile), ("A profile", ProfileFile)):
        parts += [f"## {title}\n", *_Pages(model.model_json_schema()).sections()]
    return "\n".join(parts)


class _Pages:
    """Sections of the reference page, one for each mapping of a file.

    A mapping that may be at several places of a file has its section at the first one. The other
    places refer to that section.
    """

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._places: dict[str, str] = {}
        self._left: list[tuple[str, Schema]] = []

    def sections(self) -> Iterator[str]:
        yield self._section("", self._root)
        while self._left:
            place, schema = self._left.pop(0)
            yield f"### `{place}`\n"
            yield self._section(place, schema)

    def _section(self, place: str, schema: Schema) -> str:
        about = schema.get("description")
        found = [
            *([about, ""] if about else []),
            "| key | value | default |",
            "| --- | --- | --- |",
        ]
        first = len(self._left)
        for key, each in schema["properties"].items():
            at = f"{place}.{key}" if place else key
            cells = [f"`{key}`", self._kind(each, at), _default(key, each, schema)]
            found.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
        # Sections of nested mappings precede those of later keys.
        self._left = self._left[first:] + self._left[:first]
        return "\n".join([*found, ""])

    def _kind(self, schema: Schema, place: str) -> str:
        if "$ref" in schema:
            return self._mapping(schema["$ref"].rpartition("/")[2], place)
        forms = schema.get("anyOf") or schema.get("oneOf")
        if forms:
            kinds = [self._kind(each, place) for each in forms if each.get("type") != "null"]
            return " or ".join(dict.fromkeys(kinds))
        if "const" in schema:
            return _literal(schema["const"])
        if "enum" in schema:
            return ", ".join(f"`{each}`" for each in schema["enum"])
        return self._plain(schema, place)

    def _plain(self, schema: Schema, place: str) -> str:
        kind = schema.get("type")
        if kind == "array":
            return f"a list, each {self._kind(schema.get('items', {}), place)}"
        if kind == "object":
            values = [
                schema.get("additionalProperties"),
                *schema.get("patternProperties", {}).values(),
            ]
            inner = next((each for each in values if isinstance(each, dict)), {})
            return f"names, each with {self._kind(inner, place)}"
        if kind in ("integer", "number"):
            bounds = [f"{label} {schema[key]:,}" for key, label in _BOUNDS if key in schema]
            return " ".join(["a whole number" if kind == "integer" else "a number", *bounds])
        if kind == "string":
            like = schema.get("examples")
            return PATTERNS.get(str(schema.get("pattern")), "a text") + (
                f" such as `{like[0]}`" if like else ""
            )
        return {"boolean": "`true` or `false`"}.get(str(kind), "any value")

    def _mapping(self, name: str, place: str) -> str:
        if name not in self._places:
            reserved = sum(each.split(" ")[0] == place for each in self._places.values())
            self._places[name] = place = f"{place} ({reserved + 1})" if reserved else place
            schema = self._root["$defs"][name]
            if "properties" not in schema:
                return self._kind(schema, place)
            self._left.append((place, schema))
        return f"a mapping: `{self._places[name]}`"


_BOUNDS = (("minimum", "from"), ("maximum", "to"))


def _default(key: str, schema: Schema, parent: Schema) -> str:
    if key in parent.get("required", ()):
        return "(required)"
    value = schema.get("default")
    return "" if value in (None, [], {}) else _literal(value)


def _literal(value: Any) -> str:
    """Return a value as it is in a file: a text without quotes."""
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"
