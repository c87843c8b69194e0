"""Compute the columns that the sinks read, from the rows of the last step.

One projection in Spark computes the columns of all sinks. Columns that a sink writes unchanged are
passed through. The encode stage then selects the rows of each sink.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from eos.config import avro
from eos.encode.record_errors import AT
from eos.errors import TransformError
from eos.formats.expressions import literal, quoted
from eos.formats.schema_ids import schema_id_prefix
from eos.transform.batch_functions import KAFKAS_HEADERS
from eos.transform.sql import message_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eos.plan.outputs import Output, Outputs
    from eos.plan.plan import Plan

# Spark computes the size of the Arrow batch after every row. For a list of structs that takes
# longer than for all other columns together. So headers from Kafka are passed as one list of byte
# strings: all keys, then all values (`kafka/records/record_headers.py`).
_PACKED = "concat(CAST(`headers`.key AS ARRAY<BINARY>), `headers`.value)"
# An empty list replaces a null one, since both mean no headers. For each row Arrow scans all null
# lists since the last list that is not null. So the time would grow with the square of the rows.
_NEVER_NULL = "coalesce(`headers`, array())"
_PACKED_NEVER_NULL = f"IF(size(`headers`) > 0, {_PACKED}, array())"
# Nulls are written, so that all records of a sink have the same fields. Times are in UTC with
# microseconds, so that no precision is lost.
_JSON_OPTIONS = (
    "map('ignoreNullFields', 'false', 'timeZone', 'UTC', "
    "'timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\")"
)
_BYTES = ("binary", "string")
# A column with one of these names is Kafka's only if it has Kafka's type. `value BIGINT` is the
# user's own column.
_KAFKAS_TYPES: Mapping[str, Collection[str]] = {
    "key": _BYTES,
    "value": _BYTES,
    "headers": (KAFKAS_HEADERS,),
    "topic": ("string",),
    "partition": ("int",),
    "offset": ("bigint",),
    "timestamp": ("timestamp",),
    "timestamptype": ("int",),
}
# Types with a text that is the same on every machine. A timestamp's text depends on the time zone.
_WITH_A_TEXT = ("tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "date")


def sink_columns(
    out: DataFrame, plan: Plan, *, is_packed: bool = False, has_structs: bool = False
) -> DataFrame:
    """Return the columns that the sinks read, and the rows' source positions if they still exist.

    `is_packed` is for the encode stage. Then headers get a form that is faster to transfer, and the
    topic column is left out if the source has a single topic. With `has_structs`, columns of JSON
    objects are structs, which the caller writes as JSON.
    """
    present = {field.name: field.dataType.simpleString() for field in out.schema.fields}
    # Spark ignores case in column names. A `Key` of another type than Kafka's is the user's.
    kafkas = {name.lower(): kind for name, kind in present.items() if _is_kafkas(name, kind)}
    known = kafkas | present
    required = _required_columns(plan, known, has=", ".join(present))
    columns = {name: _passed_on(name, known, is_packed=is_packed) for name in required}
    coordinates = {"topic": "string", "partition": "int", "offset": "bigint"}
    if all(present.get(name) == kind for name, kind in coordinates.items()):
        columns["__at"] = AT
        if not is_packed or len(plan.source_topics) != 1:
            columns["__topic"] = "topic"
    outputs = plan.outputs
    if not columns and not outputs.columns:  # no sink reads a row, but Spark counts the rows
        columns["__at"] = "CAST(NULL AS BIGINT)"
    if outputs.columns:
        columns |= _expressions(out, outputs, present, is_packed=is_packed, has_structs=has_structs)
    # Pass all expressions as texts in one call. To create a column object, PySpark needs 2 ms each.
    result = _select(out, [f"{expression} AS `{name}`" for name, expression in columns.items()])
    if outputs.is_filtered:
        named = dict.fromkeys(sink.where_column for sink in plan.sinks)
        result = result.where(" OR ".join(f"`{name}`" for name in named))
    return _with_messages(result, plan)


def _with_messages(result: DataFrame, plan: Plan) -> DataFrame:
    """Return the rows with Protobuf structs encoded as bytes, for rows that a sink writes."""
    messages = {
        name: (each.message, each.place)
        for name, each in plan.outputs.columns.items()
        if each.message is not None
    }
    if not messages:
        return result
    from pyspark.sql import functions as f

    from eos.protobuf.spark_functions import written

    at = f.expr("__at" if "__at" in result.columns else "CAST(NULL AS BIGINT)")
    topic = plan.source_topics[0] if len(plan.source_topics) == 1 else ""
    for name, (message, place) in messages.items():
        # Pass null for a row that no sink writes as this message. The row may be for a sink with
        # another message, and a row that does not fit its message is an error.
        wheres = [s.where_column for s in plan.sinks if name in (s.key_column, s.value_column)]
        expressions = f"IF({' OR '.join(f'`{where}`' for where in wheres)}, `{name}`, NULL)"
        fields = f.expr(expressions if all(wheres) else f"`{name}`")
        made = written(message, place, fields, at, topic)
        frame = plan.outputs.columns[name].frame
        result = result.withColumn(name, f.concat(f.lit(frame), made) if frame else made)
    return result


def _select(out: DataFrame, expressions: list[str]) -> DataFrame:
    from pyspark.errors import AnalysisException

    try:
        return out.selectExpr(*expressions)
    except AnalysisException as error:  # each expression is valid alone; one is an aggregate
        reason = message_of(error)
        raise TransformError(
            "sink_expression_aggregates",
            f"Spark can't compute the sinks' columns: {reason}",
            hint="a sink's expression computes from one row; aggregate rows in a step",
        ) from error


def _required_columns(plan: Plan, present: Mapping[str, str], has: str) -> list[str]:
    """Return the names of the last step's columns that sinks read unchanged. `has` lists all.

    Raise TransformError if a column is missing or has a type that sinks can't write."""
    passed = {sink.value_column for sink in plan.sinks}
    if "value" in passed and "value" not in present:
        raise TransformError(
            "sink_value_missing",
            f"the last transform returns no column `value` (it has {has})",
            hint="a Kafka sink writes the columns key, value and headers; set `value: json` in the "
            "sink to write all other columns as an object",
        )
    passed |= {sink.key_column for sink in plan.sinks}
    for name in ("key", "value"):
        kind = present.get(name, "binary")
        if name in passed and kind not in _BYTES:
            raise TransformError(
                "sink_column_type",
                f"column `{name}` has type {kind}; a Kafka sink writes bytes",
                hint=f"set `{name}: ...` in the sink, or cast it in the last transform",
            )
    passed |= {sink.headers_column for sink in plan.sinks if sink.headers_column}
    kind = present.get("headers", "void")
    if "headers" in passed and kind != "void" and not kind.startswith("array<struct<"):
        raise TransformError(
            "sink_headers_type",
            f"column `headers` has type {kind}; a Kafka sink writes headers of type "
            "array<struct<key: string, value: binary>>",
            hint="set `headers: ...` in the sink, or remove the column in the last transform",
        )
    required: list[str] = [
        name
        for name in ("key", "value", "headers")
        if name in passed and (name in present or name == "key")
    ]
    for name in plan.sink_columns:
        if name not in present:
            raise TransformError(
                "sink_column_not_returned",
                f"the sink needs column `{name}`, which the last transform does not return "
                f"(it has {has})",
                hint="return it from the last step, or name another column in the sink",
            )
        required.append(name)
    return required


def _passed_on(name: str, present: Mapping[str, str], *, is_packed: bool) -> str:
    if name not in present:
        return "CAST(NULL AS BINARY)"
    if name != "headers" or not present[name].startswith("array"):
        return f"`{name}`"
    if is_packed and present[name] == KAFKAS_HEADERS:
        return _PACKED_NEVER_NULL
    return _NEVER_NULL


def _expressions(
    out: DataFrame,
    outputs: Outputs,
    present: Mapping[str, str],
    *,
    is_packed: bool,
    has_structs: bool,
) -> dict[str, str]:
    """Return an SQL expression for each computed column.

    One call to Spark finds the types of all of the user's expressions."""
    expressions = {
        (name, at): f"(\n{text}\n)"  # on a line of its own, since it may end in a comment
        for name, output in outputs.columns.items()
        for at, text in enumerate(output.texts)
        if output.kind in ("bytes", "where") or (output.kind == "headers" and at % 2)
    }
    types = dict(zip(expressions, _types(out, outputs, expressions), strict=True))
    result = {}
    for name, output in outputs.columns.items():
        if output.kind == "json":
            result[name] = _json(output, present, is_struct=has_structs)
        elif output.kind == "avro":
            result[name] = _avro(out, output, present)
        elif output.kind == "where":
            kind = types[name, 0]
            if kind != "boolean":
                raise TransformError(
                    "sink_where_type",
                    f"{output.place} is of type {kind}; expected a condition",
                    hint="compare the column with a value: `where: amount > 0`",
                )
            result[name] = f"coalesce({expressions[name, 0]}, false)"
        elif output.kind == "bytes":
            result[name] = _bytes(expressions[name, 0], types[name, 0], output.place)
        elif output.kind == "headers":
            result[name] = _headers(name, output, expressions, types, is_packed=is_packed)
    for name in (name for name, each in outputs.columns.items() if each.kind == "protobuf"):
        result[name] = _struct(out, outputs.columns[name])
    return result


def _types(out: DataFrame, outputs: Outputs, given: Mapping[tuple[str, int], str]) -> list[str]:
    from pyspark.errors import AnalysisException

    def of(expressions: list[str]) -> list[str]:
        schema = out.selectExpr(*expressions).schema
        return [field.dataType.simpleString() for field in schema.fields]

    try:
        return of(list(given.values())) if given else []
    except AnalysisException:
        for (name, _), text in given.items():  # one at a time: Spark's error names no sink
            try:
                of([text])
            except AnalysisException as error:
                place, reason = outputs.columns[name].place, message_of(error)
                raise TransformError(
                    "sink_expression_invalid",
                    f"{place}: {reason}",
                    hint="a sink's expressions use the columns of the last step: `eos plan` "
                    "shows the steps",
                ) from error
        raise


def _bytes(text: str, kind: str, place: str) -> str:
    if kind in _BYTES:
        return text
    if kind in _WITH_A_TEXT or kind.startswith("decimal"):
        return f"CAST({text} AS STRING)"
    raise TransformError(
        "sink_expression_type",
        f"{place} is of type {kind}; a Kafka sink writes bytes or text",
        hint="write an object with `{json: [columns]}`, or a text with to_json(...), "
        "date_format(...) or a cast",
    )


def _headers(
    name: str,
    output: Output,
    expressions: Mapping[tuple[str, int], str],
    types: Mapping[tuple[str, int], str],
    *,
    is_packed: bool,
) -> str:
    keys, values = [], []
    for at in range(0, len(output.texts), 2):
        header, place = output.texts[at], f"{output.place} {output.texts[at]}"
        value = _bytes(expressions[name, at + 1], types[name, at + 1], place)
        keys.append(literal(header))
        values.append(f"CAST({value} AS BINARY)")
    if is_packed and keys:
        return f"array({', '.join([f'CAST({key} AS BINARY)' for key in keys] + values)})"
    pairs = [f"struct({k} AS key, {v} AS value)" for k, v in zip(keys, values, strict=True)]
    empty = "CAST(array() AS ARRAY<STRUCT<key: STRING, value: BINARY>>)"
    return f"array({', '.join(pairs)})" if pairs else empty


def _json(output: Output, present: Mapping[str, str], *, is_struct: bool) -> str:
    names = output.texts or tuple(name for name in present if not _is_kafkas(name, present[name]))
    if not names:
        raise TransformError(
            "sink_columns_empty",
            f"{output.place} is json, but the last transform returns only Kafka's columns "
            f"(it has {', '.join(present)})",
            hint="read the source's value as json, or add columns in a transform",
        )
    by_name = {name.lower(): name for name in present}
    for name in names:
        if name.lower() not in by_name:
            raise TransformError(
                "sink_column_not_returned",
                f"{output.place} needs column `{name}`, which the last transform does not return "
                f"(it has {', '.join(present)})",
                hint="return it from the last step, or name another column in the sink",
            )
    listed = ", ".join(f"{quoted(name)} AS {quoted(name)}" for name in names)
    result = f"struct({listed})"
    if not is_struct:
        result = f"to_json({result}, {_JSON_OPTIONS})"
        if output.frame:
            result = f"concat(X'{output.frame.hex()}', CAST({result} AS BINARY))"
    return _or_tombstone(result, output, present)


def _avro(out: DataFrame, output: Output, present: Mapping[str, str]) -> str:
    """Return SQL for an Avro record. Each field is the column of its name, cast to the field's
    type. Without the cast, an INT column for a `long` field would fail during a micro-batch."""
    schema = output.texts[0]
    by_name = {name.lower(): name for name in present}
    try:
        read = out.selectExpr(f"from_avro(CAST(NULL AS BINARY), {literal(schema)}) AS record")
        fields: Any = read.schema.fields[0].dataType
        required = {each.name: each.dataType.simpleString() for each in fields}
    except Exception as error:  # Avro's parser raises its own exceptions, not Spark's
        reason = avro.message_of(error)
        raise TransformError(
            "sink_avro_schema_invalid",
            f"{output.place}: {reason}",
            hint="Spark's Avro writer does not accept the schema of this sink: correct it, or the "
            "columns' types",
        ) from error
    missing = [name for name in required if name.lower() not in by_name]
    if missing:
        raise TransformError(
            "sink_column_not_returned",
            f"{output.place} needs column `{missing[0]}`, a field of its Avro schema, which the "
            f"last transform does not return (it has {', '.join(present)})",
            hint="return it from the last step, or remove the field from the schema",
        )
    listed = ", ".join(
        f"CAST({quoted(by_name[name.lower()])} AS {kind}) AS {quoted(name)}"
        for name, kind in required.items()
    )
    result = f"to_avro(struct({listed}), {literal(schema)})"
    if output.subject:
        result = f"concat({schema_id_prefix(output.schema_id)}, {result})"
    return _or_tombstone(result, output, present)


def _struct(out: DataFrame, output: Output) -> str:
    """Return SQL for a struct of a Protobuf message's fields, each from the column of its name."""
    from eos.protobuf.spark_functions import require_fits

    assert output.message is not None, "this output is of Protobuf"
    types = {field.name: field.dataType for field in out.schema.fields}
    require_fits(output.message, output.place, types)
    by_name = {each.lower(): each for each in types}
    listed = ", ".join(
        f"{quoted(by_name[field.name.lower()])} AS {quoted(field.name)}"
        for field in output.message.fields
    )
    present = {name: kind.simpleString() for name, kind in types.items()}
    return _or_tombstone(f"struct({listed})", output, present)


def _or_tombstone(result: str, output: Output, present: Mapping[str, str]) -> str:
    """Return SQL that keeps a null value of the source null, in place of an encoded object.

    A null value is a tombstone: it deletes its key on a compacted topic."""
    has_kafkas = any(
        name.lower() == "value" and _is_kafkas(name, kind) for name, kind in present.items()
    )
    return f"IF(`value` IS NULL, NULL, {result})" if output.is_value and has_kafkas else result


def _is_kafkas(name: str, kind: str) -> bool:
    return kind in _KAFKAS_TYPES.get(name.lower(), ())
