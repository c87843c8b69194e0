"""A project folder like a user's, and runs of its pipeline: by spark-submit, or warm.

A warm driver keeps one JVM, one session and its Python workers for many runs, so a run costs no
start. Each is `eos.run.main.main` in the same driver, with a startup of its own: look, fence, read,
decide. It can't show what ends a process (crashes), what belongs to spark-submit (its options, the
launcher's part in signals), or two copies of a pipeline at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eos.config.load import load_profile
from eos.config.model import ProfileFile, SparkProfile
from eos.errors import EosError
from eos.launch import spark
from eos.launch.java_wheel import ensure_java
from eos.local.embedded_kafka import EmbeddedKafka
from eos.local.file_locks import FileLock
from eos.local.processes import LAUNCHER_LOCK, end_with_parent
from eos.plan.reader import OVERRIDE
from support.kafka.brokers import Kafka
from support.spark.spark_session import with_archive

DRIVER = Path(__file__).with_name("warm_driver.py")
START_S_MAX, RUN_S_MAX = 600, 900  # bounds, not measures: a hanging driver must not hang the suite
KILLED = 128 + signal.SIGKILL


class WarmDriver:
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
    ) -> WarmRun:
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
        return WarmRun(self._driver, request, log)

    @property
    def pid(self) -> int:
        """The driver's that is there now; 0 if there is none."""
        return self._driver.pid if self._driver is not None else 0

    def close(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None


class WarmRun:
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


CHECKOUT = Path(__file__).parents[3]

PROFILE = """
kafka: {{bootstrap: {bootstrap}}}
state: {{root: "{root}"}}
spark:
  master: local[2]
  conf:
    spark.driver.memory: 1g
    spark.driver.host: 127.0.0.1
    spark.driver.bindAddress: 127.0.0.1
    spark.ui.enabled: false
    spark.sql.shuffle.partitions: 2 # each is a task of every micro-batch that has a shuffle
    # A short life: half of it would go into optimising code that runs once.
    spark.driver.extraJavaOptions: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""

PIPELINE = """
version: 1
name: {name}
source: {{kafka: {{topic: {source}, max_records: {records}}}}}
transform:
  - {{python: "pipelines.{module}.transform:passed_on"}}
sink: {{kafka: {{topic: {target}, create: {{partitions: {partitions}}}}}}}
trigger: {{available_now: true}}
"""

TRANSFORM = '''
def passed_on(frame):
    """Change nothing that a reader could miss, by a function that only Spark has."""
    return frame.filter("length(value) >= 0")
'''


@dataclass(frozen=True)
class Project:
    """One pipeline on the session's broker, with topics of its own."""

    folder: Path
    broker: Kafka
    name: str
    warm: WarmDriver | None = None

    @classmethod
    def made(cls, folder: Path, broker: Kafka, warm: WarmDriver | None = None) -> Project:
        made = cls(folder, broker, f"p{uuid.uuid4().hex[:8]}", warm)
        made._write_profile(broker.bootstrap)
        return made

    @classmethod
    def without_broker(cls, folder: Path) -> Project:
        """Its launcher starts one of its own, in `state/broker`."""
        made = cls(folder, EmbeddedKafka(folder / "state" / "broker"), f"p{uuid.uuid4().hex[:8]}")
        made._write_profile("null")
        return made

    def _write_profile(self, bootstrap: str) -> None:
        self.profile.parent.mkdir()
        root = self.folder / "state"
        self.profile.write_text(PROFILE.format(bootstrap=bootstrap, root=root))

    @property
    def source(self) -> str:
        return f"{self.name}.in"

    @property
    def target(self) -> str:
        return f"{self.name}.out"

    @property
    def ledger(self) -> str:
        return f"eos.ledger.{self.name}"

    @property
    def group(self) -> str:
        return f"eos.{self.name}"

    def declare(self, records: int, partitions: int = 4, text: str = PIPELINE) -> None:
        place = self.folder / "pipelines" / self.name
        place.mkdir(parents=True, exist_ok=True)
        (place / "transform.py").write_text(TRANSFORM)
        (place / "pipeline.yaml").write_text(
            text.format(
                name=self.name,
                module=self.name,
                source=self.source,
                target=self.target,
                records=records,
                partitions=partitions,
            )
        )

    @property
    def profile(self) -> Path:
        return self.folder / "conf" / "test.yaml"

    @property
    def pipeline(self) -> Path:
        return self.folder / "pipelines" / self.name / "pipeline.yaml"

    def words(self) -> list[str]:
        return [str(self.pipeline), "--profile", str(self.profile)]

    def command(self) -> list[str]:
        return [sys.executable, "-m", "eos.cli.run", *self.words()]

    def environment(self, **extra: str) -> dict[str, str]:
        kept = (OVERRIDE,)  # `./tests/run spark-reader` sets it
        inherited = {k: v for k, v in os.environ.items() if k in kept or not k.startswith("EOS_")}
        return {**inherited, "PYTHONPATH": str(CHECKOUT), **extra}

    def run(self, **extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(),
            env=self.environment(**extra),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=RUN_S_MAX,
            check=False,
        )

    def start_warm(self, *options: str, **extra: str) -> WarmRun:
        """Begin a run in the session's warm driver."""
        assert self.warm is not None
        try:
            settings = load_profile(str(self.profile), self.folder).spark.conf
        except EosError:  # the run will say so itself
            settings = {}
        log = self.folder / f"warm-{len(list(self.folder.glob('warm-*.log'))) + 1}.log"
        return self.warm.start([*self.words(), *options], self.folder, log, extra, settings)

    def run_warm(self, *options: str, **extra: str) -> subprocess.CompletedProcess[str]:
        """As `run`, in a second or two. Not for what ends a process or belongs to spark-submit."""
        run = self.start_warm(*options, **extra)
        return subprocess.CompletedProcess(self.words(), run.wait(), "", run.said())
