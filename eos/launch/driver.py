"""Runs one Spark application and stays its parent: signals go in, the exit code comes out.

    who dies                what follows
    Python driver           its JVM sees it and exits with its code
    JVM                     the driver's watch sees it (exit 5); what is left is killed here
    this process, SIGKILL   the kernel kills the JVM (Linux), the driver's watch ends the driver;
                            elsewhere the driver sees that our lock is free, and the JVM follows

spark-submit gets a session of its own, so that a terminal's Ctrl-C does not reach the JVM, which
would die at once and leave a driver in the middle of a transaction. The signal is handed to the
Python driver alone. It may arrive before the driver has said who it is; then it is kept.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from eos import private_files
from eos.errors import UnavailableError, UsageError
from eos.launch import startup_signals
from eos.local.file_locks import FileLock
from eos.local.processes import DRIVER_PID_FILE, LAUNCHER_LOCK, end_with_parent

EXIT_JVM_DIED = 5  # errors.Recovery.RESTART
KILLED = 128 + signal.SIGKILL
_POLL_S = 0.05
# Of spark-submit itself, and of a JVM that can't start; what is logged begins with a time.
_USAGE = r"Error: |Invalid |Unrecognized "
_WHY = re.compile(_USAGE + r"|Exception in thread|[\w.$]+(Exception|Error): ")
_WHY_MAX = 500
_JVM_GRACE_S = 20.0  # for a JVM whose driver has ended
_REST_GRACE_S = 3.0  # for a driver whose JVM has ended
_ANNOUNCE_S_MAX = 60.0  # a signal that waits longer than this for a driver ends the JVM


def run(
    words: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    meanwhile: Callable[[], None] | None = None,
) -> int:
    """The driver's exit code; 137 if the driver was killed, 5 if only its JVM was.

    UnstartedError: it ended with 0 since it was asked to, before its pipeline ran.
    UsageError, UnavailableError: the JVM said why it ended before there was a driver.
    `meanwhile` is called while the JVM starts; what it raises ends the JVM. A signal waits for it.
    The driver's stdout and stderr (the JVM joins them) go to our stderr, the JVM's own to `log`.
    """
    private_files.make(log.parent)
    with tempfile.TemporaryDirectory(prefix="eos-") as folder, _lock(Path(folder)) as lock:
        pid_file = Path(folder) / "driver.pid"
        full = {**environment, DRIVER_PID_FILE: str(pid_file), LAUNCHER_LOCK: str(lock)}
        with _Signals() as signals, open(log, "wb", opener=private_files.opener) as jvm_log:
            jvm = subprocess.Popen(
                list(words),
                env=full,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,
                stderr=jvm_log,
                start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509 - no other thread runs here yet
            )
            try:
                if meanwhile is not None:
                    meanwhile()
                code = _attend(jvm, pid_file, signals)
                if code == 0 and startup_signals.was_told(pid_file):
                    raise startup_signals.UnstartedError
                if code > 0 and not pid_file.exists():
                    _tell_why(log)
                return code
            finally:
                _kill_group(jvm.pid)
                jvm.wait()


class _Signals:
    """Collects SIGTERM and SIGINT, while it is entered, for somebody to hand on."""

    def __init__(self) -> None:
        self._pending: list[int] = []

    def __enter__(self) -> _Signals:  # noqa: PYI034 - typing.Self begins with 3.11
        for each in startup_signals.NUMBERS:
            signal.signal(each, self._keep)
        return self

    def __exit__(self, *_: object) -> None:
        # not what was before: nobody may be told now that it has not started
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
        # Not a loss: nothing was begun yet, or nothing can be ended any more.
        is_late = driver_gone_at is not None and now - driver_gone_at > _JVM_GRACE_S
        is_stuck = driver is None and waiting_since and now - waiting_since > _ANNOUNCE_S_MAX
        if is_late or is_stuck:
            _kill_group(jvm.pid)
        time.sleep(_POLL_S)  # signals, the JVM and the driver: no one wait covers all three
    return _exit_code(jvm.returncode, driver or _read_pid(pid_file), driver_gone_at is not None)


def _tell_why(log: Path) -> None:
    """Of a JVM that never came to a driver: what it was told is wrong, if it says so itself. Any
    other failure, such as of packages that it could not fetch, may pass. The first such line: what
    follows it is only that the JVM ends."""
    lines = log.read_text(errors="replace").splitlines()
    said = next((line for line in lines if _WHY.match(line)), None)
    if said is None:
        return
    is_usage = re.match(_USAGE, said) and "unresolved dependency" not in said
    kind = UsageError if is_usage else UnavailableError
    raise kind(
        f"spark-submit ended before the pipeline's driver began: {said[:_WHY_MAX]}",
        hint="correct its options, or `spark` in the profile (`conf`, such as memory, and "
        f"`master`); all that it said is in {log}",
    )


def _exit_code(code: int, driver: int | None, driver_went_first: bool) -> int:
    if code >= 0:
        return code
    if driver is not None and not driver_went_first and _wait_gone(driver):
        # The JVM was killed. A driver that was killed with it can't be told from one that noticed;
        # neither has done anything more.
        return EXIT_JVM_DIED
    return 128 - code


def _wait_gone(pid: int) -> bool:
    end = time.monotonic() + _REST_GRACE_S
    while _lives(pid) and time.monotonic() < end:
        time.sleep(_POLL_S)  # not our child, so there is no wait for it
    return True


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _read_pid(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except FileNotFoundError:
        return None


def _kill_group(leader: int) -> None:
    """The session's processes are one group; the JVM's Python workers end with the JVM."""
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
