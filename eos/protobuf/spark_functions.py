"""Spark functions that decode and encode Protobuf columns, as Arrow functions on executors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from eos.errors import RecordRefusedError, TransformError, UsageError
from eos.protobuf.arrays import TooLargeError, binaries
from eos.protobuf.decoder import read
from eos.protobuf.encoder import UnfitError, write
from eos.protobuf.fields import Field, Fields, Label, ddl
from eos.protobuf.frames import frames, unframed
from eos.protobuf.message import Message
from eos.seal import of_this_process

if TYPE_CHECKING:
    from pyspark.sql import Column

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
# The Spark column types that each field type accepts. Values outside of the field's range are
# rejected later, row by row.
_TAKES = {
    "INT": _INTEGERS,
    "BIGINT": _INTEGERS,
    "DECIMAL(20,0)": _INTEGERS,
    "FLOAT": ("float",),
    "DOUBLE": ("float", "double", "tinyint", "smallint", "int"),
    "BOOLEAN": ("boolean",),
    "STRING": ("string",),
    "BINARY": ("binary",),
    "TIMESTAMP": ("timestamp",),
}


def record(message: Message, column: str, framed_by: Mapping[int, str] | None = None) -> Column:
    """Return a column's bytes as a struct of the message's fields; null if malformed or null.

    `framed_by` has the registered schemas by id, if each message comes after the id of one. It is
    None if nothing is before the messages.
    """

    seal = of_this_process()  # the driver's key, with which tasks sign their errors
    known = None if framed_by is None else frames(message, framed_by)

    def from_protobuf(values: pa.Array) -> pa.Array:
        try:
            if known is not None:
                values = binaries(unframed(values.to_pylist(), known))
            return read(message, values)
        except TooLargeError as error:
            raise seal.crossing(_too_large(message, f"the {column}", len(values), error)) from None

    return _called(from_protobuf, ddl(message.fields), column)


def written(message: Message, place: str, column: Column | str, at: Column, topic: str) -> Column:
    """Return a column that has a struct of the message's fields encoded as bytes.

    Errors name the row's source record. `at` is its position (`AT` of `encode/record_errors.py`),
    or null. `topic` is the source topic if there is only one.
    """
    seal = of_this_process()

    def to_protobuf(values: pa.Array, ats: pa.Array) -> pa.Array:
        try:
            return write(message, values)
        except UnfitError as error:
            refused = _refused(message, place, error, ats[error.row].as_py(), topic)
            raise seal.crossing(refused) from None
        except TooLargeError as error:
            raise seal.crossing(_too_large(message, place, len(values), error)) from None

    return _called(to_protobuf, "BINARY", column, at)


def _called(function: Callable[..., Any], returns: str, *columns: Column | str) -> Column:
    import pyspark

    try:
        from pyspark.sql.pandas.functions import arrow_udf
    except ImportError as error:
        raise UsageError(
            "protobuf_spark_version",
            f"Protobuf needs Spark 4.1 or later, and this is {pyspark.__version__}",
            hint="install a later Spark (docs/install.md), or use JSON or Avro",
        ) from error

    make: Any = arrow_udf  # PySpark's own types lack it
    result: Column = make(function, returns)(*columns)
    return result


def _refused(
    message: Message, place: str, error: UnfitError, at: int | None, topic: str
) -> RecordRefusedError:
    row, fields = "a row", {}
    if at is not None:
        offset, partition = at >> 16, at & 0xFFFF
        row = f"the row made from {topic or 'the source'}-{partition} at offset {offset}"
        fields = {"source_topic": topic, "source_partition": partition, "source_offset": offset}
    in_field = f" in field `{error.path}`" if error.path else ""
    name, reason = message.name, error.reason
    return RecordRefusedError(
        "protobuf_value_invalid",
        f"{place}: {row} does not fit the message `{name}`{in_field}: {reason}",
        hint="correct the value in a step, or drop such rows by `where`, a rule of `expect` or a "
        "step",
        **fields,
    )


def _too_large(message: Message, place: str, count: int, error: TooLargeError) -> TransformError:
    return TransformError(
        "protobuf_batch_too_large",
        f"{place}: {count} messages `{message.name}` are too large for one Arrow batch: {error}",
        hint="lower `spark.sql.execution.arrow.maxRecordsPerBatch` in the profile's `spark.conf`",
    )


def require_fits(message: Message, place: str, columns: dict[str, Any]) -> None:
    """Raise TransformError if the columns, given by name and type, do not fit the message.

    Each field needs a column, so that a misspelt name is reported.
    """
    _require_struct(message.name, place, message.fields, columns, "")


def _require_struct(
    name: str, place: str, fields: Fields, columns: dict[str, Any], path: str
) -> None:
    lower = {each.lower(): kind for each, kind in columns.items()}
    for field in fields:
        if field.name.lower() not in lower:
            column, existing = field.name, ", ".join(columns)
            raise TransformError(
                "protobuf_column_missing",
                f"{place} needs column `{path}{column}`, a field of `{name}`; there are only "
                f"{existing}",
                hint="add the column in the last transform; a null leaves the field unset",
            )
        _require(name, place, field, lower[field.name.lower()], f"{path}{field.name}")


def _require(name: str, place: str, field: Field, kind: Any, path: str) -> None:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if kind.simpleString() == "void":  # a column of nulls leaves the field unset
        return
    inner, is_fine = kind, True
    if field.label is Label.LIST:
        is_fine = isinstance(kind, ArrayType)
        inner = kind.elementType if is_fine else None
    elif field.key is not None:
        is_fine = isinstance(kind, MapType) and _takes(field.key, kind.keyType)
        inner = kind.valueType if is_fine else None
    if is_fine and field.fields and isinstance(inner, StructType):
        columns = {each.name: each.dataType for each in inner.fields}
        known = {each.name.lower() for each in field.fields}
        strange = next((each for each in columns if each.lower() not in known), None)
        if strange is not None:
            existing = ", ".join(f"`{each.name}`" for each in field.fields)
            raise TransformError(
                "protobuf_column_unknown",
                f"{place}: column `{path}.{strange}` is no field of `{name}`; its fields are "
                f"{existing}",
                hint="remove it from the struct in the last step",
            )
        _require_struct(name, place, field.fields, columns, f"{path}.")
        return
    if not is_fine or not _takes(field, inner):
        column_type, field_type = kind.simpleString(), field.sql_type
        raise TransformError(
            "protobuf_column_type_invalid",
            f"{place}: column `{path}` has the type {column_type}, but the field of `{name}` "
            f"needs {field_type}",
            hint="cast the column in the last step",
        )


def _takes(field: Field, kind: Any) -> bool:
    from pyspark.sql.types import DayTimeIntervalType, DecimalType

    if isinstance(kind, DecimalType):
        return field.bounds is not None and kind.scale == 0
    if isinstance(kind, DayTimeIntervalType):
        return field.sql == "INTERVAL DAY TO SECOND"
    word = kind.simpleString().partition(" ")[0]  # the type of a text may have a collation
    return word == "void" or word in _TAKES.get(field.sql, ())
