"""SQL expressions that parse keys and values, select their columns, and find malformed ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from eos.formats import debezium
from eos.formats.json_schema import left_of, parsed_of
from eos.formats.schema_ids import Writers, id_in, is_unknown, parse_by_id, record_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eos.protobuf.message import Message

PARSED = {"key": "__eos_key", "value": "__eos_value"}
# Formats that a schema registry has, with their names in error messages.
SCHEMA_KINDS = {"avro": "Avro", "json": "JSON", "protobuf": "Protobuf"}
_RAW = "__eos_raw"  # in a parsed struct: the text, if a part was unreadable
_IS_READ = "__eos_is_read"  # in a parsed Avro struct: true if it was readable


@dataclass(frozen=True, slots=True)
class Format:
    """The format of a source's keys or values.

    `columns` are the names of the schema's columns, `required` those that a JSON schema declares
    NOT NULL.
    """

    kind: Literal["binary", "string", "json", "avro", "protobuf"] = "binary"
    schema: str = ""
    columns: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    column: str = ""  # one column for all as a struct; empty: separate columns
    subject: str = ""  # in the schema registry, if records carry a schema id
    writers: Writers = field(default_factory=lambda: Writers({}), compare=False)
    message: Message | None = None  # the Protobuf message
    is_event: bool = False  # a change event of Debezium, in JSON or Avro
    is_parsed: bool = False  # the rows have columns of `formats/json_columns.py`

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns that parsing adds to the rows."""
        return (self.column,) if self.column else self.columns

    @property
    def written_by(self) -> Mapping[int, str]:
        """Return the writers' schemas by id; without a registry, 0 has the schema itself.

        JSON and Protobuf are read by the pipeline's own schema, whatever the writer's is."""
        return self.writers.known or {0: self.schema}

    @property
    def is_sparks(self) -> bool:
        """Return whether Spark itself has a function that parses this format: JSON and Avro."""
        return self.kind in ("json", "avro")

    @property
    def is_elsewhere(self) -> bool:
        """Return whether the schema is only in the registry and was not fetched yet."""
        return self.kind == "avro" and not self.schema


def in_frame(frame: DataFrame, formats: Mapping[str, Format]) -> dict[str, Format]:
    """Return the formats with `is_parsed` set if tasks have parsed the key or value already."""
    columns = set(frame.columns)
    return {n: replace(each, is_parsed=left_of(n) in columns) for n, each in formats.items()}


def with_records(frame: DataFrame, formats: Mapping[str, Format]) -> DataFrame:
    """Return the rows with the parsed key and value added, each as a struct column."""
    of_spark = [parsed(name, each) for name, each in formats.items() if each.is_sparks]
    result = frame.selectExpr("*", *of_spark)
    for name, each in formats.items():
        if each.message is not None:
            from eos.protobuf.spark_functions import record

            framed_by = each.written_by if each.subject else None
            result = result.withColumn(PARSED[name], record(each.message, name, framed_by))
    return result


def parsed(name: str, each: Format) -> str:
    if each.subject and each.kind == "avro":
        result = parse_by_id(
            name, each.written_by, lambda at, written: _from_avro(at, written, each.schema)
        )
        return f"{result} AS {PARSED[name]}"
    if each.kind == "avro":
        return f"{_from_avro(name, each.schema, each.schema)} AS {PARSED[name]}"
    # A time without a zone is UTC on every machine. FAILFAST would not show which record was
    # malformed.
    options = f"map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{_RAW}', 'timeZone', 'UTC')"
    schema = literal(f"{each.schema}, {_RAW} STRING")
    text = f"CAST({_json_in(name, each)} AS STRING)"
    return f"from_json({text}, {schema}, {options}) AS {PARSED[name]}"


def _json_in(name: str, each: Format) -> str:
    """Return SQL for the bytes of the JSON object; null if they are after an unknown schema id."""
    if not each.subject:
        return left_of(name) if each.is_parsed else name
    listed = ", ".join(map(str, each.written_by))
    return f"IF({id_in(name)} IN ({listed}), {record_in(name)}, NULL)"


def _from_avro(name: str, written: str, reader: str) -> str:
    # Spark returns nulls for a malformed record, but a valid record may have only nulls, too. So
    # add a field with a default to the reader's schema: it is null only if nothing was read. The
    # schema is a quoted literal: Spark requires a constant, and a schema may have any character.
    record = json.loads(reader)
    record["fields"].append({"name": _IS_READ, "type": "boolean", "default": True})
    options = f"map('mode', 'PERMISSIVE', 'avroSchema', {literal(json.dumps(record))})"
    return f"from_avro({name}, {literal(written)}, {options})"


def wrong_with(name: str, each: Format) -> list[tuple[str, str]]:
    """Return SQL conditions that are true for a malformed key or value, each with an SQL message.

    A null is valid: it may be a tombstone.
    """
    if each.kind == "binary":
        return []
    if each.kind == "avro":
        when = f"{name} IS NOT NULL AND {PARSED[name]}.{_IS_READ} IS NULL"
        malformed = [(when, literal(f"the {name} is no Avro record of its schema"))]
        malformed += [
            (f"{name} IS NOT NULL AND {condition}", literal(text))
            for condition, text in _no_event(name, each)
        ]
        return _wrong_id(name, each) + malformed if each.subject else malformed
    if each.message is not None:
        when = f"{name} IS NOT NULL AND {PARSED[name]} IS NULL"
        text = literal(f"the {name} is no Protobuf message `{each.message.name}`")
        return [*(_wrong_id(name, each) if each.subject else ()), (when, text)]
    text = f"CAST({_json_in(name, each)} AS STRING)"
    malformed = [(f"NOT is_valid_utf8({text})", f"the {name} is no UTF-8 text")]
    if each.kind == "json":
        record = PARSED[name]
        malformed.append((f"{record} IS NULL", f"the {name} is no JSON object"))
        malformed.append((f"{record}.{_RAW} IS NOT NULL", f"the {name} does not fit its schema"))
        malformed += _no_event(name, each)
        for column in () if each.is_event else each.required:
            absent = f"the {name} lacks the column `{column}`, which is NOT NULL"
            malformed.append((f"{record}.{quoted(column)} IS NULL", absent))
    framing = _wrong_id(name, each) if each.subject else []
    # If tasks have parsed the record, it has all required columns.
    source = left_of(name) if each.is_parsed else name
    return framing + [(f"{source} IS NOT NULL AND {when}", literal(of)) for when, of in malformed]


def _no_event(name: str, each: Format) -> list[tuple[str, str]]:
    if not each.is_event:
        return []
    required = [quoted(column) for column in each.required]
    return debezium.wrong_with(PARSED[name], name, required, is_json=each.kind == "json")


def _wrong_id(name: str, each: Format) -> list[tuple[str, str]]:
    found = id_in(name)
    kind = SCHEMA_KINDS[each.kind]
    text = f" before the {name} has no {kind} schema in the registry"
    unknown = f"concat('the schema id ', {found}, {literal(text)})"
    return [
        (
            f"{name} IS NOT NULL AND {found} IS NULL",
            literal(f"the {name} has no schema id before it: five bytes, of which the first is 0"),
        ),
        (is_unknown(name, each.written_by), unknown),
    ]


def cast(name: str, each: Format | None) -> str:
    is_text = each is not None and each.kind == "string"
    return f"CAST({name} AS STRING) AS {name}" if is_text else name


def columns_of(name: str, each: Format) -> list[str]:
    record = PARSED[name]
    if each.is_event:
        is_json = each.kind == "json"
        parts = {n: debezium.column(record, n, is_json=is_json) for n in each.columns}
    else:
        parts = {column: f"{record}.{quoted(column)}" for column in each.columns}
    if each.is_parsed:
        is_parsed = f"{left_of(name)} IS NULL"
        for number, (column, part) in enumerate(parts.items()):
            parts[column] = f"IF({is_parsed}, {parsed_of(name, number)}, {part})"
    found = [f"{part} AS {quoted(column)}" for column, part in parts.items()]
    if each.column:
        value = f"IF({name} IS NULL, NULL, struct({', '.join(found)}))"
        return [f"{value} AS {quoted(each.column)}"]
    return found


def quoted(name: str) -> str:
    """Return a column name in backquotes for SQL. The name may have any character."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Return a text as a quoted SQL literal, with its special characters escaped."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
