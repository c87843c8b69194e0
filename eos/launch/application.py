"""An application in the cluster, as spark-submit sees it: submitted, running, ended.

With `--deploy-mode cluster` spark-submit's JVM is no part of the pipeline. It submits the driver,
logs the driver's status, and ends after it. Its own exit code says nothing about the driver, so the
driver's exit code is read from the logged status.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from eos import log_lines, private_files
from eos.errors import Recovery
from eos.launch import spark_submit, startup_signals

KILLED = 128 + signal.SIGKILL  # of an application that a command of the cluster ended
_POLL_S = 0.1
_LINE_MAX = 2_000
# YARN's id of an application, or the namespace and name of the driver's pod.
_ID = re.compile(r"(application_\d+_\d+)|submission ID ([\w.-]+:[\w.-]+)")
_STATE = re.compile(r"\((?:state|phase): (\w+)\)")
_EXIT = re.compile(r"exited with status (\d{1,3})|\bexit code: (\d{1,3})")
# Kubernetes lists the containers of the driver's pod, each with its exit code after its name.
_CONTAINER = re.compile(r"\bcontainer name: (\S+)")
_DRIVER = "spark-kubernetes-driver"
_WAS_KILLED = re.compile(r"is killed|\(state: KILLED\)")
_TRACKED = re.compile(r"tracking URL: (\S+)")


@dataclass(slots=True)
class Submission:
    """The application's status, by the lines of spark-submit's log."""

    name: str = ""  # empty until the cluster has accepted it
    state: str = ""
    exit_code: int | None = None
    was_killed: bool = False
    _reported: set[str] = field(default_factory=set)
    _container: str = ""  # the last one listed
    _has_driver: bool = False  # otherwise the driver's container has a name of the user's

    def read(self, line: str) -> Iterator[str]:
        """Update the status by a line. Yield the messages for the user."""
        if not self.name and (found := _ID.search(line)):
            self.name = found[1] or found[2]
            yield f"submitted as {self.name}"
        if (found := _STATE.search(line)) and found[1] != self.state:
            self.state = found[1]
            yield f"{self.name} is {self.state}"
        if (found := _TRACKED.search(line)) and found[1] not in self._reported:
            self._reported.add(found[1])
            yield f"{self.name} is tracked at {found[1]}"
        if found := _CONTAINER.search(line):
            self._container = found[1]
            self._has_driver |= found[1] == _DRIVER
        is_drivers = not self._has_driver or self._container == _DRIVER
        if is_drivers and (found := _EXIT.search(line)):
            self.exit_code = int(found[1] or found[2])
        self.was_killed = self.was_killed or _WAS_KILLED.search(line) is not None

    def code(self, submits: int) -> int:
        """Return the run's exit code. `submits` is that of spark-submit.

        On YARN a driver that failed may have been started again and succeeded since, so the exit
        code in the log is that of an earlier attempt. On Kubernetes spark-submit exits with 0 in
        any case.
        """
        if not submits and self._is_on_yarn:
            return 0
        if self.was_killed:
            return KILLED
        if self.exit_code:
            return self.exit_code
        return submits and int(Recovery.RESTART.value)  # for example, its machine was lost

    @property
    def _is_on_yarn(self) -> bool:
        return self.name.startswith("application_")

    def command(self, on_yarn: str, on_kubernetes: str) -> str:
        """Return a command about the application, for the user."""
        if self._is_on_yarn:
            return f"yarn {on_yarn} {self.name}"
        namespace, _, pod = self.name.partition(":")
        return f"kubectl {on_kubernetes} --namespace {namespace} {pod}"


def follow(
    arguments: Sequence[str], environment: Mapping[str, str], log: Path
) -> tuple[int, Submission]:
    """Submit the application, report its status until its end, and return the exit code.

    A signal ends only this waiting, and not the application. The stderr of spark-submit goes to the
    file `log`."""
    private_files.create_folder(log.parent)
    application = Submission()
    with open(log, "wb", opener=private_files.opener) as output:
        jvm = spark_submit.start(arguments, environment, output)
    try:
        for number in startup_signals.NUMBERS:
            signal.signal(number, _stop_waiting)
        with log.open(encoding="utf-8", errors="replace") as file:
            is_over, rest = False, ""
            while not is_over:
                is_over = jvm.poll() is not None  # first, so that its last lines are read
                *lines, rest = (rest + file.read()).split("\n")
                for line in lines:
                    for message in application.read(line[:_LINE_MAX]):
                        log_lines.write(message)
                time.sleep(0 if is_over else _POLL_S)  # a file can't be waited for
        code = application.code(jvm.returncode)
        if code and application.name:
            logs = application.command("logs -applicationId", "logs")
            log_lines.write(
                f"{application.name} ended with exit code {code}; `{logs}` shows the driver's "
                f"output, {log} that of spark-submit"
            )
        return code, application
    except _StoppedError as error:
        if application.name:
            end = application.command("application -kill", "delete pod")
            log_lines.write(f"{application.name} runs on; `{end}` ends it")
        return 128 + error.number, application
    finally:
        startup_signals.usual()
        jvm.kill()
        jvm.wait()


class _StoppedError(Exception):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _stop_waiting(number: int, _frame: FrameType | None) -> None:
    raise _StoppedError(number)
