"""Observers of users: they see all events, and none of them can disturb a run or another one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.docs import blocks
from support.errors import raises

from eos.config.model import ProfileFile
from eos.config.monitoring import MetricsProfile
from eos.errors import FencedError, UsageError
from eos.observe import events
from eos.observe.bus import Bus
from eos.observe.observer_thread import ObserverThread
from eos.run import observing as observing_module
from eos.run.observing import LoadedObserver, load_observers, observing

OFF = MetricsProfile()
HANG_S = 300  # a bound that a passing test never reaches


def skipped(number: int) -> events.MicroBatchSkipped:
    return events.MicroBatchSkipped(batch_id=number)


class Hanging:
    """An observer that hangs in its first event until it is released."""

    def __init__(self) -> None:
        self.entered, self.released = threading.Event(), threading.Event()
        self.seen: list[events.Event] = []

    def __call__(self, event: events.Event) -> None:
        self.entered.set()
        self.released.wait(HANG_S)
        self.seen.append(event)


def observer(call: Callable[[events.Event], object]) -> LoadedObserver:
    return LoadedObserver("m:Observer", lambda: call)


def test_an_observer_sees_each_event_in_order_and_is_closed_after_the_last() -> None:
    seen: list[Any] = []

    class Seeing:
        def __call__(self, event: events.Event) -> None:
            seen.append(event)

        def close(self) -> None:
            seen.append("closed")

    with closing(Bus()) as bus, observing("p", bus, [LoadedObserver("m:O", Seeing)], OFF):
        for number in range(100):
            bus.emit(skipped(number))
    assert seen == [*(skipped(number) for number in range(100)), "closed"]


def test_a_hanging_observer_holds_up_neither_the_run_nor_another_one() -> None:
    hanging, seen, arrived = Hanging(), [], threading.Event()

    def sees(event: events.Event) -> None:
        seen.append(event)
        if event == skipped(9):
            arrived.set()

    bus = Bus()
    with observing("p", bus, [observer(hanging), observer(sees)], OFF):
        bus.emit(skipped(0))
        assert hanging.entered.wait(HANG_S)
        for number in range(1, 10):
            bus.emit(skipped(number))
        assert arrived.wait(HANG_S)  # while the other one hangs
        assert not hanging.seen
        hanging.released.set()
    assert seen == hanging.seen == [skipped(number) for number in range(10)]


def test_a_run_ends_while_an_observer_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing_module, "_CLOSE_S", 0.01)
    hanging, bus = Hanging(), Bus()
    with observing("p", bus, [observer(hanging)], OFF):
        bus.emit(skipped(0))
        assert hanging.entered.wait(HANG_S)
    assert not hanging.released.is_set()
    hanging.released.set()


def test_an_observer_that_hangs_takes_no_time_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observing_module, "_CLOSE_S", 2)
    hanging, closed, bus = Hanging(), threading.Event(), Bus()

    class Closing:
        def __call__(self, event: events.Event) -> None: ...

        def close(self) -> None:
            closed.set()

    with observing("p", bus, [observer(hanging), LoadedObserver("m:C", Closing)], OFF):
        bus.emit(skipped(0))
        assert hanging.entered.wait(HANG_S)
        waiting = threading.Thread(target=lambda: closed.wait(HANG_S) and hanging.released.set())
        waiting.start()
    assert hanging.seen == [skipped(0)], "it ends only after the other one was closed"
    waiting.join()


def test_a_flooded_observer_loses_events_which_are_counted_and_warned_about_once() -> None:
    hanging, warned = Hanging(), []
    thread = ObserverThread("m:Observer", lambda: hanging, warned.append, events_max=5)
    thread(skipped(0))
    assert hanging.entered.wait(HANG_S)
    for number in range(1, 11):
        thread(skipped(number))  # returns, although the observer hangs
    assert thread.dropped == 5
    assert len(warned) == 1
    assert "observer m:Observer is too slow or hangs: it has 5 events" in warned[0]
    hanging.released.set()
    thread.end()
    thread.join(HANG_S)
    assert hanging.seen == [skipped(number) for number in range(6)]


@pytest.mark.parametrize("error", [RuntimeError("no"), SystemExit(1)])
def test_a_failing_observer_gets_the_next_event_and_is_warned_about_once(
    error: BaseException,
) -> None:
    seen, bus, others, arrived = [], Bus(), [], threading.Event()
    bus.subscribe(others.append)
    bus.subscribe(lambda event: isinstance(event, events.Warned) and arrived.set())

    def fails(event: events.Event) -> None:
        if isinstance(event, events.MicroBatchSkipped):
            seen.append(event)
            raise error

    with observing("p", bus, [observer(fails)], OFF):
        for number in range(10):
            bus.emit(skipped(number))
        assert arrived.wait(HANG_S)
    assert seen == [skipped(number) for number in range(10)]
    (warned,) = [each for each in others if isinstance(each, events.Warned)]
    assert "observer m:Observer failed, and gets the next event" in warned.message
    assert type(error).__name__ in warned.message


def test_an_observer_that_can_not_be_created_is_warned_about() -> None:
    warned: list[str] = []

    def fails() -> Any:
        raise RuntimeError("no route")

    thread = ObserverThread("m:Observer", fails, warned.append)
    thread.end()
    thread.join(HANG_S)
    thread(skipped(0))
    assert warned == [
        "observer m:Observer can't be created, and gets no events: RuntimeError: no route"
    ]


def test_the_error_that_ends_a_run_is_its_last_event() -> None:
    seen: list[events.Event] = []
    error = FencedError("fenced", "another instance took over", hint="look")
    with (
        pytest.raises(FencedError),
        closing(Bus()) as bus,
        observing("p", bus, [observer(seen.append)], OFF),
    ):
        raise error
    assert seen == [
        events.RunFailed("p", "fenced", "fenced", "p: another instance took over", "look", 3)
    ]


def test_an_error_of_no_class_of_ours_is_reported_too() -> None:
    seen: list[events.Event] = []
    with (
        pytest.raises(ValueError, match="what"),
        observing("p", Bus(), [observer(seen.append)], OFF),
    ):
        raise ValueError("what")
    assert seen == [events.RunFailed("p", "unexpected_error", "ValueError", "what", "", 5)]


# --- the profile ----------------------------------------------------------------------------------

MODULE = """
class Observer:
    def __init__(self, url, channel="#ops"):
        self.given = url, channel
    def __call__(self, event): ...
def nothing(): ...
VALUE = 7
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"observe_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def profile(python: str, **arguments: object) -> ProfileFile:
    return ProfileFile.model_validate({"observers": [{"python": python, "with": arguments}]})


def test_an_observer_gets_the_arguments_of_the_profile(module: str) -> None:
    (loaded,) = load_observers(profile(f"{module}:Observer", url="http://x"))
    assert loaded.name == f"{module}:Observer"
    made: Any = loaded.make()
    assert made.given == ("http://x", "#ops")


@pytest.mark.parametrize(
    ("name", "arguments", "code", "text"),
    [
        ("nowhere_at_all:Observer", {}, "observer_import_failed", "No module named"),
        ("{}:Observr", {}, "observer_missing", "no class or function `Observr`"),
        ("{}:VALUE", {}, "observer_missing", "no class or function `VALUE`"),
        ("{}:Observer", {}, "observer_arguments_invalid", "'url'"),
        ("{}:Observer", {"url": "u", "x": 1}, "observer_arguments_invalid", "'x'"),
    ],
)
def test_a_wrong_name_or_argument_ends_a_run_before_it_begins(
    module: str, name: str, arguments: dict[str, object], code: str, text: str
) -> None:
    with raises(code, UsageError) as caught:
        load_observers(profile(name.format(module), **arguments))
    assert text in caught.value.message


def test_what_is_made_must_be_an_observer(module: str) -> None:
    (loaded,) = load_observers(profile(f"{module}:nothing"))
    with pytest.raises(TypeError, match="expected a function of an event, got NoneType"):
        loaded.make()


# --- the page's example ---------------------------------------------------------------------------


def test_the_example_posts_what_went_wrong(tmp_path: Path, monkeypatch) -> None:
    (text,) = [text for name, text in blocks("python") if name.startswith("observers.md")]
    (declared,) = [yaml.safe_load(t) for n, t in blocks("yaml") if "mypackage.observe" in t]
    (tmp_path / "mypackage").mkdir()
    (tmp_path / "mypackage" / "observe.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    posted: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        declared["observers"][0]["with"]["url"] = f"http://127.0.0.1:{server.server_port}"
        loaded = load_observers(ProfileFile.model_validate(declared))
        bus = Bus()
        with suppress(FencedError), observing("orders", bus, loaded, OFF):
            bus.emit(skipped(0))
            raise FencedError("fenced", "another instance took over")
        server.shutdown()
    assert [each["text"] for each in posted] == ["orders ended: orders: another instance took over"]
    written = [
        line for line in text.splitlines() if line and not line.startswith(("import", "from"))
    ]
    assert len(written) <= 10, "an example of ten lines"
