"""The metrics of several pipelines, served at one endpoint."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector


class JoinedMetrics(Collector):
    """The registries of several pipelines as one registry, `collected`.

    The format allows a metric's name once. So its samples of all pipelines, which differ in the
    label `pipeline`, are put together. The values of a run that has ended stay until the pipeline's
    next run.
    """

    def __init__(self) -> None:
        self._runs: dict[str, CollectorRegistry] = {}
        self.collected = CollectorRegistry()
        self.collected.register(self)

    def replace(self, pipeline: str, run: CollectorRegistry) -> None:
        """Add the metrics of a pipeline's new run, in place of those of its previous run."""
        self._runs = {**self._runs, pipeline: run}  # a scrape may be reading the previous dict

    def collect(self) -> Iterable[Metric]:
        found: dict[str, Metric] = {}
        for run in self._runs.values():
            for metric in run.collect():
                joined = found.setdefault(metric.name, metric)
                if joined is not metric:
                    joined.samples.extend(metric.samples)
        return found.values()
