"""A run's metrics as OpenTelemetry's: the same names, labels and bounds as for Prometheus.

A counter has no suffix `_total`: a collector adds it when it passes the metric on to Prometheus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry

from eos.observe import events
from eos.observe.metric_registry import BUCKETS
from eos.observe.metrics import STEP_SECONDS, step_seconds

_EXPORT_TIMEOUT_MS = 10_000
_BUCKETS = ExplicitBucketHistogramAggregation(BUCKETS)


class OtlpMetrics:
    """The exported metrics of one run. It is called with each event.

    A thread of the SDK reads them from Prometheus's registry, and exports them every few seconds
    and once more at the end. Only histograms are kept apart, because the SDK can't read one.
    """

    def __init__(
        self,
        pipeline: str,
        registry: CollectorRegistry,
        resource: Resource,
        exporter: MetricExporter,
        interval_s: int,
    ) -> None:
        self._registry = registry
        self._labels = {"pipeline": pipeline}
        reader = PeriodicExportingMetricReader(
            exporter, interval_s * 1000, export_timeout_millis=_EXPORT_TIMEOUT_MS
        )
        self._provider = MeterProvider(
            [reader],
            resource,
            # Not at the process's exit: that would wait for a collector that is away.
            shutdown_on_exit=False,
            views=[View(instrument_name=STEP_SECONDS, aggregation=_BUCKETS)],
        )
        meter = self._provider.get_meter("eos")
        for family in registry.collect():
            text = family.documentation
            if family.type == "histogram":
                self._steps = meter.create_histogram(family.name, "s", text)
            elif family.type == "counter":
                meter.create_observable_counter(family.name, [self._values(family.name)], "", text)
            else:
                meter.create_observable_gauge(family.name, [self._values(family.name)], "", text)

    def __call__(self, event: events.Event) -> None:
        for step, seconds in step_seconds(event).items():
            self._steps.record(seconds, {**self._labels, "step": step})

    def close(self) -> None:
        """Export the last values."""
        self._provider.shutdown(_EXPORT_TIMEOUT_MS)

    def _values(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """Return the callback that reads one metric of the registry."""

        def read(_: CallbackOptions) -> Iterable[Observation]:
            families: Iterable[Any] = self._registry.collect()
            found = next(each for each in families if each.name == name)
            return [Observation(each.value, each.labels) for each in found.samples]

        return read
