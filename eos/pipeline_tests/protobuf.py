"""Protobuf in the tests of a pipeline file.

A test gives an input record as a mapping in Protobuf's JSON form, which is encoded to Protobuf.
Protobuf output is decoded to JSON as Spark writes it, to compare it with the expected output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eos.errors import RecordRefusedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eos.config.pipeline_tests import InputRecord
    from eos.plan.plan import Plan

_OPTIONS = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
}


def encoded(record: InputRecord, plan: Plan) -> InputRecord:
    """Return the test's source record with its mappings encoded as Protobuf.

    A key or value that is not Protobuf in the pipeline, or not a mapping, is unchanged.
    """
    from google.protobuf.json_format import ParseDict, ParseError
    from google.protobuf.message import EncodeError

    from eos.protobuf.frames import frame, path_of

    encoded: dict[str, bytes] = {}
    for name, read in (("key", plan.decode.key), ("value", plan.decode.value)):
        value = getattr(record, name)
        if read.message is None or not isinstance(value, dict):
            continue
        message_type = read.message.name
        before = frame(list(read.written_by)[-1], path_of(read.message)) if read.subject else b""
        try:
            made = ParseDict(value, read.message.type())
            encoded[name] = before + made.SerializeToString(deterministic=True)
        except (ParseError, EncodeError) as error:
            raise RecordRefusedError(
                "test_input_not_protobuf",
                f"the test's input has a {name} that does not fit the Protobuf message "
                f"`{message_type}`: {error}",
                hint="correct the mapping. To test a malformed record, give a text instead",
            ) from error
    return record.model_copy(update=encoded)


def readable(job: DataFrame, plan: Plan) -> DataFrame:
    """Return the sinks' columns (`job`) with Protobuf values decoded to JSON text."""
    from pyspark.sql import functions as f

    from eos.protobuf.spark_functions import record

    for name, output in plan.outputs.columns.items():
        if output.message is not None:
            job = job.withColumn(name, f.to_json(record(output.message, name), _OPTIONS))
    return job
