"""Translate Spark's expressions into expressions on Arrow columns.

Only functions are translated whose results in Arrow are the same. Others raise UntranslatableError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eos.arrow import TYPES
from eos.spark.spark_4_0 import shows_collations
from eos.transform.arrow_expression import Expression

# Spark's names of types in a plan's JSON.
_KINDS = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    **{name: name for name in ("boolean", "double", "string", "binary", "void")},
}
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_COMPARABLE = (*_WHOLE, "double", "string", "binary", "boolean")
_COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_LOGIC = {
    "And": "and",
    "Or": "or",
    "Not": "not",
    "IsNull": "is null",
    "IsNotNull": "is not null",
}
_ARITHMETIC = {"Add": "+", "Subtract": "-", "Multiply": "*", "UnaryMinus": "negative"}
_BITS = {"ShiftLeft": "<<", "BitwiseOr": "|"}
_IN_MAX = 32  # values of an IN; it becomes as many comparisons

Parts = tuple[Expression, ...]


class UntranslatableError(Exception):
    """Only Spark can run the steps. The text has the reason."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of Spark's plan, or of an expression in it, with its inputs."""

    name: str
    fields: Mapping[str, Any]
    inputs: tuple[Node, ...]


def tree(flat: Sequence[Mapping[str, Any]]) -> Node:
    """Return the tree of nodes that Spark lists with each node before its inputs."""
    left = iter(flat)

    def take() -> Node:
        fields = next(left)
        name = fields["class"].rpartition(".")[2]
        return Node(name, fields, tuple(take() for _ in range(fields["num-children"])))

    return take()


def number(node: Node) -> int:
    """Return Spark's number of a column."""
    if node.name not in ("Alias", "AttributeReference"):
        raise UntranslatableError(f"Python tasks have no {node.name} of Spark")
    return int(node.fields["exprId"]["id"])


def _kind(fields: Mapping[str, Any]) -> str:
    """Return the Spark type; empty for a type that expressions can't use."""
    kind = fields["dataType"]
    return _KINDS.get(kind, "") if isinstance(kind, str) else ""


def translate(node: Node) -> Expression:
    """Return a node of Spark's expression as an expression for Arrow columns.

    Raise UntranslatableError if the results could differ."""
    if node.name in _NODES:
        return _NODES[node.name](node)
    if node.name == "Coalesce" and _is_empty_list(node.inputs[-1]):
        return _never_null(node)
    if node.name not in _FUNCTIONS:
        raise UntranslatableError(f"Python tasks have no {node.name} of Spark")
    return _FUNCTIONS[node.name](node.name, tuple(map(translate, node.inputs)))


def _inner(node: Node) -> Expression:
    return translate(node.inputs[0])


def _column(node: Node) -> Expression:
    return Expression("column", value=number(node), kind=_kind(node.fields))


def _with(node: Node) -> Expression:
    return translate(_substituted(node))


def _substituted(node: Node) -> Node:
    """Return a With, such as that of a BETWEEN, with its definition in place of each reference."""
    result, *definitions = node.inputs
    if len(definitions) > 1 or _has_with(result):
        raise UntranslatableError("Python tasks have no nested BETWEEN")
    (defined,) = definitions[0].inputs

    def substituted(each: Node) -> Node:
        if each.name == "CommonExpressionRef":
            return defined
        return replace(each, inputs=tuple(map(substituted, each.inputs)))

    return substituted(result)


def _has_with(node: Node) -> bool:
    return node.name == "With" or any(map(_has_with, node.inputs))


def _literal(node: Node) -> Expression:
    kind, text = node.fields["dataType"], node.fields["value"]
    known = _KINDS.get(kind, "") if isinstance(kind, str) else ""
    if text is None:
        return Expression("literal", kind=known or "void")
    if known in _WHOLE:
        return Expression("literal", value=int(text), kind=known)
    if known == "double":
        return Expression("literal", value=float(text), kind=known)
    if known == "boolean":
        return Expression("literal", value=text == "true", kind=known)
    if known == "string":
        return Expression("literal", value=text, kind=known)
    raise UntranslatableError(f"Python tasks have no constants of type {kind}")


def _cast(node: Node) -> Expression:
    kind = _kind(node.fields)
    (source,) = node.inputs
    if kind == "double" and source.name == "Literal" and _is_decimal(source.fields):
        return Expression("literal", value=float(source.fields["value"]), kind=kind)
    value = translate(source)
    if value.operation == "literal" and value.value is None:
        return Expression("literal", kind=kind or "void")
    if value.kind == kind == "string" and not shows_collations():
        raise UntranslatableError("a cast to STRING may be one to another collation")
    if value.kind == kind and kind:
        return value
    widens = value.kind in _WHOLE and kind in (*_WHOLE, "double")
    if widens and (kind == "double" or _WHOLE.index(kind) >= _WHOLE.index(value.kind)):
        return Expression("cast", (value,), kind=kind)
    if (value.kind, kind) in {("string", "binary"), ("binary", "string"), ("boolean", "string")}:
        return Expression("cast", (value,), kind=kind)
    if value.kind in _WHOLE and kind == "string":
        return Expression("cast", (value,), kind=kind)
    raise UntranslatableError(f"Python tasks have no cast to {kind or 'this type'}")


def _is_decimal(fields: Mapping[str, Any]) -> bool:
    return str(fields["dataType"]).startswith("decimal") and fields["value"] is not None


def _is_empty_list(node: Node) -> bool:
    """Return whether an expression is SQL's `array()`, or a cast of it."""
    if node.name == "Cast":
        return _is_empty_list(node.inputs[0])
    return node.name == "CreateArray" and not node.inputs


def _never_null(node: Node) -> Expression:
    value = translate(node.inputs[0])
    if len(node.inputs) > 2 or value.operation != "column" or value.kind:
        raise UntranslatableError("Python tasks have no Coalesce of lists")
    return Expression("never null", (value,))


def _logic(name: str, parts: Parts) -> Expression:
    return Expression(_LOGIC[name], parts, kind="boolean")


def _comparison(name: str, parts: Parts) -> Expression:
    if _one_kind(name, parts) not in _COMPARABLE:
        raise UntranslatableError(f"Python tasks have no {name} of this type")
    return Expression(_COMPARISONS[name], parts, kind="boolean")


def _in(name: str, parts: Parts) -> Expression:
    value, *listed = parts
    if len(listed) > _IN_MAX:
        raise UntranslatableError(f"Python tasks have no {name} of more than {_IN_MAX} values")
    result = _comparison("EqualTo", (value, listed[0]))
    for each in listed[1:]:
        same = _comparison("EqualTo", (value, each))
        result = Expression("or", (result, same), kind="boolean")
    return result


def _arithmetic(name: str, parts: Parts) -> Expression:
    kind = _one_kind(name, parts)
    if kind == "double":
        operation = "/" if name == "Divide" else _ARITHMETIC[name]
        return Expression(f"{operation} double", parts, kind=kind)
    if kind in _WHOLE and name in _ARITHMETIC:
        return Expression(_ARITHMETIC[name], parts, kind=kind)
    raise UntranslatableError(f"Python tasks have no {name} of this type")


def _bits(name: str, parts: Parts) -> Expression:
    first, second = parts
    if first.kind != "bigint" or second.kind not in _WHOLE:
        raise UntranslatableError(f"Python tasks have no {name} of this type")
    if name == "ShiftLeft" and not _is_shift(second):
        raise UntranslatableError("Python tasks shift by constants from 0 to 62 only")
    if second.kind != "bigint":
        second = Expression("cast", (second,), kind="bigint")
    return Expression(_BITS[name], (first, second), kind="bigint")


def _is_shift(bits: Expression) -> bool:
    """Return whether Arrow shifts by so many bits as Spark does, which uses the last six bits.

    By 63 or more, Arrow does not shift at all."""
    while bits.operation == "cast":
        (bits,) = bits.arguments
    return bits.operation == "literal" and bits.value is not None and 0 <= bits.value < 63


def _if(name: str, parts: Parts) -> Expression:
    return Expression("if", parts, kind=_one_kind(name, parts[1:]))


def _coalesce(name: str, parts: Parts) -> Expression:
    return Expression("coalesce", parts, kind=_one_kind(name, parts))


def _concat(name: str, parts: Parts) -> Expression:
    kind = _one_kind(name, parts)
    if kind not in ("string", "binary"):
        raise UntranslatableError(f"Python tasks have no {name} of this type")
    return Expression("concat", parts, kind=kind)


def _case(name: str, parts: Parts) -> Expression:
    """Return CASE as nested IFs. `parts` are pairs of condition and value, and ELSE's value."""
    whole = len(parts) // 2 * 2
    otherwise = parts[-1] if len(parts) > whole else Expression("literal", kind="void")
    for at in range(whole - 2, -1, -2):
        otherwise = _if(name, (parts[at], parts[at + 1], otherwise))
    return otherwise


def _struct(_name: str, parts: Parts) -> Expression:
    names, values = parts[::2], parts[1::2]
    if not all(each.kind in TYPES for each in values):
        raise UntranslatableError("an object has a field of a type that only Spark writes")
    if any(each.operation != "literal" for each in names):
        raise UntranslatableError("the name of a field is computed")
    names_of = tuple(each.value for each in names)
    return Expression("struct", values, names_of, ":".join(["struct", *(v.kind for v in values)]))


def _one_kind(name: str, parts: Parts) -> str:
    """Return the type of all parts. A null may be of any type."""
    kinds = {each.kind for each in parts} - {"void"}
    if len(kinds) != 1:
        raise UntranslatableError(f"Python tasks have no {name} of these types")
    return kinds.pop()


_NODES: Mapping[str, Callable[[Node], Expression]] = {
    "Alias": _inner,
    "AttributeReference": _column,
    "Between": _inner,
    "Cast": _cast,
    "Literal": _literal,
    "With": _with,
}
_FUNCTIONS: Mapping[str, Callable[[str, Parts], Expression]] = {
    **dict.fromkeys(_LOGIC, _logic),
    **dict.fromkeys(_COMPARISONS, _comparison),
    **dict.fromkeys([*_ARITHMETIC, "Divide"], _arithmetic),
    **dict.fromkeys(_BITS, _bits),
    "CaseWhen": _case,
    "Coalesce": _coalesce,
    "Concat": _concat,
    "CreateNamedStruct": _struct,
    "If": _if,
    "In": _in,
}
