"""The columns that the Kafka sinks compute from each row: keys, values, headers and conditions.

Two sinks with the same key or value share one column, which is computed once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from eos.config import avro, protobuf
from eos.encode.sink_spec import Partitioner, SinkSpec
from eos.kafka.compression_type import Codec

if TYPE_CHECKING:
    from eos.config.sink import EncodedFormat, KafkaSink
    from eos.protobuf.message import Message

Kind = Literal["bytes", "json", "avro", "protobuf", "headers", "where"]


@dataclass(frozen=True, slots=True)
class Output:
    """A column that is computed for one or more sinks. The meaning of `texts` depends on `kind`:

    - bytes, where: one SQL expression
    - json: the names of the columns; empty for all columns that are not Kafka's
    - avro: the schema, its subject if it has one, and "register" if a run registers the schema
    - protobuf: the message's name
    - headers: pairs of a header's name and an SQL expression
    """

    kind: Kind
    texts: tuple[str, ...]
    place: str  # the place in the pipeline file, for messages: `sink 2: key`
    is_value: bool = False  # a Kafka value: null stays null, since it deletes its key
    schema_id: int = 0  # the registry's id of the schema, once the registry was asked
    message: Message | None = None  # only for protobuf
    framed_for: str = ""  # the subject of JSON and Protobuf
    frame: bytes = b""  # what is before each JSON object or Protobuf message, once it is known

    @property
    def subject(self) -> str:
        """The subject in the schema registry. Empty if records are written without a schema id."""
        if self.kind != "avro":
            return self.framed_for
        return self.texts[1] if len(self.texts) > 1 else ""

    @property
    def registers(self) -> bool:
        """Return whether a run registers the Avro schema in the schema registry."""
        return self.kind == "avro" and len(self.texts) > 2

    @property
    def is_elsewhere(self) -> bool:
        """Return whether the Avro schema is only in the registry, and was not looked up yet."""
        return self.kind == "avro" and not self.texts[0]

    def written_by(self, schema_id: int, schema: str = "") -> Output:
        """Return the output with the registry's schema id, and with its schema if one is given."""
        texts = (schema or self.texts[0], *self.texts[1:])
        return replace(self, schema_id=schema_id, texts=texts)


@dataclass(frozen=True, slots=True)
class Outputs:
    """The computed columns of all Kafka sinks, and the sinks. Equal columns are computed once."""

    columns: dict[str, Output]
    sinks: tuple[SinkSpec, ...]
    is_filtered: bool  # every sink has a `where`, so Spark can drop rows that no sink writes


def outputs(sinks: tuple[KafkaSink, ...], folder: Path = Path()) -> Outputs:
    """Return the sinks, and the columns to compute for them. `folder` has their schema files."""
    columns: dict[str, Output] = {}
    specs = tuple(_sink(number, sink, columns, folder) for number, sink in enumerate(sinks, 1))
    return Outputs(columns, specs, bool(specs) and all(sink.where_column for sink in specs))


def _column_name(output: Output, columns: dict[str, Output]) -> str:
    """Return the name of an equal column in `columns`, or add this one under a new name."""
    for name, known in columns.items():
        if replace(known, place=output.place) == output:
            return name
    name = f"__out_{len(columns)}"
    columns[name] = output
    return name


def _sink(number: int, sink: KafkaSink, columns: dict[str, Output], folder: Path) -> SinkSpec:
    def add(kind: Kind, texts: tuple[str, ...], key: str, *, is_value: bool = False) -> str:
        return _column_name(Output(kind, texts, f"sink {number}: {key}", is_value), columns)

    def add_bytes(written: str | EncodedFormat | None, column: str) -> str:
        is_value = column == "value"
        if written is None:
            return column
        if isinstance(written, str) and written == "json":
            return add("json", (), column, is_value=is_value)
        if isinstance(written, str):
            return add("bytes", (f"`{column}`" if written == "string" else written,), column)
        if written.avro is not None:
            text, subject = avro.text_of(written.avro, folder), avro.subject_of(written.avro)
            registers = ["register"] if avro.is_registered(written.avro) else []
            texts = (text, subject, *registers) if subject else (text,)
            return add("avro", texts, column, is_value=is_value)
        if written.protobuf is not None:
            message, place = (
                protobuf.message_of(written.protobuf, folder),
                f"sink {number}: {column}",
            )
            subject = written.protobuf.subject or ""
            output = Output("protobuf", (message.name,), place, is_value, 0, message, subject)
            return _column_name(output, columns)
        place, listed = f"sink {number}: {column}", written.json_columns or ()
        output = Output("json", listed, place, is_value, framed_for=written.subject or "")
        return _column_name(output, columns)

    headers = "headers"
    if sink.headers is not None:
        pairs = tuple(text for pair in sink.headers.items() for text in pair)
        headers = add("headers", pairs, "headers")
    by_name = isinstance(sink.topic, str)
    return SinkSpec(
        topic=sink.topic if isinstance(sink.topic, str) else None,
        topic_column=None if isinstance(sink.topic, str) else sink.topic.column,
        topics=() if by_name else sink.topic_names,
        codec=Codec[sink.compression.upper()],
        partitioner=Partitioner[sink.partitioner.upper()],
        key_column=add_bytes(sink.key, "key"),
        value_column=add_bytes(sink.value, "value"),
        headers_column=headers,
        where_column=add("where", (sink.where,), "where") if sink.where else None,
        partition_column=sink.partition,
        timestamp_column=sink.timestamp,
    )
