"""One key or value, as SQL: how its bytes are parsed, what it brings, and what can be wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from eos.formats.schema_ids import Writers, chosen, id_in, is_unknown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eos.protobuf.message import Message

PARSED = {"key": "__eos_key", "value": "__eos_value"}
_RAW = "__eos_raw"  # in a parsed struct: the text, if something of it could not be read
_IS_READ = "__eos_is_read"  # in a parsed struct, of Avro: true where it could be read


@dataclass(frozen=True, slots=True)
class Format:
    """How a key or a value is read. `columns` are those of its schema, `required` of a JSON one."""

    kind: Literal["binary", "string", "json", "avro", "protobuf"] = "binary"
    schema: str = ""
    columns: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    column: str = ""  # holds all of them as a struct; empty: they stand beside Kafka's columns
    subject: str = ""  # of the schema registry, if Avro records carry the id of a schema there
    writers: Writers = field(default_factory=lambda: Writers({}), compare=False)
    message: Message | None = None  # of Protobuf

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that it brings."""
        return (self.column,) if self.column else self.columns

    @property
    def written_by(self) -> Mapping[int, str]:
        """What such ids mean. Where no registry was asked, 0 means the schema itself."""
        return self.writers.known or {0: self.schema}

    @property
    def is_sparks(self) -> bool:
        """Spark has a function that parses it."""
        return self.kind in ("json", "avro")

    @property
    def is_elsewhere(self) -> bool:
        """Only the registry has its schema, and was not asked for it yet."""
        return self.kind == "avro" and not self.schema


def with_records(frame: DataFrame, formats: Mapping[str, Format]) -> DataFrame:
    """The rows, and what their keys and values were parsed to."""
    of_spark = [parsed(name, each) for name, each in formats.items() if each.is_sparks]
    made = frame.selectExpr("*", *of_spark)
    for name, each in formats.items():
        if each.message is not None:
            from eos.protobuf.spark_functions import record

            made = made.withColumn(PARSED[name], record(each.message, name))
    return made


def parsed(name: str, each: Format) -> str:
    if each.subject:
        made = chosen(
            name, each.written_by, lambda at, written: _from_avro(at, written, each.schema)
        )
        return f"{made} AS {PARSED[name]}"
    if each.kind == "avro":
        return f"{_from_avro(name, each.schema, each.schema)} AS {PARSED[name]}"
    # A time without a zone is UTC's, on every machine. FAILFAST would not say which record it was.
    options = f"map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{_RAW}', 'timeZone', 'UTC')"
    schema = literal(f"{each.schema}, {_RAW} STRING")
    return f"from_json(CAST({name} AS STRING), {schema}, {options}) AS {PARSED[name]}"


def _from_avro(name: str, written: str, wanted: str) -> str:
    # What is no record of the schema becomes one of nulls, as a record may be in earnest. So
    # it is read with a field more, that none of them has, and whose default says that it was.
    # In quotes of its own: Spark wants constants, and a schema may hold anything.
    record = json.loads(wanted)
    record["fields"].append({"name": _IS_READ, "type": "boolean", "default": True})
    options = f"map('mode', 'PERMISSIVE', 'avroSchema', {literal(json.dumps(record))})"
    return f"from_avro({name}, {literal(written)}, {options})"


def wrong_with(name: str, each: Format) -> list[tuple[str, str]]:
    """Conditions under which bytes that are there can't be read, each with what to say of it.
    A null stays one: it may be a tombstone."""
    if each.kind == "binary":
        return []
    if each.kind == "avro":
        when = f"{name} IS NOT NULL AND {PARSED[name]}.{_IS_READ} IS NULL"
        told = [(when, literal(f"the {name} is no Avro record of its schema"))]
        return _wrong_id(name, each) + told if each.subject else told
    if each.message is not None:
        when = f"{name} IS NOT NULL AND {PARSED[name]} IS NULL"
        return [(when, literal(f"the {name} is no Protobuf message `{each.message.name}`"))]
    told = [(f"NOT is_valid_utf8(CAST({name} AS STRING))", f"the {name} is no UTF-8 text")]
    if each.kind == "json":
        record = PARSED[name]
        told.append((f"{record} IS NULL", f"the {name} is no JSON object"))
        told.append((f"{record}.{_RAW} IS NOT NULL", f"the {name} does not fit its schema"))
        for column in each.required:
            absent = f"the {name} lacks the column `{column}`, which is NOT NULL"
            told.append((f"{record}.{quoted(column)} IS NULL", absent))
    return [(f"{name} IS NOT NULL AND {when}", literal(words)) for when, words in told]


def _wrong_id(name: str, each: Format) -> list[tuple[str, str]]:
    found = id_in(name)
    told = f" before the {name} has no Avro schema in the registry"
    unknown = f"concat('the schema id ', {found}, {literal(told)})"
    return [
        (
            f"{name} IS NOT NULL AND {found} IS NULL",
            literal(f"the {name} has no schema id before it: five bytes, of which the first is 0"),
        ),
        (is_unknown(name, each.written_by), unknown),
    ]


def kept(name: str, each: Format | None) -> str:
    is_text = each is not None and each.kind == "string"
    return f"CAST({name} AS STRING) AS {name}" if is_text else name


def columns_of(name: str, each: Format) -> list[str]:
    record = PARSED[name]
    found = [f"{record}.{quoted(column)} AS {quoted(column)}" for column in each.columns]
    if each.column:
        whole = f"IF({name} IS NULL, NULL, struct({', '.join(found)}))"
        return [f"{whole} AS {quoted(each.column)}"]
    return found


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
