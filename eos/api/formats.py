"""The formats of keys and values, for sources and sinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Format:
    """A format, as a pipeline file declares it: a word such as `json`, or a mapping."""

    declared: str | Mapping[str, Any]


# In a sink, a text is an SQL expression over the columns of the last step, such as a column's name.
AnyFormat: TypeAlias = "str | Mapping[str, Any] | Format"


def json(
    schema: str | None = None,
    *,
    columns: Sequence[str] = (),
    subject: str | None = None,
    column: str | None = None,
) -> Format:
    """JSON objects.

    In a source, `schema` has the columns in Spark's notation, such as `"id BIGINT, name STRING"`,
    and `column` puts all of them into one column of that name. In a sink, an object has all columns
    of the row except Kafka's own, or those that `columns` names. With `subject`, the id of a schema
    in the registry is before each object.
    """
    if schema is not None:
        return Format(_named({"json": schema}, subject, column))
    if columns or subject:
        return Format(_named({"json": list(columns)}, subject, None))
    return Format("json")


def string() -> Format:
    """Text in UTF-8: the column `key` or `value` itself."""
    return Format("string")


def avro(
    schema: str | None = None,
    *,
    subject: str | None = None,
    file: str | None = None,
    register: bool = False,
    column: str | None = None,
) -> Format:
    """Avro records: a schema as text, in a file, or in the schema registry under a subject.

    `register` lets a sink register the file's schema there.
    """
    if schema is not None:
        return Format(_named({"avro": schema}, None, column))
    given = {"file": file, "subject": subject, "register": register or None}
    inner = {name: each for name, each in given.items() if each is not None}
    return Format(_named({"avro": inner}, None, column))


def protobuf_message(
    message: str, *, file: str, subject: str | None = None, column: str | None = None
) -> Format:
    """Protobuf messages of the type `message`, which the file declares."""
    inner = {"file": file, "message": message}
    if subject is not None:
        inner["subject"] = subject
    return Format(_named({"protobuf": inner}, None, column))


def declared(given: AnyFormat) -> str | dict[str, Any]:
    """Return the format as a pipeline file has it."""
    found = given.declared if isinstance(given, Format) else given
    return found if isinstance(found, str) else dict(found)


def _named(found: dict[str, Any], subject: str | None, column: str | None) -> dict[str, Any]:
    if subject is not None:
        found["subject"] = subject
    if column is not None:
        found["as"] = column
    return found
