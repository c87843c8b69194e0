"""A job that runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from eos import private_files
from eos.config import saved_job
from eos.errors import EosError, exit_code, unexpected
from eos.launch.native_library import ensure_native
from eos.observe import events
from eos.run.batch_run import run_batch
from eos.run.host import Host, Shared, locked
from eos.run.pipeline import run_once
from eos.run.prepared import PreparedRun, RunOptions
from eos.run.shutdown import STOP_S_MAX, Stopping
from eos.spark.adopted_session import adopted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_S = 0.2


class Query:
    """A job that runs, or has ended. `Job.start` returns it; any thread may call its methods.

    It ends with the Spark session, with `stop`, by an error, or, with `available_now` and `once`,
    once it has read everything. `eos stop NAME` ends it, too.
    """

    def __init__(self, prepared: PreparedRun) -> None:
        self._prepared = prepared
        self._stopping = Stopping(_nothing)
        self._error: EosError | None = None
        self._reason = ""
        self._committed: events.MicroBatchCommitted | None = None
        self._has_started = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return self._prepared.name

    @property
    def is_active(self) -> bool:
        """Return whether the job still runs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def progress(self) -> events.MicroBatchCommitted | None:
        """Return the last micro-batch that was committed: its number, records, bytes and times.

        None before the first one."""
        return self._committed

    @property
    def last_error(self) -> EosError | None:
        """Return the error that ended the job. Its `code` names the cause (docs/messages.md), its
        `exit_code` whether a restart may help. None while it runs, and after a clean end."""
        return self._error

    @property
    def exit_code(self) -> int | None:
        """Return the exit code that a pipeline file's run would have; None while the job runs."""
        if self.is_active:
            return None
        return 0 if self._error is None else exit_code(self._error)

    @property
    def reason(self) -> str:
        """Return why the job ended, such as `drained`; "" while it runs and after an error."""
        return self._reason

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802 - PySpark's name
        """Wait until the job ends, or for `timeout` seconds. Return whether it has ended.

        Raise the error that ended it, if there is one."""
        self._join(timeout)
        if self.is_active:
            return False
        if self._error is not None:
            raise self._error
        return True

    def stop(self, timeout: float | None = None) -> bool:
        """End the job, and wait until it has ended, or for `timeout` seconds.

        The open micro-batch may still commit, for at most 20 seconds (`EOS_FINISH_S`); else it is
        aborted, and the next start runs it again. Return whether the job has ended.
        """
        self._stopping.request()
        self._join(STOP_S_MAX + self._stopping.finish_s if timeout is None else timeout)
        return not self.is_active

    def _join(self, timeout: float | None) -> None:
        """Wait in short intervals: Python handles Ctrl-C only between waits."""
        left = timeout
        while self.is_active and (left is None or left > 0):
            assert self._thread is not None, "it is active"
            self._thread.join(_POLL_S if left is None else min(left, _POLL_S))
            left = None if left is None else left - _POLL_S

    def _start(self, run: Callable[[], None]) -> None:
        """Run `run` in a thread, and return once the query runs or has ended. Raise the error that
        ended the startup."""
        self._thread = threading.Thread(
            target=self._run, args=(run,), name=f"eos-{self.name}", daemon=True
        )
        self._thread.start()
        while self.is_active and not self._has_started.wait(_POLL_S):
            pass
        if not self._has_started.is_set() and self._error is not None:
            raise self._error

    def _run(self, run: Callable[[], None]) -> None:
        try:
            run()
        except EosError as error:
            self._error = error
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a step may call `sys.exit`
            self._error = unexpected(error)
            self._error.__cause__ = error
        finally:
            self._stopping.end()

    def _note(self, event: events.Event) -> None:
        if isinstance(event, events.PipelineStarted):
            self._has_started.set()
        elif isinstance(event, events.MicroBatchCommitted):
            self._committed = event
        elif isinstance(event, events.Stopped):
            self._reason = event.reason


def started(
    spark: SparkSession,
    prepared: PreparedRun,
    options: RunOptions,
    declared: Mapping[str, Any],
) -> Query:
    """Start a job in the application of the user's session, and return its query.

    `declared` has the job's keys, which are saved for the commands.
    """
    query = Query(prepared)

    def run() -> None:
        with _host(spark, prepared, options, declared, query) as host:
            run_once(prepared, options, host)

    _prepare(prepared)
    try:
        query._start(run)  # noqa: SLF001 - its own module
    except BaseException:  # an interrupt of the caller, which has no query to stop yet
        query.stop()
        raise
    return query


def run_to_end(
    spark: SparkSession,
    prepared: PreparedRun,
    options: RunOptions,
    declared: Mapping[str, Any],
    run_id: str,
) -> bool:
    """Run a batch job to its end. Return whether it wrote its rows now, and not before.

    It runs in a thread of its own, so that the caller's jobs keep their pool and tags. An interrupt
    of the caller, such as Ctrl-C, ends it.
    """
    query, written = Query(prepared), list[bool]()

    def run() -> None:
        with _host(spark, prepared, options, declared, query) as host:
            written.append(run_batch(prepared, options, host, run_id))

    _prepare(prepared)
    try:
        query._start(run)  # noqa: SLF001 - its own module
        query.awaitTermination()
    except BaseException:
        query.stop()
        raise
    return written[0]


def _prepare(prepared: PreparedRun) -> None:
    profile = prepared.profile
    private_files.prepare_root(profile.local_root, profile.state.group)
    ensure_native()


@contextmanager
def _host(
    spark: SparkSession,
    prepared: PreparedRun,
    options: RunOptions,
    declared: Mapping[str, Any],
    query: Query,
) -> Iterator[Host]:
    """Hold the job's lock within the context, and save its declaration."""
    planned, profile = prepared.planned, prepared.profile
    has_avro = any(each.kind == "avro" for each in planned.outputs.columns.values())
    has_avro |= "avro" in (planned.decode.key.kind, planned.decode.value.kind)
    has_delta = bool(planned.tables) or any(each.kind == "delta" for each in planned.lookups)
    stopping = query._stopping  # noqa: SLF001 - its own module

    def open_session() -> SparkSession:
        return adopted(spark, prepared.name, delta=has_delta, avro=has_avro)

    with (
        prepared.naming_errors(),
        locked(planned, stopping, is_forced=options.take_over) as lock,
    ):
        saved_job.save(profile, prepared.name, declared)
        yield Host(stopping, lock, open_session, Shared(None, query._note))  # noqa: SLF001


def _nothing() -> None:
    """Do nothing after a request to stop: the process is the user's, and has no time limit."""
