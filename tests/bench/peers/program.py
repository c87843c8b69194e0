"""How is a peer run? As a process of its own, which is asked for one turn at a time.

A program stays alive between its turns, so that its JVM is warm. It connects to a socket here, gets
a line for each turn and answers with a line (`programs/Turns.java`, `programs/turns.py`). The time
of a turn begins with the first line and ends with the second. CPU seconds are those of the
program's session, which its JVM and its Python workers belong to.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from support.spark.processes import cpu_seconds_of, cpu_seconds_of_session, of_session

from eos.local.processes import end_with_parent

START_S_MAX, TURN_S_MAX, END_S_MAX = 600, 1800, 60  # bounds, not measurements
_POLL_S = 0.1


class FailedError(Exception):
    """A peer whose process died or did not answer. The message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Turn:
    seconds: float
    cpu_seconds: float  # of the peer
    broker_cpu_seconds: float


class Program:
    """A running peer. Leaving the context ends its process and all that it started."""

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        broker_pids: Sequence[int],
    ) -> None:
        self.name = name
        self.log = folder / "log"
        self._broker_pids = broker_pids
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = str(server.getsockname()[1])
            with self.log.open("wb") as log:
                self._process = subprocess.Popen(
                    [port if word == "PORT" else word for word in words],
                    env=environment,
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # its CPU time is that of its session
                    preexec_fn=end_with_parent,  # noqa: PLW1509 - one thread starts programs
                )
            try:
                self._connection = self._accept(server)
            except BaseException:
                self._end()
                raise
        self._lines: TextIO = self._connection.makefile("r", encoding="ascii")
        self._answer("ready", START_S_MAX)

    def __enter__(self) -> Program:  # noqa: PYI034 - typing.Self begins with 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._connection.close()  # the program reads the end, and ends
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S_MAX)
        self._end()

    def turn(self, kind: str, source: str, target: str, records: int, batch: int) -> Turn:
        """Run one turn to its end."""
        begun, used, broker = time.monotonic(), self.cpu_seconds(), self._broker_cpu_seconds()
        self.begin(kind, source, target, records, batch)
        self._answer("done", TURN_S_MAX)
        return Turn(
            round(time.monotonic() - begun, 3),
            round(self.cpu_seconds() - used, 2),
            round(self._broker_cpu_seconds() - broker, 2),
        )

    def begin(self, kind: str, source: str, target: str, records: int = 0, batch: int = 0) -> None:
        """Begin a turn. Without `records` it is endless."""
        self._send(f"{kind} {source} {target} {records} {batch}")

    def end_turn(self) -> None:
        """End an endless turn."""
        self._send("end")
        self._answer("done", TURN_S_MAX)

    def cpu_seconds(self) -> float:
        return cpu_seconds_of_session(self._process.pid)

    def _broker_cpu_seconds(self) -> float:
        return sum(map(cpu_seconds_of, self._broker_pids))

    def _accept(self, server: socket.socket) -> socket.socket:
        server.settimeout(_POLL_S)
        give_up_at = time.monotonic() + START_S_MAX
        while True:
            try:
                return server.accept()[0]
            except TimeoutError:
                if self._process.poll() is not None or time.monotonic() > give_up_at:
                    raise self._failure("did not start") from None

    def _send(self, line: str) -> None:
        try:
            self._connection.sendall(f"{line}\n".encode())
        except OSError as error:
            raise self._failure(f"is gone: {error}") from error

    def _answer(self, expected: str, wait_s: float) -> None:
        self._connection.settimeout(wait_s)
        try:
            line = self._lines.readline().strip()
        except OSError as error:  # a timeout is one
            raise self._failure(f"did not answer within {wait_s} s") from error
        if line != expected:
            # A program closes its connection before it writes why it ended.
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END_S_MAX)
            raise self._failure("ended")

    def _failure(self, what: str) -> FailedError:
        log = self.log.read_text(encoding="utf-8", errors="replace")
        return FailedError(f"{self.name} {what}\n{log[-3000:]}")

    def _end(self) -> None:
        """Kill what is left of the session: its members have process groups of their own."""
        for pid in of_session(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(END_S_MAX)
