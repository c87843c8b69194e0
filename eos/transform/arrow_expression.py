"""SQL expressions that Python tasks evaluate on Arrow columns, with the results of Spark.

`spark/catalyst.py` translates Spark's own expressions into these. Where Arrow would give another
result than Spark, or Spark raises an error, evaluation raises NeedsSparkError: then Spark has to
evaluate the rows.

Every Python worker imports this module, so it loads neither pyspark nor the configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.arrow import TYPES, array_of, binaries, never_null


class NeedsSparkError(Exception):
    """These rows can't be evaluated here. The text has the reason."""


@dataclass(frozen=True, slots=True)
class Expression:
    """An operation and its arguments. It can be pickled.

    `value` is the column's number, the literal's value, or the names of a struct's fields. `kind`
    is the Spark type of the result; empty for types that are only passed on.
    """

    operation: str
    arguments: tuple[Expression, ...] = ()
    value: Any = None
    kind: str = ""

    def evaluate(self, columns: Mapping[int, Any]) -> Any:
        """Return the result as an Arrow array; an Arrow scalar if all rows have the same."""
        if self.operation == "column":
            return columns[self.value]
        if self.operation == "literal":
            return scalar(self.value, self.kind)
        found = [each.evaluate(columns) for each in self.arguments]
        if self.operation in _TYPED:
            return _TYPED[self.operation](self, *found)
        return OPERATIONS[self.operation](*found)

    @property
    def columns(self) -> frozenset[int]:
        """Return the numbers of the columns that are read."""
        own = frozenset([self.value] if self.operation == "column" else [])
        return own.union(*(each.columns for each in self.arguments))


def scalar(value: Any, kind: str) -> Any:
    """Return an Arrow scalar. `pyarrow.scalar` would import pandas (`eos/arrow.py`)."""
    if value is None:
        return pa.nulls(1, TYPES.get(kind, pa.null()))[0]
    if kind == "double":
        data = pa.py_buffer(np.array([value], np.float64))
        return pa.Array.from_buffers(pa.float64(), 1, [None, data], null_count=0)[0]
    if kind == "string":
        return binaries([value.encode()]).view(pa.string())[0]
    return array_of([value], TYPES[kind])[0]


def is_true(condition: Any) -> Any:
    """Return false in place of null, as SQL does for a condition."""
    return pc.coalesce(condition, scalar(False, "boolean"))


def _compared(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a comparison. Spark has an order in which NaN is equal to itself and the largest
    number; Arrow has not."""

    def compared(left: Any, right: Any) -> Any:
        for each in (left, right):
            if pa.types.is_floating(each.type) and _any(pc.is_nan(each)):
                raise NeedsSparkError("it compares NaN")
        return function(left, right)

    return compared


def _any(found: Any) -> bool:
    values = found if isinstance(found, pa.Scalar) else pc.any(found)
    return bool(values.as_py())


def _divided(left: Any, right: Any) -> Any:
    if _any(pc.equal(right, scalar(0.0, "double"))):
        raise NeedsSparkError("it divides by zero")
    return pc.divide(left, right)


def _chosen(condition: Any, then: Any, otherwise: Any) -> Any:
    then, otherwise = _of_one_type(then, otherwise)
    return pc.if_else(is_true(condition), then, otherwise)


def _of_one_type(left: Any, right: Any) -> tuple[Any, Any]:
    """Return both values, a null without a type as one of the other's type."""
    if pa.types.is_null(left.type):
        return pa.nulls(1, right.type)[0], right
    if pa.types.is_null(right.type):
        return left, pa.nulls(1, left.type)[0]
    return left, right


def _same(left: Any, right: Any) -> Any:
    """Return SQL's `<=>`: true for two nulls, and never null."""
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(both_null, is_true(_compared(pc.equal)(left, right)))


def _joined(*texts: Any) -> Any:
    nothing = binaries([b""])[0] if texts[0].type == pa.binary() else scalar("", "string")
    return pc.binary_join_element_wise(*texts, nothing, null_handling="emit_null")


def _cast(expression: Expression, value: Any) -> Any:
    """Cast a value. A cast from bytes to text raises ArrowInvalid if they are no UTF-8."""
    return value.cast(TYPES[expression.kind])


def _struct(expression: Expression, *values: Any) -> Any:
    rows = next((len(each) for each in values if not isinstance(each, pa.Scalar)), None)
    if rows is None:
        raise NeedsSparkError("an object has the same fields in all records")
    arrays = [as_array(each, rows) for each in values]
    return pa.StructArray.from_arrays(arrays, names=list(expression.value))


def as_array(value: Any, rows: int) -> Any:
    return pa.repeat(value, rows) if isinstance(value, pa.Scalar) else value


# The operations by name. A name with a type is for operands of this type.
OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "and": pc.and_kleene,
    "or": pc.or_kleene,
    "not": pc.invert,
    "=": _compared(pc.equal),
    "<": _compared(pc.less),
    "<=": _compared(pc.less_equal),
    ">": _compared(pc.greater),
    ">=": _compared(pc.greater_equal),
    "<=>": _same,
    "is null": pc.is_null,
    "is not null": pc.is_valid,
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "negative": pc.negate_checked,
    "+ double": pc.add,
    "- double": pc.subtract,
    "* double": pc.multiply,
    "/ double": _divided,
    "negative double": pc.negate,
    "<<": pc.shift_left,
    "|": pc.bit_wise_or,
    "if": _chosen,
    "coalesce": pc.coalesce,
    "concat": _joined,
    "never null": never_null,
}
_TYPED: Mapping[str, Callable[..., Any]] = {"cast": _cast, "struct": _struct}
