"""Inline the types that an Avro schema uses from other subjects of the schema registry.

A registry lists the subjects and versions that a schema refers to, and the schema uses their types
by name. Spark needs one complete schema. So each definition is inserted at the first use of its
name, in the order in which Avro's parser reads. Later uses keep the name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

REFERRED_MAX = 200  # schemas that a schema may refer to, directly or indirectly
DEPTH_MAX = 20
_PRIMITIVE = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAMED = ("record", "error", "enum", "fixed")


class Version(NamedTuple):
    """A version of a subject in the schema registry."""

    subject: str
    number: int

    def __str__(self) -> str:
        return f"{self.subject!r} version {self.number}"


class RegisteredSchema(NamedTuple):
    """A schema, and the versions of other subjects that it refers to."""

    schema: str
    references: tuple[Version, ...] = ()


Ask = Callable[[Version], RegisteredSchema | None]  # None: it does not exist


def without_references(registered: RegisteredSchema, fetch: Ask) -> str:
    """Return the schema with all referenced types inlined. Raise ValueError for bad references.

    A name without a definition is kept, and Avro's parser reports it later.
    """
    if not registered.references:
        return registered.schema
    referred: dict[Version, str] = {}
    _follow(registered.references, (), referred, fetch)
    types: dict[str, _Type] = {}
    try:
        for text in referred.values():
            _collect(json.loads(text), "", types)
        return json.dumps(_Expansion(types).of(json.loads(registered.schema), ""))
    except RecursionError as error:
        raise ValueError("its types are nested too deep") from error


def _follow(
    references: Iterable[Version],
    above: tuple[Version, ...],
    referred: dict[Version, str],
    fetch: Ask,
) -> None:
    """Add all referenced schemas to `referred`, each once.

    `above` is the path of references that leads here.
    """
    for each in references:
        if each in above:
            chain = " -> ".join(map(str, (*above[above.index(each) :], each)))
            raise ValueError(f"it has a cycle of references: {chain}")
        if each in referred:
            continue
        if len(above) == DEPTH_MAX or len(referred) == REFERRED_MAX:
            raise ValueError(
                f"it refers to more than {REFERRED_MAX} schemas, or its references are nested more "
                f"than {DEPTH_MAX} deep"
            )
        found = fetch(each)
        if found is None:
            raise ValueError(f"it refers to {each}, which does not exist")
        referred[each] = found.schema
        _follow(found.references, (*above, each), referred, fetch)


@dataclass(frozen=True, slots=True)
class _Type:
    """The definition of a named Avro type, and the namespace that encloses it."""

    node: dict[str, Any]
    around: str


def _collect(node: Any, namespace: str, types: dict[str, _Type]) -> None:
    """Add all named types that a schema defines, nested ones too, to `types`."""
    if isinstance(node, list):
        for each in node:
            _collect(each, namespace, types)
    elif isinstance(node, dict):
        if node.get("type") in _NAMED and isinstance(node.get("name"), str):
            full = _full_name(node, namespace)
            types.setdefault(full, _Type(node, namespace))
            namespace = _namespace(full)
        for inner in _inner(node):
            _collect(inner, namespace, types)


def _inner(node: dict[str, Any]) -> list[Any]:
    fields = node.get("fields")
    below = fields if isinstance(fields, list) else []
    types = [each.get("type") for each in below if isinstance(each, dict)]
    return [*types, *(node[key] for key in ("type", "items", "values") if key in node)]


def _full_name(node: dict[str, Any], namespace: str) -> str:
    name = str(node["name"])
    space = node.get("namespace", namespace)
    return f"{space}.{name}" if space and "." not in name else name


def _namespace(full: str) -> str:
    return full.rpartition(".")[0]


@dataclass(slots=True)
class _Expansion:
    types: dict[str, _Type]
    defined: set[str] = field(default_factory=set)

    def of(self, node: Any, namespace: str) -> Any:
        if isinstance(node, str):
            return self._named(node, namespace)
        if isinstance(node, list):
            return [self.of(each, namespace) for each in node]
        if not isinstance(node, dict):
            return node
        if node.get("type") in _NAMED and isinstance(node.get("name"), str):
            return self._definition(node, namespace)
        found = dict(node)
        for key in ("type", "items", "values"):
            if key in node:
                found[key] = self.of(node[key], namespace)
        return found

    def _named(self, name: str, namespace: str) -> Any:
        if name in _PRIMITIVE:
            return name
        within = f"{namespace}.{name}" if namespace and "." not in name else name
        for full in (within, name):  # the order in which Avro's parser searches
            if full in self.defined:
                return full
            if full in self.types:
                return self._definition(self.types[full].node, self.types[full].around)
        return name

    def _definition(self, node: dict[str, Any], namespace: str) -> Any:
        full = _full_name(node, namespace)
        if full in self.defined:
            return full
        self.defined.add(full)  # before its fields, which may use its type
        space = _namespace(full)
        found = {**node, "name": full.rpartition(".")[2], "namespace": space}
        if isinstance(node.get("fields"), list):
            found["fields"] = [
                {**each, "type": self.of(each["type"], space)}
                if isinstance(each, dict) and "type" in each
                else each
                for each in node["fields"]
            ]
        return found
