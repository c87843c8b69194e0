"""The Python API: jobs in a Spark session that is open already. `eos` exports these names."""

from __future__ import annotations

from eos.api.formats import Format, avro, json, protobuf_message, string
from eos.api.job import Job, exactly_once
from eos.api.kafka import Kafka
from eos.api.query import Query
from eos.api.settings import spark_conf
from eos.api.stream import Stream, read_kafka
from eos.errors import (
    AttemptFailedError,
    EosError,
    FencedError,
    PromiseBrokenError,
    UnavailableError,
    UsageError,
)

__all__ = (
    "AttemptFailedError",
    "EosError",
    "FencedError",
    "Format",
    "Job",
    "Kafka",
    "PromiseBrokenError",
    "Query",
    "Stream",
    "UnavailableError",
    "UsageError",
    "avro",
    "exactly_once",
    "json",
    "protobuf_message",
    "read_kafka",
    "spark_conf",
    "string",
)
