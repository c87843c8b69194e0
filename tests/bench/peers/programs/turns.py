"""Reads the benchmark's turns from a socket, one line each, and answers each with a line.

A line has the kind of work, the source topic, the target topic, the number of records, and the
records of a micro-batch. With 0 records the turn lasts until the next line. It imports Python's own
modules only, because peers run in environments of their own.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO


@dataclass(frozen=True)
class Turn:
    kind: str
    source: str
    target: str
    records: int
    batch: int
    lines: TextIO

    @property
    def is_endless(self) -> bool:
        return self.records == 0

    @property
    def targets(self) -> list[str]:
        if self.kind != "fan_out":
            return [self.target]
        return [f"{self.target}.{suffix}" for suffix in "abc"]

    def wait_for_end(self) -> None:
        """Return when the benchmark ends an endless turn."""
        self.lines.readline()


def serve(port: int, run: Callable[[Turn], None]) -> None:
    with (
        socket.create_connection(("127.0.0.1", port)) as connection,
        connection.makefile("r", encoding="ascii") as lines,
    ):
        connection.sendall(b"ready\n")
        # Not `for line in lines`: an endless turn reads a line as well.
        while line := lines.readline():
            kind, source, target, records, batch = line.split()
            run(Turn(kind, source, target, int(records), int(batch), lines))
            connection.sendall(b"done\n")
