"""The line on a terminal: what it says, and that nothing waits for it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import pty
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable

import pytest
from support.screen import Screen
from support.waiting import wait_until

from eos.faults import CrashPlan, Points
from eos.launch import submit
from eos.observe import events
from eos.observe import live as live_module
from eos.observe.bottom_line import Terminal
from eos.observe.bus import Bus
from eos.observe.live import TERMINAL, ProgressLine, show_events
from eos.run.lag_watch import lag_of, source_ends


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def live(clock: Clock) -> tuple[ProgressLine, io.StringIO]:
    stream = io.StringIO()
    return ProgressLine("orders", stream, Terminal(200), clock), stream


def committed(batch_id: int, records: int = 1000) -> events.MicroBatchCommitted:
    return events.MicroBatchCommitted(
        batch_id, 1, records + 2, records, records - 1, 2048, 1, 1, 1, 1
    )


def test_it_says_rate_lag_step_and_the_last_attempts(clock: Clock) -> None:
    line, _ = live(clock)
    assert line.line().plain == "eos: orders | 0 records/s | starts, 0 s"
    points = Points(line.watching(CrashPlan()))
    points.reached("begin:after")
    assert "| micro-batch runs: reads, transforms and writes, 0 s" in line.line().plain
    clock.now += 4
    line(committed(6))
    line(events.AttemptFailed(7, 1, "why", will_redo=True))
    line(events.AttemptStarted(7, 2, 12, 260, {}))
    line.lag = lambda: 1204
    points.reached("end_txn_sent:before")
    clock.now += 1
    assert line.line().plain == (
        "eos: orders | 200 records/s | lag 1,204 offsets | micro-batch 7: commits, 1 s | "
        "7 failed, 6 committed"
    )
    line(committed(7))
    points.reached("end_txn_answered:after")
    assert "| lag 1,204 offsets | waits for the trigger, 0 s |" in line.line().plain
    line.lag = lambda: 0
    assert line.line().plain.endswith(
        "| waits for records, 0 s | 7 committed after a retry, 6 committed"
    )
    points.kind = "refresh"
    points.reached("ledger_record:before")
    assert "| records its refresh, 0 s |" in line.line().plain
    clock.now += 60
    assert "| 0 records/s |" in line.line().plain


def test_the_parts_of_a_micro_batch_are_no_retries(clock: Clock) -> None:
    """With `max_bytes`, each part is a transaction of its own."""
    line, stream = live(clock)
    for batch_id in (41, 42, 42):
        line(events.AttemptStarted(batch_id, 1, 12, 260, {}))
        line(committed(batch_id))
    assert line.line().plain.endswith("| 42 committed, 41 committed")
    line(events.AttemptStarted(42, 1, 12, 261, {}))
    line.reached("end_txn_sent:before")
    assert "| micro-batch 42: commits, 0 s |" in line.line().plain
    line(events.Stopped("orders", "the end"))
    assert "eos: 2 micro-batches committed: 3,000 records in" in stream.getvalue()


def test_a_retry_of_dedup_is_no_failure_and_no_alarm(clock: Clock) -> None:
    line, stream = live(clock)
    line(committed(6))
    line(events.AttemptRetried(7, 1, "dedup found 2 duplicate records. Retrying"))
    assert line.line().plain.endswith("| 7 retried, 6 committed")
    line(committed(7))
    assert line.line().plain.endswith("| 7 committed after a retry, 6 committed")
    assert "\x1b[33m" not in stream.getvalue(), "a warning is yellow"


def test_a_run_that_was_asked_to_stop_says_so(clock: Clock) -> None:
    line, _ = live(clock)
    line.is_asked_to_stop = lambda: True
    assert line.line().plain.endswith(" | stops, 0 s")
    line.reached("offsets:before")
    assert line.line().plain.endswith("| stops; micro-batch runs: writes the offsets, 0 s")
    line.reached("end_txn_answered:after")
    assert line.line().plain.endswith(" | stops, 0 s")


def test_every_point_of_a_micro_batch_is_passed_on_to_the_crash_plan(clock: Clock) -> None:
    told: list[str] = []

    class Plan:
        point = "offsets:before"

        def reached(self, point: str) -> None:
            told.append(point)

    heard = live(clock)[0].watching(Plan())
    assert heard.point == "offsets:before"
    for point in ("begin:before", "offsets:before", "stop.begin:after"):
        heard.reached(point)
    assert told == ["begin:before", "offsets:before", "stop.begin:after"]


def test_lines_stand_above_it_and_commits_are_only_counted(clock: Clock) -> None:
    line, stream = live(clock)
    line(committed(0))
    line(events.Warned("look"))
    line(committed(1))
    line(events.Stopped("orders", "drained"))
    end = "eos: 2 micro-batches committed: 2,000 records in (2,004 offsets), 1,998 out, 4.1 kB\n"
    end += "eos: pipeline orders stopped: drained\n"
    warned = "\x1b[33meos: warning: look\x1b[0m\n"
    assert stream.getvalue() == warned + end


@pytest.mark.parametrize(("columns", "width"), [(60, 59), (0, 79), (5, 39), (10**9, 399)])
def test_it_is_never_wider_than_the_terminal(clock: Clock, columns: int, width: int) -> None:
    line = ProgressLine("o" * 500, io.StringIO(), Terminal(columns), clock)
    assert len(line.line().plain) == width


def test_a_lag_that_nobody_answers_is_left_out(clock: Clock) -> None:
    line, _ = live(clock)

    def gone() -> int:
        raise ConnectionError("the JVM is gone")

    line.lag = gone
    assert line.line().plain == "eos: orders | 0 records/s | starts, 0 s"


def test_a_terminal_that_takes_nothing_holds_up_nobody(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ctrl-S does. The bus has one thread for all who listen: only it may wait."""
    monkeypatch.setattr(live_module, "_CLOSE_S", 0.05)
    entered, release, was_released = threading.Event(), threading.Event(), []

    class Stuck(io.StringIO):
        def write(self, text: str) -> int:
            entered.set()
            was_released.append(release.wait(300))
            return len(text)

    bus, line = Bus(), ProgressLine("orders", Stuck(), Terminal(80), clock)
    bus.subscribe(line)
    line.start()
    assert entered.wait(300)
    line.reached("begin:after")
    bus.emit(committed(1))
    line.close()  # bounded, or the run could not end
    release.set()
    bus.close()
    assert all(was_released), "somebody waited until the terminal took it"


def test_on_a_terminal_lines_are_whole_and_the_bar_grows_through_resizes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A real pseudo-terminal. Lines of events and of others stay above the one progress line."""
    screen, left = Screen(100), [900]
    monkeypatch.setenv("EOS_TERMINAL", f"100:{screen.device}")
    monkeypatch.setattr(live_module, "_DRAW_S", 0.01)
    monkeypatch.setattr(sys, "stderr", screen.stream)
    long = "a long line " * 20
    with contextlib.closing(Bus()) as bus, show_events(bus, "orders") as line:
        assert line is not None
        line.follow(lambda: left[0], is_bounded=True)
        line.reached("begin:after")

        def bottom(text: str) -> Callable[[], bool]:
            return lambda: text in screen.shown()[-1]

        wait_until(bottom("900 offsets left"), screen.shown)
        print("a line of somebody", file=sys.stderr)
        bus.emit(events.Warned("look"))
        bus.emit(events.Warned(long))
        left[0] = 450
        wait_until(bottom("450 offsets left \u2501\u2501\u2501\u2501\u2501"), screen.shown)
        assert " 50 %, 0 s left | " in screen.shown()[-1]
        screen.resize(60)
        wait_until(lambda: 50 < len(screen.shown()[-1]) < 60, screen.shown)
        bus.emit(events.Warned("after the resize"))
        wait_until(lambda: "eos: warning: after the resize" in screen.shown(), screen.shown)
        screen.resize(90)
        wait_until(lambda: 60 < len(screen.shown()[-1]) < 90, screen.shown)
        bus.emit(events.Stopped("orders", "drained"))
    screen.close()
    shown = [row for row in screen.shown() if row]
    wrapped = f"eos: warning: {long}"
    assert shown == [
        "a line of somebody",
        "eos: warning: look",
        *(wrapped[at : at + 100].rstrip() for at in range(0, len(wrapped), 100)),
        "eos: warning: after the resize",
        "eos: 0 micro-batches committed: 0 records in, 0 out, 0 B",
        "eos: pipeline orders stopped: drained",
    ]
    assert screen.problems == []


def test_it_is_drawn_at_most_twice_a_second() -> None:
    screen = Screen(100)
    line = ProgressLine("orders", screen.stream, Terminal(100, screen.device))
    began = time.monotonic()
    line.start()
    wait_until(lambda: screen.written.count("records/s") >= 3, screen.shown)
    passed_s = time.monotonic() - began
    line.close()
    screen.close()
    assert screen.written.count("records/s") <= passed_s / 0.5 + 1


def test_a_terminal_that_is_gone_disturbs_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher was killed: writes into its pipe fail."""
    monkeypatch.setattr(live_module, "_DRAW_S", 0.01)
    reads, writes = os.pipe()
    os.close(reads)
    stream = os.fdopen(writes, "w")
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("EOS_TERMINAL", "80:/dev/gone")
    with contextlib.closing(Bus()) as bus, show_events(bus, "orders") as line:
        assert line is not None
        wait_until(lambda: line._bottom._console.quiet)
        print("a line of a user's function", file=sys.stderr)
        bus.emit(events.Warned("look"))
    assert not line._thread.is_alive()
    with contextlib.suppress(BrokenPipeError):
        stream.close()


@pytest.mark.parametrize("columns", ["", "wide"])
def test_without_a_terminal_there_are_plain_lines(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EOS_TERMINAL", columns)
    with contextlib.closing(Bus()) as bus, show_events(bus, "orders") as line:
        assert line is None
        bus.emit(committed(3))
    assert capsys.readouterr().err.startswith("eos: micro-batch 3 committed: ")


@pytest.mark.parametrize(
    ("environment", "is_terminal", "told"),
    [
        ({"TERM": "xterm"}, True, "{'EOS_TERMINAL': '72:DEVICE'}"),
        ({"TERM": "xterm"}, False, "{}"),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, "{}"),
        ({"TERM": "dumb"}, True, "{}"),
        ({}, True, "{}"),
    ],
)
def test_the_launcher_tells_the_driver_of_a_terminal(
    environment: dict[str, str], is_terminal: bool, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 72, 0, 0))
    with os.fdopen(its, "w") as slave, io.StringIO() as pipe:
        monkeypatch.setattr(sys, "stderr", slave if is_terminal else pipe)
        found, device = submit.terminal(), os.ttyname(its)
    os.close(ours)
    assert str(found).replace(device, "DEVICE") == told


def test_a_terminal_of_another_container_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its device has no name in this one."""

    def unknown(_number: int) -> str:
        raise OSError(errno.ENODEV, "No such device")

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(os, "ttyname", unknown)
    ours, its = pty.openpty()
    with os.fdopen(its, "w") as slave:
        monkeypatch.setattr(sys, "stderr", slave)
        assert submit.terminal() == {}
    os.close(ours)


def test_launcher_and_driver_mean_the_same_variable() -> None:
    assert submit.TERMINAL == TERMINAL


def test_the_lag_is_what_the_last_micro_batch_left() -> None:
    source = {"endOffset": {"a": {"0": 5, "1": 7}}, "latestOffset": '{"a": {"0": 9, "1": 7}}'}
    assert lag_of({"sources": [source]}) == 4
    assert lag_of({"sources": [{"endOffset": None, "latestOffset": {"a": {"0": 3}}}]}) == 3
    assert lag_of({"sources": [{"endOffset": {"a": {"0": 3}}, "latestOffset": None}]}) is None
    again = {"startOffset": "None", "endOffset": '{"a": {"0": 3}}', "latestOffset": "None"}
    assert lag_of({"sources": [again]}) is None, "PySpark 4.0, for a repeated micro-batch"
    assert source_ends({"sources": [again]}) == {}
    assert (
        lag_of({"sources": [{"latestOffset": {"a": {"0": 3}}, "endOffset": '{"a": {"0": 3}}'}]})
        == 0
    )
    assert lag_of(None) is None
