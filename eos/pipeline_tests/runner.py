"""The runner of the tests in a pipeline file (`eos test`).

A test runs the pipeline's source formats, dedup, rules, steps and sinks in Spark, without Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from eos.errors import EosError, RecordRefusedError
from eos.formats.schema_ids import schema_id_before
from eos.pipeline_tests import avro, protobuf
from eos.pipeline_tests.comparison import Written, compare
from eos.spark import dead_letters
from eos.spark.dedup_columns import as_stream
from eos.spark.dedup_run import deduplicate_test
from eos.spark.lookup_tables import opened
from eos.spark.sink_columns import sink_columns
from eos.spark.steps import require_lasting
from eos.startup.stateful_pipeline import require_allowed
from eos.transform.functions import apply
from eos.transform.nondeterminism import unstable
from eos.transform.plan_check import check_stream
from eos.transform.row_order import first_shuffle
from eos.transform.sql import message_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from eos.config.pipeline_tests import Case, InputRecord
    from eos.encode.sink_spec import SinkSpec
    from eos.plan.plan import Plan

_SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, "
    "timestamp TIMESTAMP_LTZ, timestampType INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
_STREAM = (
    "CAST(NULL AS BINARY) AS key",
    "CAST(NULL AS BINARY) AS value",
    "'' AS topic",
    "0 AS partition",
    "value AS offset",
    "timestamp",
    "0 AS timestampType",
    "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

# A record in the result of a test, as a JSON text. It has only the fields that the test names.
Line = str


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """The result of one test.

    `matched` counts the expected records that were found. `missing` has expected records that were
    not, `unexpected` has records that were not expected. `error` is the error that ended the test,
    or empty."""

    name: str
    matched: int
    missing: tuple[Line, ...] = ()
    unexpected: tuple[Line, ...] = ()
    error: str = ""

    @property
    def is_passed(self) -> bool:
        return not (self.missing or self.unexpected or self.error)


def check(spark: SparkSession, plan: Plan) -> tuple[str, ...]:
    """Check the pipeline's steps and sinks on Spark, without Kafka.

    Raise TransformError if a startup would reject them. Return the names of the nondeterministic
    functions that they use, whose results change when a micro-batch is retried.
    """
    plan = _with_rows(plan, {})
    stream = _stream(spark, plan)
    rows = rows_of(spark, plan, stream)
    require_allowed(plan, check_stream(rows, plan.output_mode))
    out = sink_columns(rows, plan)
    check_stream(out, plan.output_mode)
    require_lasting(plan, stream)
    return unstable(out)


def _stream(spark: SparkSession, plan: Plan) -> DataFrame:
    """Return a streaming DataFrame with Kafka's columns. It is only planned, never run."""
    stream = spark.readStream.format("rate").load().selectExpr(*_STREAM)
    return as_stream(stream, plan.dedup)


def rows_of(spark: SparkSession, plan: Plan, stream: DataFrame | None = None) -> DataFrame:
    """Return the result of the last step as a streaming DataFrame, to check its plan or columns.

    Tables that steps join are empty. Without `stream`, a stream that is never run is the source.
    """
    stream = _stream(spark, plan) if stream is None else stream
    tables = opened(_with_rows(plan, {}), spark)
    return apply(plan.decode.apply(stream), plan.transforms, tables)


def order(spark: SparkSession, plan: Plan) -> str:
    """Return Spark's description of the first shuffle in the steps; empty if there is none.

    Up to that shuffle, rows keep the source's order.
    """
    several = spark.range(0, 10, 1, 4)  # four partitions: for one, Spark plans no shuffle
    frame = several.selectExpr("id AS value", "now() AS timestamp").selectExpr(*_STREAM)
    frame = as_stream(frame, plan.dedup)
    tables = opened(_with_rows(plan, {}), spark)
    return first_shuffle(apply(plan.decode.apply(frame), plan.transforms, tables))


def run_case(spark: SparkSession, plan: Plan, case: Case) -> CaseOutcome:
    """Run one test, and compare its output with the expected records."""
    plan = _with_rows(plan, case.tables)
    try:
        with TemporaryDirectory(prefix="eos-test-") as folder:
            frame, again, dead = deduplicate_test(_frame(spark, plan, case), plan, Path(folder))
            found = list(_write(plan, frame, again, dead))
    except EosError as error:
        return CaseOutcome(case.name, 0, error=str(error))
    except Exception as error:  # noqa: BLE001 - Spark or a step raises any type for a record
        return CaseOutcome(case.name, 0, error=f"{type(error).__name__}: {message_of(error)}")
    compared = compare(case.output, found)
    return CaseOutcome(case.name, compared.matched, compared.missing, compared.unexpected)


def _frame(spark: SparkSession, plan: Plan, case: Case) -> DataFrame:
    topic = next(iter(plan.source_topics), "source")
    records = [protobuf.encoded(_framed(record, plan), plan) for record in case.input]
    rows = [_row(number, record, topic) for number, record in enumerate(records)]
    if plan.dedup is None:
        return avro.encoded(spark.createDataFrame(rows, _SCHEMA), plan, case, rows)
    # Dedup needs the records of a partition in one task, in order.
    ordered = sorted(rows, key=lambda row: row[2:5])
    frame = spark.createDataFrame(ordered, _SCHEMA).coalesce(1)
    return avro.encoded(frame, plan, case, rows)


def _framed(record: InputRecord, plan: Plan) -> InputRecord:
    """Return the record with a schema id before each mapping that is JSON of a schema registry."""
    found = {}
    for name, read in (("key", plan.decode.key), ("value", plan.decode.value)):
        given = getattr(record, name)
        if read.kind == "json" and read.subject and isinstance(given, dict):
            schema_id = list(read.written_by)[-1]
            found[name] = schema_id_before(schema_id) + json.dumps(given).encode()
    return record.model_copy(update=found)


def _row(number: int, record: InputRecord, topic: str) -> tuple[Any, ...]:
    headers = [(key, _bytes(text)) for key, text in record.headers.items()]
    return (
        _bytes(record.key),
        _bytes(record.value),
        record.topic or topic,
        record.partition,
        number if record.offset is None else record.offset,
        _EPOCH + timedelta(milliseconds=record.timestamp_ms),
        0,
        headers or None,
    )


def _write(plan: Plan, frame: DataFrame, again: DataFrame, dead: int) -> Iterator[Written]:
    """Yield the records that each sink would write. Their target partitions are not computed.

    `frame` has the source records that dedup accepted. `again` has these and dedup's dead letters;
    `dead` is the number of dedup's dead letters.
    """
    tables = opened(plan, frame.sparkSession)
    out = sink_columns(apply(plan.decode.apply(frame), plan.transforms, tables), plan)
    job = protobuf.readable(avro.readable(out, plan), plan)
    rows = [row.asDict() for row in job.collect()]
    refused = plan.decode.found(job, len(rows), frame)
    plan.decode.require_none(refused, plan.names.pipeline)
    for sink in plan.sinks:
        for row in rows:
            if sink.where_column is None or row[sink.where_column]:
                yield _record(sink, row)
    if plan.dead_letters is not None and (dead or dead_letters.are_among(refused)):
        sink = dead_letters.sink(plan.dead_letters.topic, plan.dead_letters.codec)
        for each in dead_letters.columns(again if dead else frame, plan, 1).collect():
            yield _record(sink, each.asDict())


def _with_rows(plan: Plan, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Plan:
    """Return the plan with a test's rows in place of its lookup tables.

    `rows` has them by table name. A table that is not in it is empty."""
    lookups = tuple(
        replace(each, kind="rows", rows=json.dumps(list(rows.get(each.name, ())), default=str))
        for each in plan.lookups
    )
    return replace(plan, lookups=lookups)


def _record(sink: SinkSpec, row: Mapping[str, Any]) -> Written:
    headers = (row.get(sink.headers_column) if sink.headers_column else None) or []
    topic = sink.topic or row[sink.topic_column or ""]
    if sink.topics and topic not in sink.topics:
        raise RecordRefusedError(
            "row_topic_unknown",
            f"a row has the topic {topic!r}, which is not one of the sink's topics",
            hint="add it to the sink's `topics`, or drop such rows in a step or with `where`",
        )
    return Written(
        topic,
        _text(row[sink.key_column]),
        _text(row[sink.value_column]),
        tuple((header[0], _text(header[1])) for header in headers),
    )


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return bytes(value).decode(errors="backslashreplace")
