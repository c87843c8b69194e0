"""The places of an Avro schema: in the pipeline file, in its own file, or in a schema registry."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, Tag, model_validator

from eos.config.base import MAPPING, WORD, Strict, Subject, word_or_mapping
from eos.errors import UsageError

_FILE_BYTES_MAX = 1_048_576
_REFUSED = re.compile(r"(?:SchemaParse|AvroRuntime|AvroType|IncompatibleSchema)Exception: ([^\n]*)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def field_names(text: str) -> tuple[str, ...]:
    """Return the names of the fields of an Avro record schema, given as JSON text.

    Raise ValueError if `text` is not such a schema. The types of the fields are not checked: Spark
    does that at startup.
    """
    try:
        schema: Any = json.loads(text)
    except ValueError as error:
        raise ValueError(f"expected an Avro schema as JSON: {error}") from error
    except RecursionError as error:
        raise ValueError("expected an Avro schema with fewer levels of nesting") from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ValueError('expected the Avro schema of a record, such as {"type": "record", ...}')
    fields = schema.get("fields")
    if not isinstance(fields, list) or not fields:
        raise ValueError("expected `fields` in the Avro schema: a list of one or more")
    found: list[str] = []
    for field in fields:
        name = field.get("name") if isinstance(field, dict) else None
        if not isinstance(name, str) or not _NAME.fullmatch(name) or "type" not in field:
            raise ValueError(
                f"expected a `name` and a `type` of each Avro field, got {field!r:.100}"
            )
        if name.lower() in map(str.lower, found):
            raise ValueError(
                f"expected unique Avro field names, ignoring case: `{name}` appears twice"
            )
        found.append(name)
    return tuple(found)


def _record(text: str) -> str:
    field_names(text)
    return text


def message_of(error: Exception) -> str:
    """Return the Avro parser's message from an error of Spark.

    If Spark's error contains none, return the first line of Spark's own message.
    """
    found = _REFUSED.search(str(error))
    return found.group(1).strip()[:500] if found else str(error).splitlines()[0][:500]


class AvroFile(Strict):
    """An Avro schema in a file, in a schema registry, or both.

    `file` is relative to the pipeline's folder. With `subject`, records carry the id of their
    writer's schema in the schema registry, as Confluent's clients write it. With `register`, a sink
    registers its schema there if it is new. Without `file`, each run reads the subject's latest
    schema at startup.
    """

    file: Annotated[str, Field(min_length=1)] | None = None
    subject: Subject | None = None
    register_it: bool = Field(default=False, alias="register")

    @model_validator(mode="after")
    def _has_source(self) -> AvroFile:
        if self.file is None and self.subject is None:
            raise ValueError("expected `file`, or the `subject` of a schema registry, or both")
        if self.register_it and self.subject is None:
            raise ValueError("expected `subject` with `register`")
        if self.register_it and self.file is None:
            raise ValueError("expected `file` with `register`: a sink registers the file's schema")
        return self


Avro = Annotated[
    Annotated[str, AfterValidator(_record), Tag(WORD)] | Annotated[AvroFile, Tag(MAPPING)],
    word_or_mapping("expected a schema as JSON text, or a mapping with the keys file and subject"),
]


def subject_of(schema: str | AvroFile) -> str:
    """Return the subject of the schema in the schema registry.

    Return an empty text for a schema without `subject`: its records contain no schema id.
    """
    return "" if isinstance(schema, str) else schema.subject or ""


def is_elsewhere(schema: str | AvroFile) -> bool:
    """Return whether only the schema registry has the schema: neither pipeline file nor `file`."""
    return not isinstance(schema, str) and schema.file is None


def is_registered(schema: str | AvroFile) -> bool:
    return not isinstance(schema, str) and schema.register_it


def text_of(schema: str | AvroFile, folder: Path) -> str:
    """Return the schema's text, from its file if it has one; empty if only the registry has it."""
    if isinstance(schema, str):
        return schema
    if schema.file is None:
        return ""
    path = folder / schema.file
    try:
        with path.open("rb") as opened:
            raw = opened.read(_FILE_BYTES_MAX + 1)
        if len(raw) > _FILE_BYTES_MAX:
            raise UsageError(
                "avro_schema_file_too_large",
                f"the Avro schema file {path} is larger than {_FILE_BYTES_MAX} bytes",
                hint="a schema has a few kilobytes: check that `file` is its path",
            )
        return _record(raw.decode())
    except OSError as error:
        raise UsageError(
            "avro_schema_file_unreadable",
            f"the Avro schema file {path} can't be read: {error.strerror}",
            hint="correct `file`, which is relative to the pipeline's folder, or the file's "
            "permissions",
        ) from error
    except ValueError as error:  # also raised for a text that is not UTF-8
        raise UsageError(
            "avro_schema_invalid",
            f"the Avro schema file {path} is invalid: {error}",
            hint='the file must contain one Avro record as JSON, such as {"type": "record", '
            '"name": ..., "fields": [...]}',
        ) from error
