"""Avro in the tests of a pipeline file.

A test gives an input record as a mapping, which is encoded to Avro. Avro output is decoded to JSON,
to compare it with the expected output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from eos.formats.expressions import literal
from eos.formats.schema_ids import record_in, schema_id_prefix

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eos.config.pipeline_tests import Case
    from eos.plan.outputs import Output
    from eos.plan.plan import Plan

_OPTIONS = "'timeZone', 'UTC'"


def encoded(
    frame: DataFrame, plan: Plan, case: Case, rows: Sequence[Sequence[object]]
) -> DataFrame:
    """Return the test's source records (`frame`) with their mappings encoded as Avro.

    Return `frame` unchanged if the source is not Avro.
    """
    for name, read in (("key", plan.decode.key), ("value", plan.decode.value)):
        meant = [
            f"({literal(str(topic))}, {partition}, {offset}L)"
            for record, (_, _, topic, partition, offset, *_) in zip(case.input, rows, strict=True)
            if isinstance(getattr(record, name), dict)
        ]
        if read.kind == "avro" and meant:
            encoded = _from_json(frame, name, read.schema)
            if read.subject:
                encoded = f"concat({schema_id_prefix(list(read.written_by)[-1])}, {encoded})"
            is_meant = f"(topic, partition, offset) IN ({', '.join(meant)})"
            chosen = f"IF({is_meant}, {encoded}, {name}) AS {name}"
            frame = frame.selectExpr(*(chosen if n == name else n for n in frame.columns))
    return frame


def readable(job: DataFrame, plan: Plan) -> DataFrame:
    """Return the sinks' columns (`job`) with Avro values decoded to JSON text."""
    options = f"map('ignoreNullFields', 'false', {_OPTIONS})"
    as_json = {
        name: f"to_json(from_avro({_bare(name, output)}, {literal(output.texts[0])}), "
        f"{options}) AS {name}"
        for name, output in plan.outputs.columns.items()
        if output.kind == "avro"
    }
    return job.selectExpr(*(as_json.get(name, f"`{name}`") for name in job.columns))


def _bare(name: str, output: Output) -> str:
    return record_in(name) if output.subject else name


def _from_json(frame: DataFrame, name: str, schema: str) -> str:
    text = literal(schema)  # `check` has validated the schema
    read = frame.selectExpr(f"from_avro(CAST(NULL AS BINARY), {text}) AS record")
    kind = literal(read.schema.fields[0].dataType.simpleString())
    parsed = f"from_json(CAST({name} AS STRING), {kind}, map('mode', 'FAILFAST', {_OPTIONS}))"
    return f"to_avro({parsed}, {text})"
