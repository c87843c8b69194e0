"""One Kafka transaction for each Spark micro-batch, across the whole cluster.

The names of the Python API (docs/python.md) are loaded when they are first used: executors and the
commands import this package, and don't need them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from eos.api import (
        AttemptFailedError,
        EosError,
        FencedError,
        Format,
        Job,
        Kafka,
        PromiseBrokenError,
        Query,
        Stream,
        UnavailableError,
        UsageError,
        avro,
        exactly_once,
        json,
        protobuf_message,
        read_kafka,
        spark_conf,
        string,
    )
else:
    from importlib import import_module

    def __getattr__(name: str) -> object:
        if name in __all__:
            return getattr(import_module("eos.api"), name)
        raise AttributeError(f"module 'eos' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return [*globals(), *__all__]


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
