"""Observers and metrics of a profile: how they are loaded, and get the events of a run.

They can't affect a run. Only a wrong name or wrong arguments in the profile end it, before anything
began (`load_observers`).
"""

from __future__ import annotations

import importlib
import inspect
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import eos
from eos.errors import EosError, Recovery, UsageError, about, exit_code
from eos.observe import events
from eos.observe.bus import Bus
from eos.observe.console import Console
from eos.observe.observer_thread import ObserverThread
from eos.plan.lineage import lineage_of
from eos.plan.plan import Plan

if TYPE_CHECKING:
    from eos.config.model import Profile
    from eos.config.monitoring import MetricsProfile, Observer, OpenTelemetry
    from eos.observe.joined_metrics import JoinedMetrics
    from eos.observe.metrics import RunMetrics

_CLOSE_S = 5.0  # for all observers together
_COUNTER = "metrics"  # name of the thread that counts events
_HINT = "correct `observers` in the profile: docs/observers.md"


@dataclass(frozen=True, slots=True)
class LoadedObserver:
    """An imported observer whose arguments fit; `make` creates it."""

    name: str
    make: Callable[[], Callable[[events.Event], object]]


def load_observers(profile: Profile) -> Sequence[LoadedObserver]:
    """Import the profile's observers. Raise UsageError if a name or arguments are wrong, or the
    packages for OpenTelemetry or OpenLineage are missing.

    To be called after the pipeline's steps are loaded: the project's folder is then on the path.
    """
    if profile.opentelemetry is not None:
        _require_opentelemetry()
    if profile.openlineage is not None:
        _require_openlineage()
    return [_load(each) for each in profile.observers]


def _require_opentelemetry() -> None:
    try:
        importlib.import_module("eos.observe.telemetry")
    except ImportError as error:
        raise UsageError(
            "opentelemetry_missing",
            f"the profile has `opentelemetry`, and its packages can't be imported: {error}",
            hint="pip install 'spark-eos[opentelemetry]'",
        ) from error


def _require_openlineage() -> None:
    try:
        importlib.import_module("eos.observe.lineage")
    except ImportError as error:
        raise UsageError(
            "openlineage_missing",
            f"the profile has `openlineage`, and its packages can't be imported: {error}",
            hint="pip install 'spark-eos[openlineage]'",
        ) from error


def lineage_observers(profile: Profile, planned: Plan) -> Sequence[LoadedObserver]:
    """Return the observer that sends a run's lineage, if the profile has `openlineage`."""
    wanted = profile.openlineage
    return (
        ()
        if wanted is None
        else (LoadedObserver("openlineage", partial(lineage_of, planned, wanted)),)
    )


def _load(observer: Observer) -> LoadedObserver:
    module_name, _, name = observer.python.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise UsageError(
            "observer_import_failed",
            f"observer `{observer.python}` can't be imported: {type(error).__name__}: {error}",
            hint=f"run `python -c 'import {module_name}'` in the folder that contains pipelines/; "
            "a module is in that folder, or is installed",
        ) from error
    found = getattr(module, name, None)
    if not callable(found):
        raise UsageError(
            "observer_missing",
            f"observer `{observer.python}`: module `{module_name}` has no class or function "
            f"`{name}`",
            hint=_HINT,
        )
    try:
        inspect.signature(found).bind(**observer.arguments)
    except (TypeError, ValueError) as error:
        raise UsageError(
            "observer_arguments_invalid",
            f"observer `{observer.python}` does not accept its arguments: {error}",
            hint=f"{_HINT}; `with` has them by name",
        ) from error
    return LoadedObserver(observer.python, partial(_made, found, dict(observer.arguments)))


def _made(call: Callable[..., Any], arguments: dict[str, Any]) -> Callable[[events.Event], object]:
    observer: Callable[[events.Event], object] = call(**arguments)
    if not callable(observer):
        raise TypeError(f"expected a function of an event, got {type(observer).__name__}")
    return observer


@contextmanager
def observing(
    pipeline: str,
    bus: Bus,
    observers: Sequence[LoadedObserver],
    metrics: MetricsProfile,
    collector: OpenTelemetry | None = None,
    joined: JoinedMetrics | None = None,
) -> Iterator[None]:
    """Hand the events of this context, and the error that ends it, to the observers and metrics.

    `joined` has the metrics of several pipelines, which the process serves; else this run does.
    At the end the bus is closed. Observers have a few seconds for the events that they still have
    to handle.
    """

    def warn(text: str) -> None:
        event = events.Warned(text)
        if bus.is_closed:
            Console()(event)
        else:
            bus.emit(event)

    threads = [ObserverThread(each.name, each.make, warn) for each in observers]
    counted = None
    with ExitStack() as stack:
        if metrics.prometheus or metrics.push or (collector and collector.metrics):
            counted = _measuring(pipeline, bus, metrics, joined, threads, warn, stack)
        if collector is not None:
            _exporting(pipeline, collector, counted, threads, warn, stack)
        for each in threads:
            bus.subscribe(each)
        stack.callback(_close, bus, threads)
        try:
            yield
        except Exception as error:
            bus.emit(_run_failed(pipeline, error))
            raise


def _measuring(
    pipeline: str,
    bus: Bus,
    wanted: MetricsProfile,
    joined: JoinedMetrics | None,
    threads: list[ObserverThread],
    warn: Callable[[str], None],
    stack: ExitStack,
) -> RunMetrics:
    """Add a thread that counts events to the observers' threads, and open the endpoint. The stack
    closes it, after the last values are pushed."""
    # imported late: runs without metrics do not need it
    from eos.observe.exposition import Endpoint, push
    from eos.observe.metrics import RunMetrics

    found = RunMetrics(pipeline, _versions())
    thread = ObserverThread(_COUNTER, lambda: found, warn)
    threads.append(thread)
    found.registry.watch(threads)
    collected = found.registry.collected
    if joined is not None:
        joined.replace(pipeline, collected)
    elif wanted.prometheus is not None:
        at = wanted.prometheus
        try:
            endpoint = Endpoint(collected, at.address, at.port)
        except OSError as error:
            warn(f"metrics are not served at {at.address}, port {at.port}: {error.strerror}")
        else:
            stack.callback(endpoint.close)
            bus.emit(events.MetricsServed(endpoint.url))
    if wanted.push is not None:
        stack.callback(push, collected, wanted.push.url, wanted.push.job, pipeline, warn)
    return found


def _exporting(
    pipeline: str,
    collector: OpenTelemetry,
    counted: RunMetrics | None,
    threads: list[ObserverThread],
    warn: Callable[[str], None],
    stack: ExitStack,
) -> None:
    """Add the threads that send traces and metrics to a collector."""
    # imported late: other runs do without these packages
    from eos.observe import telemetry

    stack.enter_context(telemetry.reported_once(warn))
    to = (pipeline, collector.endpoint, collector.headers)
    if counted is not None and collector.metrics:
        what = (counted.registry.collected, collector.interval_s)
        metrics = partial(telemetry.metrics_of, *to, *what)
        threads.append(ObserverThread("opentelemetry metrics", metrics, warn))
    if collector.traces:
        traces = partial(telemetry.traces_of, *to)
        threads.append(ObserverThread("opentelemetry traces", traces, warn))


def _versions() -> dict[str, str]:
    python = ".".join(map(str, sys.version_info[:3]))
    return {"version": eos.__version__, "python": python, "pyspark": version("pyspark")}


def _close(bus: Bus, threads: Sequence[ObserverThread]) -> None:
    bus.close()
    ends_at = time.monotonic() + _CLOSE_S
    # First the thread that counts, which runs no code of the user: exporters read its counts.
    for is_counter in (True, False):
        ending = [each for each in threads if (each.name == _COUNTER) is is_counter]
        for each in ending:  # all before the first wait: one that hangs takes no other one's time
            each.end()
        for each in ending:
            each.join(max(0.0, ends_at - time.monotonic()))


def _run_failed(pipeline: str, error: Exception) -> events.RunFailed:
    if not isinstance(error, EosError):
        kind, text = type(error).__name__, str(error)[:500]
        restart = Recovery.RESTART.value  # as `run.main` reports it
        return events.RunFailed(pipeline, "unexpected_error", kind, text, "", restart)
    named = about(pipeline, error)
    return events.RunFailed(
        pipeline, named.code, named.kind, named.message, named.hint, exit_code(named)
    )
