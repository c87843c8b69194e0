"""Signals that ask a run to stop: once, again, and one that nothing comes of."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
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
asked = stopping.Stopping()

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
    asked.attach(Query(), Batches())
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
    monkeypatch.setattr(shutdown.Stopping, "listen", lambda _self: None)
    asked = shutdown.Stopping()
    for at in (5.0, 5.0, 5.9):
        now[0] = at
        asked._handle(signal.SIGTERM, None)
        assert asked.is_requested
    assert ended == []
    now[0] = 6.0
    asked._handle(signal.SIGTERM, None)
    assert ended == [143]


def test_a_stop_that_came_to_its_end_is_not_ended_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs pipelines one after another in one process goes on."""
    set_to: list[float] = []
    monkeypatch.setattr(shutdown.signal, "setitimer", lambda _which, at: set_to.append(at))
    monkeypatch.setattr(shutdown.Stopping, "listen", lambda _self: None)
    with closing(shutdown.Stopping()) as asked:
        asked._handle(signal.SIGTERM, None)
        in_all = shutdown.FINISH_S + shutdown.STOP_S_MAX
        assert set_to == [in_all]
    assert set_to == [in_all, 0]
    asked._handle(signal.SIGTERM, None)
    assert set_to == [in_all, 0]


def test_a_stop_that_takes_too_long_is_ended() -> None:
    with started(0.2, "running") as process:
        os.kill(process.pid, signal.SIGTERM)
        _, err = process.communicate(timeout=240)
    assert process.returncode == 0
    assert err.startswith("eos: not stopped within 0 s: ended at once")
