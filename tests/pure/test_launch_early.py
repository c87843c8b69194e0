"""The start, before there is a pipeline: a signal at whatever line of it, and a JVM that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.errors import raises

from eos.launch import driver, startup_signals
from eos.local.processes import DRIVER_PID_FILE

ROOT = Path(__file__).parents[2]
UNSTARTED = f"eos: {startup_signals.STOPPED_EARLY}\n"
BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])

# Asked when a module is looked for: as soon as anything of the start's weight is imported.
AT_IMPORT = """
import os, sys
class Asks:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Asks())
"""
BY_COMMAND = "sys.argv = ['eos', {verb!r}, 'x']\nfrom eos.__main__ import main\nmain()\n"
AS_LAUNCHER = "import runpy\nrunpy.run_module('eos.cli.run', run_name='__main__')\n"
# Asked behind the last line of the one program, and before the first of the other.
AT_EXEC = """
import os
from eos.cli import run
become = os.execv
def asked(path, words):
    os.kill(os.getpid(), {number})
    become(path, words)
os.execv = asked
run.run(["nowhere.yaml"])
"""
# Asked as soon as the launcher may know who the driver is.
AS_DRIVER = """
import os, sys
from eos.run import main
main.die_with_parent = lambda: os.kill(os.getpid(), {number})
sys.exit(main.main(["nowhere.yaml"]))
"""


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """What a launcher in this process listens to is no other test's; and in the background of a
    shell a process begins with SIGINT ignored."""
    before = {number: signal.getsignal(number) for number in startup_signals.NUMBERS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ended(program: str, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


@BOTH
@pytest.mark.parametrize(
    ("module", "program"),
    [("eos.cli.main", BY_COMMAND.format(verb="run")), ("eos.launch.submit", AS_LAUNCHER)],
)
def test_while_it_imports(module: str, program: str, number: signal.Signals) -> None:
    asked = AT_IMPORT.format(module=module, number=int(number))
    assert ended(asked + program) == (0, UNSTARTED)


def test_other_verbs_end_without_a_trace_while_they_import() -> None:
    asked = AT_IMPORT.format(module="eos.cli.status", number=int(signal.SIGINT))
    assert ended(asked + BY_COMMAND.format(verb="status")) == (130, "")


@BOTH
def test_between_the_command_and_the_launcher(number: signal.Signals) -> None:
    assert ended(AT_EXEC.format(number=int(number))) == (0, UNSTARTED)


@BOTH
def test_as_soon_as_the_driver_is_known(number: signal.Signals, tmp_path: Path) -> None:
    pid_file = tmp_path / "driver.pid"
    asked = AS_DRIVER.format(number=int(number))
    assert ended(asked, **{DRIVER_PID_FILE: str(pid_file)}) == (0, UNSTARTED)
    assert pid_file.exists()
    assert startup_signals.was_reported(pid_file)


def test_the_launcher_takes_such_an_end_for_no_run(tmp_path: Path) -> None:
    """Nothing is learned of it: not which classes a run loads, nor what a demo did."""
    words = [sys.executable, "-c", "from eos.launch import startup_signals as early; early.{}()"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with pytest.raises(startup_signals.UnstartedError):
        driver.run([*words[:2], words[2].format("report_unstarted")], environment, tmp_path / "log")
    assert driver.run([*words[:2], words[2].format("usual")], environment, tmp_path / "log") == 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("Error: Unrecognized option: --onec\n\nUsage: spark-submit", "spark_submit_usage"),
        ("Invalid maximum heap size: -Xmx1gigg\nError: A fatal exception", "spark_submit_usage"),
        ("Exception in thread main [unresolved dependency: a#b;1]", "spark_submit_failed"),
        ("java.net.UnknownHostException: repository", "spark_submit_failed"),
    ],
)
def test_a_jvm_that_ends_before_its_driver_tells_why(said: str, code: str, tmp_path: Path) -> None:
    text = f"26/01/01 00:00:00 WARN Error: no\n{said}\n"
    words = [sys.executable, "-c", f"import sys; sys.stderr.write({text!r}); sys.exit(1)"]
    log = tmp_path / "jvm.log"
    with raises(code) as caught:
        driver.run(words, os.environ, log)
    assert caught.value.message.endswith(f": {said.splitlines()[0]}")
    assert str(log) in caught.value.hint
    silent = [sys.executable, "-c", "import sys; sys.exit(7)"]
    assert driver.run(silent, os.environ, log) == 7
