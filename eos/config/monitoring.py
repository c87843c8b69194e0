"""The parts of a profile for observers and metrics."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from eos.config.base import Strict
from eos.config.transform import Function

URL_PATTERN = r"^https?://[^\s/@?#]+(/[^\s?#]*)?$"
PATH_PATTERN = r"^/?[^\s/?#:][^\s?#:]*$"


class Observer(Strict):
    """Python code that gets the events of each run.

    `python` names a class or a function. Each run calls it once, with the arguments in `with`. It
    returns the observer: an object that is called with each event.
    """

    python: Function
    arguments: dict[str, Any] = Field(default_factory=dict, alias="with")


class PrometheusEndpoint(Strict):
    """The HTTP endpoint for Prometheus.

    It has no login and no encryption. Port 0 is any free port, which the run logs.
    """

    port: int = Field(default=9464, ge=0, le=65535)
    address: str = Field(default="127.0.0.1", min_length=1)


class PushGateway(Strict):
    """The push gateway to which a run pushes its metrics when it ends."""

    url: str = Field(pattern=URL_PATTERN)
    job: str = Field(default="eos", min_length=1)


class OpenTelemetry(Strict):
    """The collector that gets a run's traces and metrics, by OTLP over HTTP.

    `endpoint` is its address without the path of a signal, such as `http://collector:4318`.
    """

    endpoint: str = Field(pattern=URL_PATTERN)
    headers: dict[str, str] = Field(default_factory=dict)
    traces: bool = True
    metrics: bool = True
    interval_s: int = Field(default=60, ge=1, le=3600)


class OpenLineage(Strict):
    """The collector that gets a run's lineage as OpenLineage's run events, by HTTP.

    `url` is its address without `endpoint`, the path to which events are posted. `namespace` is the
    namespace of the job; the job's name is the pipeline's. At most every `interval_s` seconds a run
    sends what it has written since its start.
    """

    url: str = Field(pattern=URL_PATTERN)
    endpoint: str = Field(default="api/v1/lineage", pattern=PATH_PATTERN)
    namespace: str = Field(default="eos", min_length=1)
    headers: dict[str, str] = Field(default_factory=dict)
    interval_s: int = Field(default=60, ge=1, le=3600)


class MetricsProfile(Strict):
    """The metrics of runs. Without this part there are none."""

    prometheus: PrometheusEndpoint | None = None
    push: PushGateway | None = None
