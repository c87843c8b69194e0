"""One Spark driver for many runs: a JVM, a session and Python workers are started once.

A run costs what it does, and not the seconds that a start takes. It is `eos.run.main.main` in the
same driver, so each is a start of its own: look, fence, read, decide. What can't be shown here is
what ends a process (crashes), what belongs to spark-submit (its options, the launcher's part in
signals), and two copies of a pipeline at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eos.config.model import ProfileFile, SparkProfile
from eos.launch import spark
from eos.launch.java_and_jars import ensure_java
from eos.local.file_locks import FileLock
from eos.local.processes import LAUNCHER_LOCK, end_with_parent
from support.archived import with_archive

DRIVER = Path(__file__).with_name("warm_driver.py")
START_S_MAX, RUN_S_MAX = 600, 900  # bounds, not measures
KILLED = 128 + signal.SIGKILL


class Warm:
    """Starts its driver with the first run, and another one if that died."""

    def __init__(self, folder: Path, profile: ProfileFile) -> None:
        self._folder, self._profile = folder, profile.spark
        self._driver: _Driver | None = None

    def start(
        self,
        words: Sequence[str],
        folder: Path,
        log: Path,
        environment: Mapping[str, str],
        settings: Mapping[str, str],
    ) -> Run:
        """Begins a run, one at a time: `words` are those of eos/job/run.py."""
        if self._driver is None or not self._driver.is_free or self._driver.has_hung_up():
            self.close()
            self._driver = _Driver(self._folder, self._profile)
        log.touch()
        given = self._profile.conf
        request = {
            "words": list(words),
            "folder": str(folder),
            "log": str(log),
            "environment": dict(environment),
            "settings": {key: text for key, text in settings.items() if given.get(key) != text},
        }
        return Run(self._driver, request, log)

    @property
    def pid(self) -> int:
        """The driver's that is there now; 0 if there is none."""
        return self._driver.pid if self._driver is not None else 0

    def close(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None


class Run:
    """A run that was begun: what `subprocess.Popen` is for a process."""

    def __init__(self, driver: _Driver, request: Mapping[str, Any], log: Path) -> None:
        self._driver, self._log = driver, log
        self.returncode: int | None = None
        driver.ask(request)

    @property
    def pid(self) -> int:
        return self._driver.pid

    def said(self) -> str:
        """What it wrote so far, to either stream."""
        return self._log.read_text()

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._wait(0)
        return self.returncode

    def wait(self, timeout: float = RUN_S_MAX) -> int:
        """The exit code; a driver that does not answer in time is killed."""
        try:
            return self._wait(timeout)
        except subprocess.TimeoutExpired as error:
            self._driver.close()
            raise AssertionError(f"no end of the run in time:\n{self.said()}") from error

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def _wait(self, timeout: float) -> int:
        if self.returncode is None:
            answer = self._driver.answer(timeout)
            self.returncode = answer["returncode"]
            assert not answer["left"], f"the run ended before its queries did: {answer['left']}"
        return self.returncode


class _Driver:
    """A driver that was started by spark-submit and has a session."""

    def __init__(self, folder: Path, profile: SparkProfile) -> None:
        self._closing = contextlib.ExitStack()
        self._log = folder / "warm.log"
        self._received = b""
        self.is_free = True
        try:
            with socket.socket(socket.AF_UNIX) as listening:
                self._process = self._closing.enter_context(
                    self._started(listening, folder, profile)
                )
                self._connection = self._closing.enter_context(self._accepted(listening))
            self.pid = int(self.answer(START_S_MAX)["pid"])
        except BaseException:
            self.close()
            raise

    def ask(self, request: Mapping[str, Any]) -> None:
        assert self.is_free, "one run at a time"
        self.is_free = False
        with contextlib.suppress(OSError):  # it died since the last run: the answer says so
            self._connection.sendall(json.dumps(request).encode() + b"\n")

    def has_hung_up(self) -> bool:
        """It ended between two runs: a signal that was for the one before came late."""
        self._connection.settimeout(0)
        try:
            return not self._connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self._connection.settimeout(None)

    def answer(self, timeout: float) -> Mapping[str, Any]:
        """Of the run, or of one that took the driver with it."""
        self._connection.settimeout(timeout or 1e-6)
        while b"\n" not in self._received:
            try:
                some = self._connection.recv(1 << 16)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self._process.args, timeout) from None
            except ConnectionResetError:
                some = b""
            if not some:
                return {"returncode": KILLED, "left": []}
            self._received += some
        line, _, self._received = self._received.partition(b"\n")
        self.is_free = True
        return json.loads(line)

    def close(self) -> None:
        self.is_free = False
        self._closing.close()

    def _started(
        self, listening: socket.socket, folder: Path, profile: SparkProfile
    ) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
        """spark-submit as ./spark-submit.sh calls it, with another job; it ends with us."""
        home = self._closing.enter_context(tempfile.TemporaryDirectory(prefix="eos-warm-"))
        address = f"{home}/socket"  # pytest's folders are too long for one
        listening.bind(address)
        listening.listen(1)
        lock = FileLock(Path(home) / "lock")
        self._closing.callback(lock.close)
        assert lock.try_exclusive()
        found = spark.find_spark()
        master = profile.master
        words = spark.command(found, [], master, profile.conf, [], folder / "ship", folder)
        environment = spark.environment(found, ensure_java().home, master, folder, folder)
        environment = with_archive(environment, master, words)
        with self._log.open("ab") as output:
            process = subprocess.Popen(
                [*words[:-1], str(DRIVER), address],
                env={**environment, LAUNCHER_LOCK: str(lock.path)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509 - no thread of ours holds a lock here
            )
        return _ended(process)

    def _accepted(self, listening: socket.socket) -> socket.socket:
        listening.settimeout(0.5)
        for _ in range(2 * START_S_MAX):
            with contextlib.suppress(TimeoutError):
                return listening.accept()[0]
            if self._process.poll() is not None:
                break
        raise AssertionError(f"the warm driver did not come up:\n{self._log.read_text()[-5000:]}")


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Any:
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
