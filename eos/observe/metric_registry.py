"""The registry of a run's metrics, which bounds the values of their labels.

Each metric has the label `pipeline`. Of every other label at most VALUES_MAX values are used; more
count as `other`. So a pipeline with any number of topics has a bounded number of time series.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from eos.observe.observer_thread import ObserverThread

VALUES_MAX = 100
OTHER = "other"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class MetricRegistry:
    """The registry of one pipeline's metrics."""

    def __init__(self, pipeline: str) -> None:
        # They would be a second time series next to each counter.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.pipeline = pipeline
        self.collected = CollectorRegistry()
        self._values: dict[str, set[str]] = {}

    def counter(self, name: str, text: str, *labels: str) -> Metric:
        return self._metric(Counter, name, text, labels)

    def gauge(self, name: str, text: str, *labels: str) -> Metric:
        return self._metric(Gauge, name, text, labels)

    def histogram(self, name: str, text: str, *labels: str) -> Metric:
        return self._metric(Histogram, name, text, labels, buckets=BUCKETS)

    def watch(self, threads: Sequence[ObserverThread]) -> None:
        """Add two counters for each observer: events that were dropped because it was too slow, and
        events at which it raised an error."""
        self.collected.register(_Observers(self.pipeline, threads))

    def bounded(self, label: str, value: str) -> str:
        """Return the value, or `other` if the label has too many values already."""
        known = self._values.setdefault(label, set())
        if value not in known and len(known) >= VALUES_MAX:
            return OTHER
        known.add(value)
        return value

    def _metric(
        self, kind: Any, name: str, text: str, labels: tuple[str, ...], **options: Any
    ) -> Metric:
        made = kind(name, text, ("pipeline", *labels), registry=self.collected, **options)
        return Metric(self, made, labels)


class Metric:
    """A metric whose label values are bounded."""

    def __init__(self, registry: MetricRegistry, made: Any, labels: tuple[str, ...]) -> None:
        self._registry, self._made, self._labels = registry, made, labels

    def of(self, *values: str) -> Any:
        """Return the time series with these values of its labels."""
        pairs = zip(self._labels, values, strict=True)
        bounded = (self._registry.bounded(label, value) for label, value in pairs)
        return self._made.labels(self._registry.pipeline, *bounded)


class _Observers(Collector):
    """The counts of the observers' threads."""

    def __init__(self, pipeline: str, threads: Sequence[ObserverThread]) -> None:
        self._pipeline, self._threads = pipeline, threads

    def collect(self) -> Iterable[CounterMetricFamily]:
        labels = ("pipeline", "observer")
        lost = CounterMetricFamily(
            "eos_observer_dropped_events_total", "Events that an observer lost.", labels=labels
        )
        failed = CounterMetricFamily(
            "eos_observer_failures_total", "Events at which an observer failed.", labels=labels
        )
        totals: dict[str, tuple[int, int]] = {}
        for each in self._threads:  # a profile may name an observer twice
            before = totals.get(each.name, (0, 0))
            totals[each.name] = before[0] + each.dropped, before[1] + each.failed
        for name, (dropped, failures) in totals.items():
            lost.add_metric((self._pipeline, name), dropped)
            failed.add_metric((self._pipeline, name), failures)
        return lost, failed
