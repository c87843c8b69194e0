"""The parent of a Spark application: signals, exit codes, and that nothing is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.spark.processes import listening, naming, of_session, sockets
from support.spark.project import Project
from support.spark.spark_session import with_archive, words_of_a_run
from support.waiting import wait_until

from eos.local.java import find_java, wrap
from eos.spark.local_session import SHORT_LIFE

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
WAIT_S_MAX = 300  # a bound, not a measure

# A driver that is no pipeline: it needs neither Kafka nor the stages.
JOB = """\
import os, signal, sys, time
from eos.local.processes import announce, die_with_parent
announce()
die_with_parent()
def leave(number, frame):
    print("asked by", signal.Signals(number).name, flush=True)
    sys.exit(42)
signal.signal(signal.SIGTERM, leave)
signal.signal(signal.SIGINT, leave)
if sys.argv[3] == "session":
    from eos.spark.session import open_session
    spark = open_session("session")
    assert spark.range(100).repartition(2).count() == 100  # leaves a block on disk
    assert spark.sparkContext.parallelize([1], 1).map(str).collect() == ["1"]  # by a worker
    print("authenticates", spark.sparkContext.getConf().get("spark.authenticate"), flush=True)
    print("UI", spark.sparkContext.uiWebUrl, flush=True)
print("pids", os.getpid(), os.getppid(), flush=True)
time.sleep(float(sys.argv[1]))
sys.exit(int(sys.argv[2]))
"""
LAUNCH = """\
import sys
from pathlib import Path
from eos.launch import driver
from eos.local import java
from eos.launch import spark
from eos.launch.scratch import scratch
folder, root = Path(sys.argv[1]), Path(sys.argv[2])
found = spark.find_spark()
given = {"spark.ui.port": "0"}
with scratch() as run:
    environment = spark.environment(found, java.find_java().home, "local[1]", folder, root)
    here = (found, [], "local[1]", given, [], folder, root)
    words = spark.command(*here, sockets=run.folder)
    words = [*words[:-1], str(folder / "job.py"), *sys.argv[3:]]
    code = driver.run(words, run.environment(environment), folder / "jvm.log")
sys.exit(code)
"""


@dataclass
class Launched:
    process: subprocess.Popen[str]
    said: list[str]
    driver: int = 0
    jvm: int = 0

    def until_ready(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if line.startswith("pids"):
                self.driver, self.jvm = map(int, line.split()[1:3])
                return
        pytest.fail("the driver never came up:\n" + "".join(self.said))

    def end(self) -> int:
        """The exit code, once it has ended and everything it said is read."""
        if self.process.stderr is not None and not self.process.stderr.closed:
            with self.process.stderr as stream:
                self.said += stream.readlines()
        return self.process.wait(WAIT_S_MAX)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job.py").write_text(JOB)
    return tmp_path


@pytest.fixture
def launched(folder: Path, request: pytest.FixtureRequest) -> Iterator[Launched]:
    """A driver that would sleep for minutes, ready."""
    kind = getattr(request, "param", "bare")
    is_open = kind == "umask 000"
    one = launch(folder, "900", "0", "session" if is_open else kind, umask=0 if is_open else -1)
    one.until_ready()
    yield one
    for pid in (one.process.pid, one.jvm, one.driver):
        if lives(pid):
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, signal.SIGKILL)
    one.end()


def launch(folder: Path, *arguments: str, umask: int = -1, **environment: str) -> Launched:
    command = [sys.executable, "-c", LAUNCH, str(folder), str(ROOT), *arguments]
    words = words_of_a_run("local[1]")
    quick = with_archive({**os.environ, **environment}, "local[1]", words, *SHORT_LIFE)
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=quick, cwd=ROOT, umask=umask
    )
    return Launched(process, [])


def lives(pid: int) -> bool:
    """Alive and no zombie: a container's first process may reap slowly."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until_gone(*pids: int) -> None:
    wait_until(
        lambda: not any(map(lives, pids)),
        lambda: f"still alive: {[pid for pid in pids if lives(pid)]}",
    )


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)]
)
def test_a_signal_reaches_the_driver_alone_and_its_exit_code_comes_back(
    launched: Launched, number: signal.Signals
) -> None:
    launched.process.send_signal(number)
    assert launched.end() == 42
    assert f"asked by {number.name}\n" in launched.said
    until_gone(launched.driver, launched.jvm)


# With a session, since its threads are what could keep a JVM alive.
@pytest.mark.long
@pytest.mark.parametrize("launched", ["session"], indirect=True)
def test_when_python_dies_its_jvm_ends_and_the_code_says_killed(launched: Launched) -> None:
    os.kill(launched.driver, signal.SIGKILL)
    assert launched.end() == 137
    until_gone(launched.jvm)


@pytest.mark.long
@pytest.mark.parametrize("launched", ["umask 000"], indirect=True)
def test_a_run_opens_nothing_to_other_users_and_other_machines(
    launched: Launched, folder: Path
) -> None:
    """Each file is private, or in a folder that is. Nothing that Spark's defaults open is open."""
    said = "".join(launched.said)
    assert "authenticates true\n" in said
    assert "UI http://" in said
    found = listening(os.getsid(launched.jvm))
    assert found
    assert all(each.is_loopback for each in found), found
    options = Path(f"/proc/{launched.jvm}/cmdline").read_text().split("\0")
    (scratch,) = (Path(each.partition("=")[2]) for each in options if "java.io.tmpdir=" in each)
    assert stat.S_IMODE(scratch.stat().st_mode) == 0o700
    there = list(scratch.rglob("*"))
    assert any(each.is_socket() for each in there), there
    assert [each for each in there if each.name.startswith("shuffle_")], there
    elsewhere = [each for each in sockets_of(launched) if scratch not in each.parents]
    assert elsewhere == []
    logs = [folder / "jvm.log", folder / "spark.log"]
    assert [stat.S_IMODE(each.stat().st_mode) for each in logs] == [0o600, 0o600]
    launched.process.send_signal(signal.SIGTERM)
    assert launched.end() == 42
    assert not scratch.exists()


def sockets_of(launched: Launched) -> set[Path]:
    """The paths of Unix sockets that processes of the run have open."""
    ours = {inode for pid in of_session(os.getsid(launched.jvm)) for inode in sockets(pid)}
    lines = (line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:])
    return {Path(line[7]) for line in lines if len(line) > 7 and line[6] in ours}


def test_when_the_jvm_dies_its_python_ends_and_the_code_says_restart(launched: Launched) -> None:
    os.kill(launched.jvm, signal.SIGKILL)
    assert launched.end() == 5
    until_gone(launched.driver)


def test_when_the_launcher_is_killed_nothing_stays(launched: Launched) -> None:
    launched.process.kill()
    until_gone(launched.driver, launched.jvm)


def test_a_signal_that_comes_before_the_driver_is_kept_for_it(folder: Path) -> None:
    (folder / "job.py").write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(43))\n"
        "from eos.local.processes import announce\n"
        "announce()\n"
        "time.sleep(900)\n"
    )
    one = launch(folder)
    jvm_log = folder / "jvm.log"  # made just before the JVM is started
    wait_until(jvm_log.exists)
    one.process.send_signal(signal.SIGTERM)
    assert one.end() == 43


@pytest.mark.nightly
def test_spark_runs_on_a_java_that_lacks_the_incubator_module(folder: Path) -> None:
    """The JRE wheel's wrapper, before a Java that refuses the module as the wheel's does."""
    refusing = folder / "real" / "bin" / "java"
    refusing.parent.mkdir(parents=True)
    refusing.write_text(
        "#!/bin/sh\n"
        'for a do [ "$a" != "--add-modules=jdk.incubator.vector" ] || exit 1; done\n'
        f'exec "{find_java().binary}" "$@"\n'
    )
    refusing.chmod(0o755)
    home = wrap(folder / "real", folder / "wrapped")
    (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
    one = launch(folder, "0", "7", "session", JAVA_HOME=str(home))
    assert one.end() == 7, "".join(one.said)
    (folder / "real" / "release").write_text('JAVA_VERSION="17.0.1"\n')
    assert launch(folder, "0", "7", "session", JAVA_HOME=str(folder / "real")).end() != 7


def test_a_broker_that_can_not_start_ends_the_driver_that_waits_for_it(tmp_path: Path) -> None:
    project = Project.without_broker(tmp_path)
    project.declare(records=10)
    known = {"id": "made-by-hand", "version": "1.0", "ports": [[1, 2]]}
    broker = tmp_path / "state" / "broker"
    broker.mkdir(parents=True)
    (broker / "cluster.json").write_text(json.dumps(known))
    done = project.run()
    assert done.returncode == 2, done.stderr
    assert "eos: [broker_version_unknown] " in done.stderr
    until_gone(*naming(str(project.folder)))
