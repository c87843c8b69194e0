"""The lineage that a run sends, as a collector of OpenLineage's events gets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from support.collectors.lineage import Collector, amounts_of, names_of, require_valid
from support.collectors.run_events import STORY, committed
from support.errors import raises
from support.waiting import wait_until

import eos
from eos.config.load import load_pipeline
from eos.config.model import ProfileFile
from eos.config.monitoring import MetricsProfile, OpenLineage
from eos.errors import EosError, FencedError, TransformError, UsageError
from eos.observe import events, lineage
from eos.observe.bus import Bus
from eos.observe.lineage import LineageOfPlan, RunLineage, client_of
from eos.plan.plan import Plan, plan
from eos.run import observing as observing_module
from eos.run.observing import lineage_observers, load_observers, observing

PIPELINE = """\
version: 1
name: orders
source: {kafka: {topics: [in, more]}}
tables: {names: {delta: "s3a://lake/names", columns: "k INT"}}
trigger: {available_now: true}
sink:
  kafka: {topic: out}
  delta: [{path: lake/all}, {path: "hdfs://node:8020/lake/last", name: last}]
  dead_letter: {topic: dead}
"""
STARTED = events.PipelineStarted("orders")
STOPPED = events.Stopped("orders", "drained")


@pytest.fixture(autouse=True)
def _no_other_run() -> Iterator[None]:
    """A run leaves its thread behind if the collector hangs. It logs when it ends."""
    yield
    name = "eos-observer openlineage"
    wait_until(lambda: all(each.name != name for each in threading.enumerate()))


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The client also reads settings of the environment and of the current folder."""
    for name in [each for each in os.environ if each.startswith("OPENLINEAGE")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with closing(Collector()) as found:
        yield found


def planned(folder: Path, text: str = PIPELINE) -> Plan:
    path = folder / "pipelines" / "orders" / "pipeline.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return plan(load_pipeline(path, {}), ProfileFile(), ("[::1]:9092", "b:9092"), ())


@contextmanager
def sending(url: str, **options: Any) -> Iterator[tuple[Bus, list[str]]]:
    """A run that sends its lineage. Yield its bus, and the list of its warnings."""
    bus, warned = Bus(), []

    def note(event: events.Event) -> None:
        if isinstance(event, events.Warned):
            warned.append(event.message)

    bus.subscribe(note)
    of = options.pop("planned", None) or planned(Path())
    profile = ProfileFile.model_validate({"openlineage": {"url": url, **options}})
    with observing("orders", bus, lineage_observers(profile, of), MetricsProfile()):
        yield bus, warned


def emit(bus: Bus, *story: events.Event) -> None:
    for event in story:
        bus.emit(event)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def observer_of(url: str, clock: Callable[[], float], **values: Any) -> RunLineage:
    of = LineageOfPlan(
        "eos", "orders", is_bounded=False, kafka_in="kafka://a:1", kafka="kafka://a:1", **values
    )
    return RunLineage(of, client_of(url, "api/v1/lineage", {}), 60, clock)


# --- events ---------------------------------------------------------------------------------------


def test_a_run_is_two_events_with_its_datasets(collector: Collector) -> None:
    with sending(collector.url, namespace="shop") as (bus, warned):
        emit(bus, *STORY, STOPPED)
    assert warned == ["look"]
    assert collector.paths == {"/api/v1/lineage"}
    assert collector.states() == ["START", "COMPLETE"]
    start, complete = collector.events
    kafka = "kafka://[::1]:9092"
    for event in (start, complete):
        require_valid(event)
        assert (event["job"]["namespace"], event["job"]["name"]) == ("shop", "orders")
        kind = event["job"]["facets"]["jobType"]
        assert (kind["processingType"], kind["integration"]) == ("BATCH", "EOS")
        engine = event["run"]["facets"]["processing_engine"]
        assert (engine["name"], engine["openlineageAdapterVersion"]) == ("spark", eos.__version__)
        assert names_of(event["inputs"]) == [
            (kafka, "in"),
            (kafka, "more"),
            ("s3://lake", "names"),
        ]
    written = [(kafka, "out"), (kafka, "dead")]
    tables = [("file", f"{Path.cwd()}/lake/all"), ("hdfs://node:8020", "/lake/last")]
    assert names_of(start["outputs"]) == [*written, *tables]
    assert names_of(complete["outputs"]) == [*written, (kafka, "large"), *tables]
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert start["eventTime"] < complete["eventTime"]
    assert amounts_of(start) == {}
    assert amounts_of(complete) == {"out": (8, 800), "dead": (0, 0), "large": (1, 100)}


def test_each_run_has_an_id_of_its_own(collector: Collector) -> None:
    for _ in range(2):
        with closing(observer_of(collector.url, Clock())) as observer:
            observer(STOPPED)
    assert len({each["run"]["runId"] for each in collector.events}) == 2
    assert collector.events[0]["job"]["facets"]["jobType"]["processingType"] == "STREAMING"


def test_running_events_have_all_amounts_and_an_interval(collector: Collector) -> None:
    clock = Clock()
    observer = observer_of(collector.url, clock, topics_out=["out", "large"])
    observer(STARTED)
    for clock.now in range(0, 60, 5):
        observer(committed(clock.now))
    assert collector.states() == ["START"]
    clock.now = 60
    observer(events.AuditFollowed(0))  # any event will do once the time has come
    assert collector.states() == ["START", "RUNNING"]
    observer(committed(61))
    clock.now = 119
    observer(committed(62))
    assert collector.states() == ["START", "RUNNING"]
    clock.now = 120
    observer(committed(63))
    clock.now = 300
    observer(events.AuditFollowed(0))  # nothing was written since
    observer(STOPPED)
    observer.close()
    assert collector.states() == ["START", "RUNNING", "RUNNING", "COMPLETE"]
    assert [amounts_of(each)["out"] for each in collector.events[1:]] == [
        (12 * 8, 12 * 800),
        (15 * 8, 15 * 800),
        (15 * 8, 15 * 800),
    ]


def test_topics_of_a_pattern_are_inputs_once_they_were_read(
    collector: Collector, tmp_path: Path
) -> None:
    text = PIPELINE.replace("topics: [in, more]", 'pattern: "in.*"')
    with sending(collector.url, planned=planned(tmp_path, text)) as (bus, _):
        emit(bus, STARTED, committed(offsets_in_by_topic={"in.b": 1, "in.a": 1}), STOPPED)
    start, complete = (names_of(each["inputs"]) for each in collector.events)
    assert start == [("s3://lake", "names")]
    assert complete == [("kafka://[::1]:9092", each) for each in ("in.b", "in.a")] + start


@pytest.mark.parametrize(
    ("error", "state", "message"),
    [
        (
            FencedError("owned", "taken by b", hint="stop"),
            "ABORT",
            "[owned] orders: taken by b\nhint",
        ),
        (TransformError("bad_step", "no column"), "FAIL", "[bad_step] orders: no column"),
        (ZeroDivisionError("by zero"), "FAIL", "[unexpected_error] by zero"),
        (SystemExit(1), "ABORT", None),
    ],
)
def test_an_error_is_the_outcome(
    collector: Collector, error: BaseException, state: str, message: str | None
) -> None:
    with suppress(type(error)), sending(collector.url) as (bus, _):
        emit(bus, STARTED)
        raise error
    assert collector.states() == ["START", state]
    facet = collector.events[1]["run"]["facets"].get("errorMessage")
    require_valid(collector.events[1])
    if message is None:
        assert facet is None
    else:
        assert facet["message"].startswith(message)
        assert facet["programmingLanguage"] == "PYTHON"


def test_an_error_after_the_stop_is_the_only_outcome(collector: Collector) -> None:
    with suppress(EosError), sending(collector.url) as (bus, _):
        emit(bus, STARTED, STOPPED)
        raise FencedError("owned", "taken while the stop was recorded")
    assert collector.states() == ["START", "ABORT"]


def test_a_run_that_ends_before_its_query_starts_has_both_events(collector: Collector) -> None:
    with suppress(EosError), sending(collector.url):
        raise EosError("topic_missing", "no topic")
    assert collector.states() == ["START", "FAIL"]


# --- the collector --------------------------------------------------------------------------------


def test_where_and_how_events_are_posted(collector: Collector) -> None:
    headers = {"Authorization": "Bearer secret"}
    url = f"{collector.url}/openapi"
    with sending(url, endpoint="/lineage", headers=headers) as (bus, _):
        emit(bus, STARTED, STOPPED)
    assert collector.paths == {"/openapi/lineage"}
    assert len(collector.headers) == 2
    for found in collector.headers:
        assert found["Connection"] == "close"
        assert (found["Authorization"], found["Content-Type"]) == (
            "Bearer secret",
            "application/json",
        )


def test_the_client_can_be_disabled_by_its_own_variable(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    with sending(collector.url) as (bus, warned):
        emit(bus, STARTED, STOPPED)
    assert (collector.asked, warned) == (0, [])


def test_no_password_of_a_git_remote_is_sent(collector: Collector) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(["git", "remote", "add", "origin", "https://u:secret@host/x"], check=True)
    with closing(observer_of(collector.url, Clock())) as observer:
        observer(STOPPED)
    assert len(collector.events) == 2
    assert "secret" not in json.dumps(collector.events)


def test_a_lost_start_is_sent_before_the_next_event(collector: Collector) -> None:
    clock = Clock()
    observer = observer_of(collector.url, clock)
    collector.answers = [503]
    with pytest.raises(OSError, match="503"):
        observer(STARTED)
    clock.now = 60
    observer(committed())
    assert collector.states() == ["START", "RUNNING"]


def test_the_outcome_is_sent_again(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "_RETRY_AFTER_S", (0.0, 0.0))
    observer = observer_of(collector.url, Clock())
    observer(STARTED)
    observer(STOPPED)
    collector.answers = [503, 500]
    observer.close()
    assert collector.states() == ["START", "COMPLETE"]
    assert collector.asked == 4
    collector.answers, collector.asked = [503] * 9, 0
    with pytest.raises(OSError, match="503"):
        observer.close()
    assert collector.asked == 3


@pytest.mark.parametrize(("status", "told"), [(401, "401"), (None, "refused")])
def test_a_collector_that_accepts_nothing_is_one_warning(
    status: int | None, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(Collector()) as found:
        found.answers = [status or 200] * 99
        if status is None:
            found.close()
        with sending(found.url) as (bus, warned):
            emit(bus, *STORY)
            wait_until(lambda: any("openlineage" in each for each in warned))
    (warning,) = (each for each in warned if "openlineage" in each)
    assert told in warning
    assert found.events == []
    assert caplog.records == [], "Python would print them on stderr"


def test_a_collector_that_hangs_delays_neither_a_micro_batch_nor_the_end(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observing_module, "_CLOSE_S", 0.01)
    monkeypatch.setattr(lineage, "_TIMEOUT_S", 600.0)
    collector.is_hanging = True
    seen: list[events.Event] = []
    with sending(collector.url) as (bus, _):
        bus.subscribe(seen.append)
        emit(bus, *STORY)
        wait_until(lambda: collector.asked == 1 and len(seen) == len(STORY))
        emit(bus, STOPPED)
    assert (collector.asked, collector.events) == (1, []), "the first request still hangs"


def test_a_request_has_a_time_limit(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "_TIMEOUT_S", 0.05)
    collector.is_hanging = True
    with pytest.raises(OSError, match="timed out"):
        observer_of(collector.url, Clock())(STARTED)


# --- the profile ----------------------------------------------------------------------------------


def test_without_its_packages_a_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "eos.observe.lineage")
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    declared = {"openlineage": {"url": "http://collector:5000"}}
    with raises("openlineage_missing", UsageError) as caught:
        load_observers(ProfileFile.model_validate(declared))
    assert "pip install 'spark-eos[openlineage]'" in caught.value.hint
    load_observers(ProfileFile())


def test_only_a_profile_with_the_key_sends_lineage(tmp_path: Path) -> None:
    of = planned(tmp_path)
    assert lineage_observers(ProfileFile(), of) == ()
    assert not ProfileFile().is_observed
    profile = ProfileFile(openlineage=OpenLineage(url="http://c"))
    assert profile.is_observed
    (found,) = lineage_observers(profile, replace(of, bootstrap=("a:1",)))
    assert isinstance(found.make(), RunLineage)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"url": "collector:5000"},
        {"url": "http://u:p@c:5000"},
        {"url": "http://c", "endpoint": "a b"},
        {"url": "http://c", "endpoint": ""},
        {"url": "http://c", "endpoint": "http://other/x"},
        {"url": "http://c", "endpoint": "//other/x"},
        {"url": "http://c", "endpoint": "lineage:send"},
        {"url": "http://c", "namespace": ""},
        {"url": "http://c", "interval_s": 0},
        {"url": "http://c", "api_key": "k"},
    ],
)
def test_what_is_no_collector(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        OpenLineage.model_validate(wrong)
