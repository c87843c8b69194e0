"""Run several pipelines in one process and one Spark application.

Each pipeline has its own thread, Spark session, lock, ledger, bus and request to stop. They share
the JVM, the executors, the metrics endpoint and the signals. If one fails, the others continue.
Only failures of the environment (exit code 5) are met with a restart. All others would meet the
same error again, or fence the instance that took over.
"""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from eos import log_lines
from eos.config.load import load_pipeline
from eos.config.several import require_compatible
from eos.errors import EosError, Recovery, about, naming, report, reword, unexpected
from eos.observe import events
from eos.observe.console import Console
from eos.plural import plural
from eos.run.host import Host, Shared, locked
from eos.run.pipeline import run_once
from eos.run.prepared import PreparedRun, RunOptions, prepare
from eos.run.shutdown import Stopping, StopSignals
from eos.spark.session import another_session, has_ended, open_session
from eos.startup.ownership import RunLock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eos.config.model import Profile
    from eos.observe.joined_metrics import JoinedMetrics

_POLL_S = 0.2
PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 60.0
_DOUBLINGS_MAX = 6  # 64 s, more than the longest pause
# From the best exit code to the worst. A supervisor restarts the process after 5, so 5 must not
# hide a code after which a restart does harm (3) or does not help (2, 4). 4 is the worst, because
# only an operator can fix its cause.
_BEST_FIRST = (
    0,
    Recovery.RESTART.value,
    Recovery.USAGE.value,
    Recovery.FENCED.value,
    Recovery.STOP.value,
)


def run_several(paths: Sequence[Path], options: RunOptions) -> int:
    """Run the pipelines until all have ended, and return the worst of their exit codes.

    Raise EosError before any of them starts if one can't be run, or not with the others.
    """
    pipelines = [load_pipeline(path, ends=options.ends) for path in paths]
    require_compatible(pipelines)
    prepared = []
    for each in pipelines:
        with naming(each.name):
            prepared.append(prepare(each, options))
    with closing(StopSignals(len(prepared))) as signals:
        spark = open_session(", ".join(each.name for each in prepared))
        signals.listen()
        with _served(prepared[0].profile) as metrics:
            supervised = [
                _Supervised(each, options, spark, stopping, metrics)
                for each, stopping in zip(prepared, signals.stops, strict=True)
            ]
            signals.exit_code = lambda: worst(one.code for one in supervised if one.has_ended)
            for one in supervised:
                one.thread.start()
            for one in supervised:
                # Wait in short intervals: a signal may arrive at another thread, and does not
                # interrupt a wait of this one, which has to run the handler.
                while one.thread.is_alive():
                    one.thread.join(_POLL_S)
    return _exit_code({one.name: one.code for one in supervised})


def _exit_code(codes: dict[str, int]) -> int:
    code = worst(codes.values())
    if code:
        every = ", ".join(f"{name} {each}" for name, each in codes.items())
        log_lines.write(f"all pipelines have ended: {every}; the worst exit code is {code}")
    return code


class _Supervised:
    """A pipeline with the thread that runs it, and starts it again after failures."""

    def __init__(
        self,
        prepared: PreparedRun,
        options: RunOptions,
        spark: SparkSession,
        stopping: Stopping,
        metrics: JoinedMetrics | None,
    ) -> None:
        self.name = prepared.name
        self.code = Recovery.RESTART.value  # kept only if an error escapes `_run`
        self.thread = threading.Thread(target=self._run, name=f"eos-{prepared.name}", daemon=True)
        self._prepared, self._options, self._stopping = prepared, options, stopping
        self._spark = spark  # of the application; the pipeline has a session of its own
        self._session: SparkSession | None = None
        self._lock: RunLock | None = None
        self._progress = Progress()
        self._shared = Shared(metrics, self._progress)

    @property
    def has_ended(self) -> bool:
        return self._stopping.is_over

    def _run(self) -> None:
        try:
            with ExitStack() as stack:
                self.code = run_with_restarts(
                    partial(self._attempt, stack),
                    self._progress,
                    report=self._report,
                    may_restart=self._may_restart,
                    pause=self._pause,
                )
        finally:
            self._stopping.end()
        if self.code:
            self._warn(f"ended with exit code {self.code}, and is not started again here")

    def _attempt(self, stack: ExitStack) -> None:
        """Run the pipeline once. `stack` keeps its lock, also between two runs: so `eos stop`
        reaches a pipeline that waits for its restart."""
        options = self._options
        if self._progress.has_started:
            # They were for the first start. A restart must not fence an instance that took over
            # since then, nor lose a state that the first start has built.
            options = replace(options, take_over=False, accepts_state_loss=False)
        with self._prepared.naming_errors():
            if self._lock is None:
                planned, is_forced = self._prepared.planned, options.take_over
                self._lock = stack.enter_context(
                    locked(planned, self._stopping, is_forced=is_forced)
                )
            host = Host(self._stopping, self._lock, self._open_session, self._shared)
            run_once(self._prepared, options, host)

    def _open_session(self) -> SparkSession:
        if self._session is None:
            self._session = another_session(self._spark, self.name)
        return self._session

    def _report(self, error: BaseException) -> int:
        if os.environ.get("EOS_TRACE"):
            traceback.print_exception(error)
        known = error if isinstance(error, EosError) else unexpected(error)
        return report(reword(about(self.name, known), pipeline=self.name))

    def _may_restart(self) -> bool:
        """Return whether a restart is possible and wanted. A run that ends on its own is started
        again by its scheduler, which needs its exit code."""
        ends = self._prepared.planned.trigger_every_ms is None
        return not (ends or self._stopping.is_requested or has_ended(self._spark))

    def _pause(self, seconds: float) -> bool:
        failures = plural(self._progress.failures, "failure")
        self._warn(f"starts again in {seconds:g} s, after {failures} since its last commit")
        return self._stopping.wait(seconds)

    def _warn(self, text: str) -> None:
        Console(pipeline=self.name)(events.Warned(text))


def worst(codes: Iterable[int]) -> int:
    """Return the exit code of a process whose pipelines ended with these codes."""
    return max(codes, key=_BEST_FIRST.index, default=0)


def pause_s(failures: int) -> float:
    """Return the pause before a restart. `failures` is their number since the last commit."""
    return min(PAUSE_S_MAX, PAUSE_S_MIN * (1 << min(failures - 1, _DOUBLINGS_MAX)))


class Progress:
    """How far the runs of one pipeline got. It is called with each event of a run."""

    def __init__(self) -> None:
        self.has_started = False  # a run owned the pipeline, and began its query
        self.failures = 0  # since the last commit

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.PipelineStarted():
                self.has_started = True
            case events.MicroBatchCommitted():
                self.failures = 0


def run_with_restarts(
    attempt: Callable[[], None],
    progress: Progress,
    *,
    report: Callable[[BaseException], int],
    may_restart: Callable[[], bool],
    pause: Callable[[float], bool],
) -> int:
    """Call `attempt` until it returns, or fails for good. Return the exit code.

    `report` logs an error and returns its exit code. `may_restart` is asked after an error with
    exit code 5. `pause` waits for some seconds, and returns whether a stop was requested meanwhile.
    """
    while True:
        try:
            attempt()
            return 0
        # SystemExit: code of the user that calls `sys.exit` ends its own pipeline only.
        except (Exception, SystemExit) as error:  # noqa: BLE001 - other pipelines continue
            code = report(error)
        if code != Recovery.RESTART.value or not may_restart():
            return code
        progress.failures += 1
        if pause(pause_s(progress.failures)):
            return 0


@contextmanager
def _served(profile: Profile) -> Iterator[JoinedMetrics | None]:
    """Serve the metrics of all pipelines within the context, if the profile has an endpoint."""
    wanted = profile.metrics.prometheus
    if wanted is None:
        yield None
        return
    # imported late: runs without metrics do not need them
    from eos.observe.exposition import Endpoint
    from eos.observe.joined_metrics import JoinedMetrics

    metrics = JoinedMetrics()
    with ExitStack() as stack:
        try:
            endpoint = Endpoint(metrics.collected, wanted.address, wanted.port)
        except OSError as error:
            place = f"{wanted.address}, port {wanted.port}"
            Console()(events.Warned(f"metrics are not served at {place}: {error.strerror}"))
        else:
            stack.callback(endpoint.close)
            Console()(events.MetricsServed(endpoint.url))
        yield metrics
