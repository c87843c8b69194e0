"""Several owners of one pipeline, each a process that a test can pause, wake and kill.

A process is forked from one that has imported everything already: it costs some milliseconds, where
a new interpreter takes a second. It ends with the test's process, paused or not.

    with Forked(job, "--go-on", EOS_CRASH_AT=..., EOS_CRASH_SIGNAL="STOP") as older:
        older.wait_paused()
        older.wake()
        assert older.wait() == 3
"""

from __future__ import annotations

import json
import multiprocessing
import multiprocessing.connection
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

from eos.errors import EosError, FencedError, Recovery
from eos.faults import MOMENTS, POINTS
from eos.local.processes import end_with_parent
from eos.observe import events
from support.copies import pipeline_copy
from support.copies.pipeline_copy import Copy
from support.copies.scenes import Scene, Scenes, run_to_end
from support.doubles import At, WatchedClient
from support.spark.processes import is_paused
from support.waiting import WAIT_S_MAX, wait_until

_forks = multiprocessing.get_context("forkserver")
# What this module and `pipeline_copy` import, and what pyarrow does when it is first used.
_forks.set_forkserver_preload(
    [
        "eos.startup.resume_position",
        "eos.run.idle_refresh",
        "eos.transaction.writer",
        "eos.testing.outside",
        "eos.local.embedded_kafka",
        "pytest",
        "pandas",
        "encodings.idna",
    ]
)
_one_at_a_time = threading.Lock()


class Forked:
    """A copy that `pipeline_copy.main` runs, with an environment and a log of its own."""

    def __init__(self, job: pipeline_copy.Job, *options: str, **environment: str) -> None:
        job.folder.mkdir(parents=True, exist_ok=True)
        self._log = job.folder / f"{time.monotonic_ns()}.log"
        self.pause = job.folder / f"{time.monotonic_ns()}.paused"
        given = {"EOS_CRASH_LOG": str(self.pause), **environment}
        self._process = _forks.Process(
            target=_run, args=([*pipeline_copy.words(job), *options], given, self._log), daemon=True
        )
        with _one_at_a_time:
            self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def __enter__(self) -> Forked:  # noqa: PYI034 - typing.Self begins with 3.11
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()

    def said(self) -> list[Mapping[str, Any]]:
        """Its lines so far."""
        whole, _, _ = (self._log.read_text() if self._log.exists() else "").rpartition("\n")
        lines = whole.splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def told(self, event: str) -> list[Mapping[str, Any]]:
        return [line for line in self.said() if line["event"] == event]

    def wait_paused(self) -> None:
        self.wait_until(lambda: self.pause.exists() and is_paused(self.pid), "did not pause")

    def wait_told(self, event: str, times: int = 1) -> None:
        self.wait_until(lambda: len(self.told(event)) >= times, f"did not say {event!r}")

    def wake(self) -> None:
        assert is_paused(self.pid), f"it is not paused:\n{self._words()}"
        os.kill(self.pid, signal.SIGCONT)

    def wait(self) -> int:
        """Its exit code."""
        multiprocessing.connection.wait([self._process.sentinel], WAIT_S_MAX)
        code = self.poll()
        assert code is not None, f"no end in time:\n{self._words()}"
        return code

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
        multiprocessing.connection.wait([self._process.sentinel], WAIT_S_MAX)

    def poll(self) -> int | None:
        """None: it runs. Whoever starts another one asks after all, and a code can be read once:
        of two threads that ask at the same time one finds nothing, and takes that for 255."""
        with _one_at_a_time:
            return self._process.exitcode

    def forget(self) -> None:
        """Deletes what it said."""
        self._log.unlink(missing_ok=True)

    def wait_until(self, what: Callable[[], bool], otherwise: str) -> None:
        """Wait for it while the process runs."""
        wait_until(what, lambda: f"{otherwise}:\n{self._words()}", self)

    def _words(self) -> str:
        return self._log.read_text() if self._log.exists() else "nothing was said"


def _run(words: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
    end_with_parent()
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(output, number)
    sys.exit(pipeline_copy.main(words))


RECORDS = 40  # two micro-batches
WAITS, JITTER_S_MAX = 0.2, 0.03  # how often, and how long
APART_S_MAX = 0.5  # so that some meet late

MET: list[bool] = []  # of each seed that was played: whether they did


@dataclass
class Jitter:
    """In the place of a crash plan: waits."""

    random: random.Random
    point: str = ""

    def reached(self, _what: str) -> None:
        if self.random.random() < WAITS:
            time.sleep(self.random.uniform(0, JITTER_S_MAX))


def _run_with_jitter(copy: Copy, seed: str) -> EosError | None:
    copy.crash = jitter = Jitter(random.Random(seed))
    copy.client = WatchedClient(copy.client, jitter.reached)
    copy.writers = WatchedClient(copy.writers, jitter.reached)
    time.sleep(jitter.random.uniform(0, APART_S_MAX))
    return run_to_end(copy)


def start_together(scenes: Scenes, seed: int) -> None:
    scene = scenes.new(RECORDS)
    elsewhere = replace(scene.job, folder=scene.job.folder / "elsewhere")
    with ThreadPoolExecutor(2) as pool, Copy(scene.job) as one, Copy(elsewhere) as other:
        runs = [
            pool.submit(_run_with_jitter, copy, f"{seed}.{n}")
            for n, copy in enumerate((one, other))
        ]
        errors = [each.result() for each in runs]
    fenced = [error for error in errors if isinstance(error, FencedError)]
    MET.append(bool(fenced))
    assert len(fenced) <= 1, f"seed {seed}: {errors}"
    for error, job in zip(errors, (scene.job, elsewhere), strict=True):
        if error is not None and error not in fenced:
            # What a start that is overtaken again and again ends with: a supervisor repeats it.
            assert error.recovery in {Recovery.REDO, Recovery.RESTART}, f"seed {seed}: {errors}"
            with Copy(job) as again:
                assert run_to_end(again) is None, f"seed {seed}: {errors}"
    scene.check()


def start_processes_together(scenes: Scenes, _number: int) -> None:
    scene = scenes.new(RECORDS)
    elsewhere = replace(scene.job, folder=scene.job.folder / "elsewhere")
    with Forked(scene.job) as one, Forked(elsewhere) as other:
        codes = [one.wait(), other.wait()]
    assert codes.count(Recovery.FENCED.value) <= 1, codes
    for code, job in zip(codes, (scene.job, elsewhere), strict=True):
        if code not in {0, Recovery.FENCED.value}:  # as above
            assert code == Recovery.RESTART.value, codes
            with Copy(job) as again:
                assert run_to_end(again) is None, codes
    scene.check()


STEPS = [f"{point}:{moment}" for point in POINTS for moment in MOMENTS]
STEPS_OF_NOTES = [
    f"{kind}.{point}:{moment}"
    for kind in ("start", "refresh", "stop")
    for point in ("ledger_record", "offsets", "end_txn_sent", "end_txn_answered")
    for moment in MOMENTS
]
OF_EACH_KIND = ["start.offsets:after", "refresh.ledger_record:before", "stop.end_txn_sent:before"]
# Its clean end was committed before it was overtaken: it has nothing more to ask.
HAD_ENDED = {
    "stop.end_txn_sent:after",
    "stop.end_txn_answered:before",
    "stop.end_txn_answered:after",
}
# Where the newer one is when the older one wakes: its transaction is open.
INSIDE = ("first_produce:after", "all_acked:before", "ledger_record:after", "offsets:after")
MORE = 8  # one more micro-batch
WOKEN_INSIDE = [
    f"{at} inside {at_the_newer}"
    for at, at_the_newer in zip([*STEPS, *OF_EACH_KIND], cycle(INSIDE))
]


def pause_at(scene: Scene, point: str) -> Forked:
    waits = ["--go-on"] if point.startswith("refresh.") else []
    older = Forked(scene.job, *waits, EOS_CRASH_AT=f"{point}:python", EOS_CRASH_SIGNAL="STOP")
    older.wait_paused()
    return older


def check_ended(older: Forked, point: str) -> None:
    code = older.wait()
    last = older.said()[-1]
    ended = (code, last.get("error") or None)
    if point in HAD_ENDED:
        assert ended == (0, None), last
        assert last["message"] == "drained"
    else:
        assert ended == (Recovery.FENCED.value, "fenced"), last
        assert "took over" in last["message"]


def wake_after_takeover(scenes: Scenes, point: str) -> None:
    """Woken when the newer one has done all that there was to do, on the same checkpoint."""
    scene = scenes.new(RECORDS, idle_ms=50)
    with pause_at(scene, point) as older, Copy(scene.job) as newer:
        newer.start()
        newer.drain()
        older.wake()
        check_ended(older, point)
        scene.feed(MORE)
        newer.drain()
        newer.stop()
    assert not newer.told.of(events.AttemptFailed)
    assert not newer.told.of(events.Warned)
    scene.check()


def wake_inside_transaction(scenes: Scenes, points: str) -> None:
    """Woken while the newer one's transaction is open."""
    point, inside = points.split(" inside ")
    scene = scenes.new(RECORDS, idle_ms=50)

    def wake() -> None:
        older.wake()
        check_ended(older, point)

    with pause_at(scene, point) as older, Copy(scene.job, At(inside, wake)) as newer:
        scene.feed(MORE)
        newer.start()
        newer.drain()
        newer.stop()
    assert newer.crash.times
    failed = newer.told.of(events.AttemptFailed)
    assert [event.will_redo for event in failed] == [True]
    scene.check()
