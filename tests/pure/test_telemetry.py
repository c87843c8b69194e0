"""The traces and metrics that a run sends, as a collector gets them."""

from __future__ import annotations

import itertools
import logging
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from pydantic import ValidationError
from support.collectors.otlp import Collector, values
from support.collectors.run_events import STORY, committed
from support.errors import raises
from support.waiting import wait_until

import eos
from eos.config.model import ProfileFile
from eos.config.monitoring import MetricsProfile, OpenTelemetry, PrometheusEndpoint
from eos.errors import UsageError
from eos.observe import events
from eos.observe.bus import Bus
from eos.observe.metrics import RunMetrics
from eos.observe.telemetry import resource_of
from eos.run.observing import load_observers, observing

ERROR, UNSET = Status.STATUS_CODE_ERROR, Status.STATUS_CODE_UNSET


@pytest.fixture(autouse=True)
def _no_other_run() -> Iterator[None]:
    """A run leaves threads of the SDK behind if the collector is away. They log when they end."""
    logging.getLogger("opentelemetry").propagate = True
    yield
    wait_until(lambda: not any(each.name.startswith("Otel") for each in threading.enumerate()))


@pytest.fixture
def collector() -> Iterator[Collector]:
    with closing(Collector()) as found:
        yield found


@contextmanager
def sending(endpoint: str, **options: Any) -> Iterator[tuple[Bus, list[str]]]:
    """A run that sends to a collector. Yield its bus, and the list of its warnings."""
    bus, warned = Bus(), []

    def note(event: events.Event) -> None:
        if isinstance(event, events.Warned):
            warned.append(event.message)

    bus.subscribe(note)
    wanted = OpenTelemetry.model_validate({"endpoint": endpoint, **options})
    with observing("orders", bus, [], MetricsProfile(), wanted):
        yield bus, warned


def emit(bus: Bus, story: Iterable[events.Event]) -> None:
    for event in story:
        bus.emit(event)


# --- traces ---------------------------------------------------------------------------------------


def test_a_micro_batch_is_a_span_with_its_attempts_and_steps(collector: Collector) -> None:
    with sending(collector.endpoint, metrics=False) as (bus, warned):
        emit(bus, STORY)
    assert warned == ["look"]
    assert collector.metrics == {}
    spans = {each.name: each for each in collector.spans}
    steps = ("run", "ledger", "offsets", "end")
    children = {"attempt 1", "attempt 2", *steps, "table lake"}
    # Micro-batch 2 was skipped, and 4 is still running at the end.
    assert {each.name for each in collector.spans if not each.parent_span_id} == {
        "micro-batch 1",
        "micro-batch 3",
    }
    root = spans["micro-batch 1"]
    of_root = {e.name for e in collector.spans if e.parent_span_id == root.span_id}
    assert of_root == children
    assert {e.trace_id for e in collector.spans if e.name in steps} == {root.trace_id}
    assert root.trace_id != spans["micro-batch 3"].trace_id

    ends = root.end_time_unix_nano
    for name, ms in zip(reversed(steps), (20, 5, 3, 200), strict=True):
        step = spans[name]
        assert step.end_time_unix_nano == ends
        ends -= ms * 1_000_000
        assert step.start_time_unix_nano == ends
    table = spans["table lake"]
    assert table.end_time_unix_nano - table.start_time_unix_nano == 1_500_000_000
    assert values(root.attributes) == {
        "eos.pipeline": "orders",
        "eos.batch_id": 1,
        "eos.attempt": 1,
        "eos.producer_id": -1,
        "eos.epoch": -1,
        "eos.ledger_end": 7,
        "eos.offsets_in": 12,
        "eos.records_in": 10,
        "eos.records_out": 9,
        "eos.bytes_out": 900,
    }


def test_an_aborted_attempt_is_an_error_if_something_failed(collector: Collector) -> None:
    failed = events.AttemptFailed(5, 1, "disk", will_redo=False, code="disk_full")
    ended = events.RunFailed("orders", "disk_full", "unavailable", "no space", "", 5)
    with sending(collector.endpoint, metrics=False) as (bus, _):
        emit(bus, STORY[:-2])
        emit(bus, [events.AttemptStarted(5, 1, 5, 4), failed])
        emit(bus, [events.AttemptStarted(6, 1, 5, 5), ended])
    found = [
        (span.name, span.status.code, span.status.message, values(span.attributes)["eos.outcome"])
        for span in collector.spans
        if span.name.startswith("attempt")
    ]
    assert found == [
        ("attempt 1", ERROR, "why", "failed"),
        ("attempt 2", UNSET, "", "retried"),
        ("attempt 1", UNSET, "", "stopped"),
        ("attempt 1", ERROR, "disk", "disk_full"),
    ]
    roots = {
        e.name: (e.status.code, e.status.message) for e in collector.spans if "batch" in e.name
    }
    assert roots == {
        "micro-batch 1": (UNSET, ""),
        "micro-batch 3": (UNSET, ""),
        "micro-batch 5": (ERROR, "disk"),
        "micro-batch 6": (ERROR, "no space"),
    }


CONTEXTS = [f"00-{number:032x}-{number:016x}-01" for number in range(1, 41)]


def test_a_micro_batch_links_the_traces_of_its_records(
    collector: Collector, capsys: pytest.CaptureFixture[str]
) -> None:
    first = events.TraceContextsRead(1, (*CONTEXTS[:3], f"00-{0:032x}-{1:016x}-01", "no context"))
    again = events.TraceContextsRead(1, tuple(CONTEXTS[2:]))  # of the next attempt
    with sending(collector.endpoint, metrics=False) as (bus, warned):
        emit(bus, [events.TraceContextsRead(0, tuple(CONTEXTS)), events.AttemptStarted(1, 1, 5, 0)])
        emit(bus, [first, events.AttemptRetried(1, 1, "duplicates")])
        emit(bus, [events.AttemptStarted(1, 2, 5, 1), again, committed()])
        emit(bus, [events.AttemptStarted(2, 1, 5, 2), committed(2)])
    assert (warned, capsys.readouterr().err) == ([], "")
    links = {e.name: e.links for e in collector.spans if not e.parent_span_id}
    numbers = [int(link.trace_id.hex(), 16) for link in links["micro-batch 1"]]
    assert numbers == list(range(1, 33))
    assert [int(link.span_id.hex(), 16) for link in links["micro-batch 1"]] == numbers
    assert not links["micro-batch 2"]


# --- metrics --------------------------------------------------------------------------------------


def test_the_metrics_are_those_of_prometheus(collector: Collector) -> None:
    counted = RunMetrics("orders", {"version": "1"})
    story = (*STORY, events.Stopped("orders", "drained"))
    with sending(collector.endpoint, traces=False, interval_s=3600) as (bus, _):
        emit(bus, story)
    for event in story:
        counted(event)
    assert collector.spans == []
    checked = 0
    for family in counted.registry.collected.collect():
        sent = collector.metrics.pop(family.name)
        assert sent.description == family.documentation
        if family.type == "histogram":
            require_same_histogram(family, sent.histogram)
            continue
        kind = "sum" if family.type == "counter" else "gauge"
        points = getattr(sent, kind).data_points
        assert sent.WhichOneof("data") == kind
        assert kind == "gauge" or sent.sum.is_monotonic
        if family.name in ("eos_build_info", "eos_transaction_age_seconds"):
            continue
        found = {tuple(sorted(values(p.attributes).items())): p.as_double for p in points}
        wanted = {tuple(sorted(each.labels.items())): each.value for each in family.samples}
        if "timestamp" not in family.name:
            assert found == wanted, family.name
        assert set(found) == set(wanted), family.name
        checked += len(found)
    assert checked > 30
    observers = collector.metrics.pop("eos_observer_dropped_events").sum.data_points
    assert {values(p.attributes)["observer"] for p in observers} == {
        "metrics",
        "opentelemetry metrics",
    }
    assert list(collector.metrics) == ["eos_observer_failures"]


def require_same_histogram(family: Any, sent: Any) -> None:
    found = {values(each.attributes)["step"]: each for each in sent.data_points}
    steps = {each.labels["step"] for each in family.samples}
    assert set(found) == steps == {"run", "ledger", "offsets", "end", "table"}
    for step, point in found.items():
        of_step = [each for each in family.samples if each.labels["step"] == step]
        until = [each.value for each in of_step if each.name.endswith("_bucket")]
        assert list(itertools.accumulate(point.bucket_counts)) == until
        assert len(point.explicit_bounds) == len(until) - 1
        (total,) = (each.value for each in of_step if each.name.endswith("_sum"))
        assert (point.sum, point.count) == (total, until[-1])


def test_they_are_sent_while_a_run_lasts(collector: Collector) -> None:
    with sending(collector.endpoint, interval_s=1) as (bus, _):
        bus.emit(committed())
        wait_until(lambda: "eos_attempts" in collector.metrics)
        bus.emit(committed(2))
    (point,) = (
        each
        for each in collector.metrics["eos_attempts"].sum.data_points
        if values(each.attributes)["outcome"] == "committed"
    )
    assert point.as_double == 2


def test_the_last_export_has_the_last_events(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the thread that counts takes for them."""
    count = RunMetrics._count

    def late(metrics: RunMetrics, event: events.Event) -> None:
        time.sleep(0.5)
        count(metrics, event)

    monkeypatch.setattr(RunMetrics, "_count", late)
    with sending(collector.endpoint, interval_s=3600) as (bus, _):
        bus.emit(committed())
    assert "eos_attempts" in collector.metrics


def test_metrics_for_prometheus_alone_are_not_sent(collector: Collector) -> None:
    wanted = OpenTelemetry(endpoint=collector.endpoint, metrics=False)
    served = MetricsProfile(prometheus=PrometheusEndpoint(port=0))
    with observing("orders", Bus(), [], served, wanted):
        pass
    assert collector.metrics == {}


# --- the run --------------------------------------------------------------------------------------


def test_who_sends_it(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = {"Authorization": "Bearer secret"}
    with sending(f"{collector.endpoint}/", headers=headers) as (bus, _):
        emit(bus, STORY)
    assert collector.logins == {"Bearer secret"}
    for found in collector.resources:
        assert (found["service.name"], found["eos.pipeline"]) == ("eos", "orders")
        assert found["service.version"] == eos.__version__
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    assert resource_of("orders").attributes["service.name"] == "shop"


@pytest.mark.parametrize(
    ("status", "told"), [(401, "401"), (503, "Service Unavailable"), (None, "refused")]
)
def test_a_collector_that_accepts_nothing_is_one_warning(
    status: int | None, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(Collector(status or 200)) as found:
        endpoint = found.endpoint
        if status is None:
            found.close()
        with sending(endpoint, interval_s=1) as (bus, warned):
            emit(bus, STORY)
            wait_until(lambda: any("OpenTelemetry" in each for each in warned))
        assert found.spans == []
    (warning,) = (each for each in warned if "OpenTelemetry" in each)
    assert told in warning
    assert caplog.records == [], "Python would print them on stderr"


def test_a_problem_at_the_end_is_shown_although_the_bus_is_closed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with closing(Collector(401)) as found, sending(found.endpoint, interval_s=3600) as (bus, _):
        emit(bus, STORY)
        bus.close()
    assert capsys.readouterr().err.startswith("eos: warning: OpenTelemetry: ")


def test_without_its_packages_a_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "eos.observe.telemetry")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    declared = {"opentelemetry": {"endpoint": "http://collector:4318"}}
    with raises("opentelemetry_missing", UsageError) as caught:
        load_observers(ProfileFile.model_validate(declared))
    assert "pip install 'spark-eos[opentelemetry]'" in caught.value.hint
    load_observers(ProfileFile())


def test_only_a_profile_that_sends_traces_looks_for_those_of_records() -> None:
    endpoint = "http://collector:4318"
    assert ProfileFile(opentelemetry=OpenTelemetry(endpoint=endpoint)).is_traced
    wanted = OpenTelemetry(endpoint=endpoint, traces=False)
    assert not ProfileFile(opentelemetry=wanted).is_traced
    assert not ProfileFile().is_traced


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"endpoint": "collector:4318"},
        {"endpoint": "http://u:p@c:4318"},
        {"endpoint": "http://c", "interval_s": 0},
        {"endpoint": "http://c", "protocol": "grpc"},
    ],
)
def test_what_is_no_collector(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        OpenTelemetry.model_validate(wrong)
