"""Traces and metrics for an OpenTelemetry collector, by OTLP over HTTP.

The packages are those of the extra `opentelemetry`. The SDK's own settings in environment variables
hold, too, such as OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from prometheus_client import CollectorRegistry

import eos
from eos.observe.otlp_metrics import OtlpMetrics
from eos.observe.traces import RunTraces

_TIMEOUT_S = 10
_SILENT = logging.NullHandler()  # one for all runs of this process


def resource_of(pipeline: str) -> Resource:
    """Return what describes this run in all traces and metrics."""
    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {SERVICE_NAME: "eos"}
    return Resource.create({**named, "service.version": eos.__version__, "eos.pipeline": pipeline})


def traces_of(pipeline: str, endpoint: str, headers: Mapping[str, str]) -> RunTraces:
    address = f"{endpoint.rstrip('/')}/v1/traces"
    exporter = OTLPSpanExporter(address, headers=dict(headers), timeout=_TIMEOUT_S)
    return RunTraces(pipeline, resource_of(pipeline), exporter)


def metrics_of(
    pipeline: str,
    endpoint: str,
    headers: Mapping[str, str],
    registry: CollectorRegistry,
    interval_s: int,
) -> OtlpMetrics:
    address = f"{endpoint.rstrip('/')}/v1/metrics"
    exporter = OTLPMetricExporter(address, headers=dict(headers), timeout=_TIMEOUT_S)
    return OtlpMetrics(pipeline, registry, resource_of(pipeline), exporter, interval_s)


@contextmanager
def reported_once(warn: Callable[[str], None]) -> Iterator[None]:
    """Within the context, call `warn` with the first warning that OpenTelemetry's SDK logs.

    The SDK logs each failed export, and Python would print all of them on stderr. They are hidden,
    also after the context: the last export may fail then."""
    logger, handler = logging.getLogger("opentelemetry"), _First(warn)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.addHandler(_SILENT)
        logger.removeHandler(handler)


class _First(logging.Handler):
    def __init__(self, warn: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._warn: Callable[[str], None] | None = warn

    def emit(self, record: logging.LogRecord) -> None:
        warn, self._warn = self._warn, None
        if warn is not None:
            text = record.getMessage()[:500]
            warn(f"OpenTelemetry: {text}; further problems are not reported")
