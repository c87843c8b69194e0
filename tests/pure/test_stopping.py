"""Signals that ask a run to stop: once, again, and one that nothing comes of."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from eos.deadline import Backoff, Deadline
from eos.run import shutdown

ROOT = Path(__file__).parents[2]
# A query whose stop never returns, as that of a step that hangs in the driver; and with `finishing`
# a micro-batch that has no end.
PROGRAM = """
import os, sys, threading, time
from eos.run import shutdown as stopping

os.environ[stopping.FINISH] = "240" if sys.argv[2] == "finishing" else "0"

stopping.STOP_S_MAX, stopping.AGAIN_S_MIN = float(sys.argv[1]), 0.0
signals = stopping.StopSignals()
asked = signals.stops[0]

class Query:
    def stop(self):
        print("stopped", flush=True)
        threading.Event().wait()

class Batches:
    is_stopping = False
    bus = type("Bus", (), {"emit": staticmethod(lambda event: print("told", flush=True))})

    def is_at_rest(self, within_s):
        return sys.argv[2] == "running" or threading.Event().wait(within_s)

if sys.argv[2] != "starting":
    attached = asked.attached(Query(), Batches())
    attached.__enter__()
print("ready", flush=True)
end = time.monotonic() + 300
while time.monotonic() < end:
    time.sleep(0.05)
    if asked.is_requested and sys.argv[2] == "starting":
        print("asked", flush=True)
        threading.Event().wait(300)
"""


@pytest.fixture(autouse=True)
def default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever who runs the tests has set."""
    monkeypatch.delenv(shutdown.FINISH, raising=False)


@contextmanager
def started(
    stop_s_max: float, what: str, stderr: int = subprocess.PIPE
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(stop_s_max), what],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def insist(process: subprocess.Popen[str], number: int) -> None:
    """Until it ends, however soon a signal comes behind another."""
    deadline, backoff = Deadline.after_ms(240_000), Backoff(50)
    while process.poll() is None:
        assert not deadline.has_passed
        os.kill(process.pid, number)
        backoff.sleep(deadline)


@pytest.mark.parametrize(
    ("what", "told", "number"),
    [
        ("running", "stopped\n", signal.SIGTERM),
        ("finishing", "told\n", signal.SIGINT),
        ("starting", "asked\n", signal.SIGINT),
    ],
)
def test_a_second_signal_ends_it_at_once(what: str, told: str, number: int) -> None:
    with started(240, what) as process:
        assert process.stdout is not None
        os.kill(process.pid, number)
        assert process.stdout.readline() == told
        insist(process, number)
        out, err = process.communicate()
    assert process.returncode == 128 + number
    assert out == ""  # the query was stopped once; that of a micro-batch under way not at all
    assert err.startswith("eos: second signal to stop: ended at once; the next run aborts the open")


def test_a_reader_that_reads_no_more_holds_up_no_end() -> None:
    """Which may be the very thing that the stop hangs on."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while os.write(writing, b"x" * 4096):
            pass
    os.set_blocking(writing, True)
    try:
        with started(240, "running", writing) as process:
            insist(process, signal.SIGTERM)
        assert process.returncode == 143
    finally:
        os.close(reading)
        os.close(writing)


def test_two_signals_of_one_moment_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a supervisor signals all processes, and the launcher hands its own on."""
    now, ended = [0.0], []
    monkeypatch.setattr(shutdown, "_end", lambda _why, code: ended.append(code))
    monkeypatch.setattr(shutdown.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(shutdown.signal, "setitimer", lambda *_: None)
    monkeypatch.setattr(shutdown.StopSignals, "listen", lambda _self: None)
    signals = shutdown.StopSignals()
    for at in (5.0, 5.0, 5.9):
        now[0] = at
        signals._handle(signal.SIGTERM, None)
        assert signals.stops[0].is_requested
    assert ended == []
    now[0] = 6.0
    signals._handle(signal.SIGTERM, None)
    assert ended == [143]


def test_a_stop_that_came_to_its_end_is_not_ended_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs pipelines one after another in one process goes on."""
    set_to: list[float] = []
    monkeypatch.setattr(shutdown.signal, "setitimer", lambda _which, at: set_to.append(at))
    monkeypatch.setattr(shutdown.StopSignals, "listen", lambda _self: None)
    with closing(shutdown.StopSignals()) as signals:
        signals._handle(signal.SIGTERM, None)
        in_all = shutdown.FINISH_S + shutdown.STOP_S_MAX
        assert set_to == [in_all]
    assert set_to == [in_all, 0]
    signals._handle(signal.SIGTERM, None)
    assert set_to == [in_all, 0]


def test_several_pipelines_have_a_limit_once_the_last_one_is_asked_to_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`eos stop` of one of them leaves the others running, for as long as they like."""
    set_to: list[float] = []
    ended: list[int] = []
    monkeypatch.setattr(shutdown, "_end", lambda _why, code: ended.append(code))
    monkeypatch.setattr(shutdown, "AGAIN_S_MIN", 0.0)
    monkeypatch.setattr(shutdown.signal, "setitimer", lambda _which, at: set_to.append(at))
    monkeypatch.setattr(shutdown.StopSignals, "listen", lambda _self: None)
    with closing(shutdown.StopSignals(3)) as signals:
        first, second, third = signals.stops
        first.request("anna")
        second.end()
        assert (set_to, third.is_requested) == ([], False)
        signals._handle(signal.SIGTERM, None)
        assert set_to == [shutdown.FINISH_S + shutdown.STOP_S_MAX]
        reasons = [each.reason for each in signals.stops]
        assert reasons == ["asked to stop by anna", "", "asked to stop"]
        assert ended == [], "the first signal, behind `eos stop`, is no second one"
        signals._handle(signal.SIGTERM, None)
        assert ended == [143]
        signals.exit_code = lambda: 4  # of a pipeline that has ended
        signals._too_late(signal.SIGALRM, None)
        assert ended == [143, 4]


def test_a_signal_behind_the_end_of_all_pipelines_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process has its exit code already, and closes the metrics endpoint."""
    monkeypatch.setattr(shutdown, "_end", lambda *_: pytest.fail("ended"))
    monkeypatch.setattr(shutdown, "AGAIN_S_MIN", 0.0)
    monkeypatch.setattr(shutdown.signal, "setitimer", lambda *_: pytest.fail("limited"))
    monkeypatch.setattr(shutdown.StopSignals, "listen", lambda _self: None)
    signals = shutdown.StopSignals(2)
    for each in signals.stops:
        each.end()
    for _ in range(2):
        signals._handle(signal.SIGTERM, None)
    assert [each.reason for each in signals.stops] == ["", ""]


def test_a_pause_ends_with_the_request() -> None:
    asked = shutdown.Stopping(lambda: None)
    assert not asked.wait(0.001)
    threading.Timer(0.01, asked.request).start()
    assert asked.wait(240)
    assert asked.wait(240)


def test_a_stop_that_takes_too_long_is_ended() -> None:
    with started(0.2, "running") as process:
        os.kill(process.pid, signal.SIGTERM)
        _, err = process.communicate(timeout=240)
    assert process.returncode == 0
    assert err.startswith("eos: not stopped within 0 s: ended at once")
