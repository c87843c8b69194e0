"""The launcher's side of one Spark application: start it, forward signals, return its exit code.

    if this dies            then
    Python driver           its JVM notices and exits with the driver's code
    JVM                     a thread of the driver notices (exit 5); the launcher kills the rest
    launcher, by SIGKILL    on Linux the kernel kills the JVM, and the driver's thread ends the
                            driver; elsewhere the driver notices that the launcher's lock is free,
                            and the JVM follows

spark-submit runs in its own session, so that a terminal's Ctrl-C does not reach the JVM. The JVM
would die at once and leave the driver in the middle of a transaction. The launcher forwards the
signal to the Python driver only. It keeps a signal until the driver has written its process id.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from eos import private_files
from eos.errors import UnavailableError, UsageError
from eos.launch import spark_submit, startup_signals
from eos.local.file_locks import FileLock
from eos.local.processes import DRIVER_PID_FILE, LAUNCHER_LOCK, announced_end

EXIT_JVM_DIED = 5  # as for errors.Recovery.RESTART: a restart may succeed
KILLED = 128 + signal.SIGKILL
_POLL_S = 0.05
# First words of the errors that spark-submit, or a JVM that can't start, writes to its log. Other
# log lines begin with a time.
_USAGE = r"Error: |Invalid |Unrecognized "
_WHY = re.compile(_USAGE + r"|Exception in thread|[\w.$]+(Exception|Error): ")
_WHY_MAX = 500
_JVM_GRACE_S = 20.0  # a JVM that runs for longer after its driver's end is killed
_REST_GRACE_S = 3.0  # how long to wait for a driver's end after its JVM's end
_ANNOUNCE_S_MAX = 60.0  # if a kept signal finds no driver for this long, the JVM is killed


def run(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    meanwhile: Callable[[], None] | None = None,
) -> int:
    """Run spark-submit and return the driver's exit code: 137 if the driver was killed, 5 if only
    its JVM was.

    Raise UnstartedError if a signal ended the run before its pipeline began (exit code 0). Raise
    UsageError or UnavailableError if spark-submit ended before the driver started and logged why.

    `meanwhile` is called while the JVM starts. Signals are forwarded only after it has returned. If
    it raises, the JVM is killed. The driver's stdout and stderr go to our stderr, the JVM's stderr
    goes to the file `log`.
    """
    private_files.create_folder(log.parent)
    with tempfile.TemporaryDirectory(prefix="eos-") as folder, _lock(Path(folder)) as lock:
        pid_file = Path(folder) / "driver.pid"
        full = {**environment, DRIVER_PID_FILE: str(pid_file), LAUNCHER_LOCK: str(lock)}
        with _Signals() as signals, open(log, "wb", opener=private_files.opener) as jvm_log:
            jvm = spark_submit.start(arguments, full, jvm_log)
            try:
                if meanwhile is not None:
                    meanwhile()
                code = _attend(jvm, pid_file, signals)
                if code == 0 and startup_signals.was_reported(pid_file):
                    raise startup_signals.UnstartedError
                if code > 0 and not pid_file.exists():
                    raise_cause(log)
                return code
            finally:
                _kill_group(jvm.pid)
                jvm.wait()


class _Signals:
    """Queue of the SIGTERM and SIGINT signals of a `with` block, to be forwarded to the driver."""

    def __init__(self) -> None:
        self._pending: list[int] = []

    def __enter__(self) -> _Signals:  # noqa: PYI034 - typing.Self begins with 3.11
        for each in startup_signals.NUMBERS:
            signal.signal(each, self._keep)
        return self

    def __exit__(self, *_: object) -> None:
        # Don't restore the handlers of `listen`: they would report that the pipeline never ran.
        startup_signals.usual()

    def _keep(self, number: int, _frame: FrameType | None) -> None:
        self._pending.append(number)

    @property
    def is_waiting(self) -> bool:
        return bool(self._pending)

    def hand_to(self, pid: int) -> None:
        while self._pending:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, self._pending.pop(0))


def _attend(jvm: subprocess.Popen[bytes], pid_file: Path, signals: _Signals) -> int:
    driver: int | None = None
    driver_gone_at: float | None = None
    waiting_since: float | None = None
    while jvm.poll() is None:
        now = time.monotonic()
        driver = driver or _read_pid(pid_file)
        if driver is not None:
            signals.hand_to(driver)
            if driver_gone_at is None and not _lives(driver):
                driver_gone_at = now
        elif signals.is_waiting:
            waiting_since = waiting_since or now
        # Killing the JVM interrupts no transaction: there is no driver yet, or it has ended.
        is_late = driver_gone_at is not None and now - driver_gone_at > _JVM_GRACE_S
        is_stuck = driver is None and waiting_since and now - waiting_since > _ANNOUNCE_S_MAX
        if is_late or is_stuck:
            _kill_group(jvm.pid)
        time.sleep(_POLL_S)  # no single call can wait for signals, the JVM and the driver
    ended_with = announced_end(pid_file)
    if jvm.returncode < 0 and ended_with is not None:
        return ended_with
    return _exit_code(jvm.returncode, driver or _read_pid(pid_file), driver_gone_at is not None)


def raise_cause(log: Path) -> None:
    """Raise an error with the reason why spark-submit ended before the driver started.

    The reason is the first error line of spark-submit's log; without one, return. Wrong options are
    a UsageError. Any other failure, such as a failed download, may be transient and is an
    UnavailableError."""
    lines = log.read_text(errors="replace").splitlines()
    found = next((line for line in lines if _WHY.match(line)), None)
    if found is None:
        return
    cause = found[:_WHY_MAX]
    if re.match(_USAGE, found) and "unresolved dependency" not in found:
        raise UsageError(
            "spark_submit_usage",
            f"spark-submit rejected its options: {cause}",
            hint="correct the options of the command line, or `spark.master` and `spark.conf` in "
            f"the profile; spark-submit's whole output is in {log}",
        )
    raise UnavailableError(
        "spark_submit_failed",
        f"spark-submit ended before the pipeline's driver started: {cause}",
        hint="a download may have failed, or `spark.conf` in the profile requests more memory than "
        f"this machine has; spark-submit's whole output is in {log}",
    )


def _exit_code(code: int, driver: int | None, driver_went_first: bool) -> int:
    if code >= 0:
        return code
    if driver is not None and not driver_went_first:
        # The JVM was killed. The driver notices that, unless it was killed, too. The launcher can't
        # distinguish these cases.
        _await_end(driver)
        return EXIT_JVM_DIED
    return 128 - code


def _await_end(pid: int) -> None:
    """Give the process a few seconds to end on its own."""
    end = time.monotonic() + _REST_GRACE_S
    while _lives(pid) and time.monotonic() < end:
        time.sleep(_POLL_S)  # poll, because only a parent can wait for a process


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):  # or another user's process has the id now
        return False
    return True


def _read_pid(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except FileNotFoundError:
        return None


def _kill_group(leader: int) -> None:
    """Kill all processes in the group of the process `leader`: the JVM and its children."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[Path]:
    lock = FileLock(folder / "launcher.lock")
    lock.try_exclusive()
    try:
        yield lock.path
    finally:
        lock.close()
