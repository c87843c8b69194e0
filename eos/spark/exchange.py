"""Exchange of record batches by files, among the tasks of one attempt on one machine.

Each target partition has one writing task, but every task encodes record batches for all of them.
On one machine this needs no shuffle: each encode task writes its record batches to one file per
writer, and each writer sends the batches that all encode tasks left for it.

The writers are the tasks of a second Spark job. If all encode tasks run at once, they can be the
writers themselves: each of them waits for the other encode tasks, and then writes. No task waits
for another task that can't finish:

- A task that fails leaves its error in the folder. The other tasks raise the same error, so the
  driver gets it whichever task reports first.
- Each task leaves its process id at its start. The other tasks check that this process still runs.
- A driver that aborts the attempt removes the folder, and waiting tasks fail.
"""

from __future__ import annotations

import itertools
import os
import shutil
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, final

import numpy as np
import pyarrow as pa

from eos import private_files
from eos.arrow import array_of, values_of
from eos.encode.stage import SCHEMA
from eos.errors import AttemptFailedError
from eos.seal import CrossingError

# The pauses between two checks of the other tasks. They grow, as a user's step may take minutes.
_PAUSE_S_MIN, _PAUSE_S_MAX = 0.001, 0.02
_ERROR_BYTES_MAX = 1 << 20
_NUMBERS = itertools.count(1)  # of the exchanges in this process
_RETRIED = "the micro-batch is retried automatically"


class ExchangeError(Exception):
    """The error of another task, as text."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A folder in which the encode tasks of one attempt leave record batches for its writers.

    `waiting_tasks` is the number of encode tasks if they run at the same time and wait for each
    other.
    """

    folder: str
    writers: int
    waiting_tasks: int = 0

    @classmethod
    def of_job(cls, folder: str, writers: int, waiting_tasks: int) -> Exchange:
        """Return an exchange in a folder of its own. An attempt may have several jobs, and a task
        of a failed job, which may still run, must not write into the next one's files."""
        return cls(f"{folder}-{next(_NUMBERS)}", writers, waiting_tasks)

    @contextmanager
    def opened(self) -> Iterator[Exchange]:
        """Create the folder for one attempt. Remove it at the end, so that waiting tasks fail."""
        path = Path(self.folder)
        shutil.rmtree(path, ignore_errors=True)  # left by a process that was killed
        private_files.create_folder(path)
        try:
            yield self
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def member(self, task: int) -> Member:
        return Member(self, task)

    def path(self, task: int, kind: str) -> Path:
        return Path(self.folder) / f"{task}.{kind}"

    def batches(self, writer: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows for one writer, in the order of the encode tasks.

        All encode tasks must have finished.
        """
        kind = f"for-{writer}"
        try:
            names = [each.name.split(".", 1) for each in Path(self.folder).iterdir()]
        except FileNotFoundError:
            raise _given_up() from None
        for task in sorted(int(task) for task, found in names if found == kind):
            with (
                pa.OSFile(str(self.path(task, kind)), "rb") as file,
                pa.ipc.open_stream(file) as stream,
            ):
                yield from stream


@final
class Member:
    """One task's access to the exchange, as a context manager.

    If the code in the context raises an error, the other tasks get it and fail, too.
    """

    def __init__(self, exchange: Exchange, task: int) -> None:
        self._exchange = exchange
        self._task = task
        self._open = ExitStack()
        self._files: dict[int, Any] = {}

    def __enter__(self) -> Member:
        self._announce("pid", str(os.getpid()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._open.close()
        if error is not None and not isinstance(error, ExchangeError):
            text = str(error) if isinstance(error, CrossingError) else _traceback(error)
            with suppress(AttemptFailedError):  # the folder is gone, so no task waits any more
                self._announce("failed", text[-_ERROR_BYTES_MAX:])

    def put(self, batch: pa.RecordBatch) -> None:
        """Append encoded record batches to the files of their writers, and a manifest to the first.

        A manifest has the number of records that this task encoded for each target partition."""
        writers = values_of(batch.column("writer"))
        writers = np.where(writers < self._exchange.writers, writers, 0)
        for writer in np.unique(writers).tolist():
            mine = batch.filter(array_of(writers == writer, pa.bool_()))
            self._file(writer).write_batch(mine)

    def finish(self) -> None:
        """Report that this task has encoded all its rows, and wait for the other `waiting_tasks`.

        Raise if another task fails or dies, or if the driver has given up the attempt."""
        self._open.close()
        self._announce("done", "")
        self._await_others()

    def _file(self, writer: int) -> Any:
        found = self._files.get(writer)
        if found is None:
            path = self._exchange.path(self._task, f"for-{writer}")
            sink = self._open.enter_context(pa.OSFile(str(path), "wb"))
            found = self._open.enter_context(pa.ipc.new_stream(sink, SCHEMA))
            self._files[writer] = found
        return found

    def _announce(self, kind: str, text: str) -> None:
        """Write a file that other tasks look for, whole or not at all. `kind` is its suffix."""
        path = self._exchange.path(self._task, kind)
        unfinished = path.with_suffix(f".{kind}-unfinished")
        try:
            unfinished.write_text(text, encoding="utf-8", errors="replace")
            unfinished.replace(path)
        except FileNotFoundError:
            raise _given_up() from None

    def _await_others(self) -> None:
        waiting = set(range(self._exchange.waiting_tasks)) - {self._task}
        pause_s = _PAUSE_S_MIN
        while True:
            waiting = {task for task in waiting if not self._exchange.path(task, "done").exists()}
            if not waiting:
                return
            self._require_alive(waiting)
            time.sleep(pause_s)
            pause_s = min(_PAUSE_S_MAX, pause_s * 1.5)

    def _require_alive(self, waiting: set[int]) -> None:
        """Raise if one of these tasks failed or died, or if the driver has given up the attempt."""
        for task in sorted(waiting):
            failed = self._exchange.path(task, "failed")
            if failed.exists():
                raise ExchangeError(failed.read_text(encoding="utf-8", errors="replace"))
            if not _is_alive(self._exchange.path(task, "pid")):
                # The task may have finished, or failed, after its files were checked above.
                if any(self._exchange.path(task, kind).exists() for kind in ("done", "failed")):
                    continue
                raise AttemptFailedError(
                    "encode_task_died",
                    f"the process of encode task {task} died before the task finished",
                    hint=_RETRIED,
                )
        if not Path(self._exchange.folder).exists():
            raise _given_up()


def _is_alive(path: Path) -> bool:
    """Return whether the process whose id is in the file still runs.

    Each task writes its process id when it begins. So without the file, return True."""
    try:
        os.kill(int(path.read_text(encoding="utf-8")), 0)
    except FileNotFoundError:
        return True
    except ProcessLookupError:
        return False
    return True


def _given_up() -> AttemptFailedError:
    return AttemptFailedError(
        "attempt_given_up", "the driver has given up this attempt", hint=_RETRIED
    )


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
