"""A Spark cluster of processes: a master, and two workers that know Python and Spark, no more.

What stands for a worker's machine is its environment: a search path with a Python of its own, made
from the standard library alone, and a SPARK_HOME. Nothing of this checkout can be imported there.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from eos.launch import spark
from eos.launch.java_and_jars import ensure_java
from eos.local.processes import end_with_parent

WORKERS = 2
WAIT_S_MAX = 600  # a bound, not a measure
FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

Found = TypeVar("Found")


class Cluster:
    """`url` is its master's. Everything that belongs to it ends with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._closing = contextlib.ExitStack()
        self.environment = _bare_environment(folder)
        self.url = ""

    def __enter__(self) -> Cluster:  # noqa: PYI034 - typing.Self begins with 3.11
        try:
            said = self._start("master.Master")
            self.url = until(said, re.compile(r"Starting Spark master at (\S+)").search)
            for _ in range(WORKERS):
                self.start_worker()
            both = re.compile(r"(?:.*Registering worker (\S+)){2}", re.DOTALL)
            until(said, both.search)
        except BaseException:
            self._closing.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def start_worker(self) -> None:
        """It runs one executor of an application."""
        work = self.folder / f"work-{len(self.works)}"
        work.mkdir()
        options = ["--cores", "1", "--memory", "1g", "--work-dir", str(work)]
        self._start("worker.Worker", *options, self.url)

    @property
    def python(self) -> Path:
        return self.folder / "python" / "bin" / "python"

    @property
    def works(self) -> list[Path]:
        """Each worker's folder of executors: APPLICATION/NUMBER/stderr."""
        return sorted(self.folder.glob("work-*"))

    def said_by_executors(self) -> str:
        files = (path for work in self.works for path in sorted(work.glob("*/*/stderr")))
        return "\n".join(f"{path}:\n{path.read_text(errors='replace')}" for path in files)

    def _start(self, name: str, *options: str) -> Path:
        log = self.folder / f"{name}-{len(list(self.folder.glob('*.log')))}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [
                    f"{self.environment['SPARK_HOME']}/bin/spark-class",
                    f"org.apache.spark.deploy.{name}",
                    *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
                    *options,
                ],
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509 - no thread of ours holds a lock here
            )
        self._closing.callback(_end, process)
        return log


def _bare_environment(folder: Path) -> dict[str, str]:
    python = folder / "python"
    venv.create(python, with_pip=False)
    home = spark.find_spark().home
    java = ensure_java().home
    return {
        "PATH": os.pathsep.join([str(python / "bin"), str(java / "bin"), "/usr/bin", "/bin"]),
        "HOME": str(folder),
        "JAVA_HOME": str(java),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": FLAGS,
        "SPARK_LAUNCHER_OPTS": FLAGS,
        "PYTHONDONTWRITEBYTECODE": "1",
        "LANG": os.environ.get("LANG", "C.UTF-8"),
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    """A worker that is asked to end kills its executors, too."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def until(log: Path, found: Callable[[str], re.Match[str] | None]) -> str:
    """The first group of what is found in a file that grows."""
    give_up_at = time.monotonic() + WAIT_S_MAX
    while True:
        text = log.read_text(errors="replace")
        match = found(text)
        if match:
            return match.group(1)
        assert time.monotonic() < give_up_at, text[-5000:]
        time.sleep(0.05)
