"""Read and write the content of a pipeline's lock file: which process holds the lock.

The kernel's lock decides whether a process holds it. The content outlives the process, so read it
only for a lock that is held. A process that has just acquired the lock has not written it yet.
"""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from eos.printable import one_line

_BYTES_MAX = 1_000
_PROCESS = re.compile("[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The process in a lock file.

    `run_id` names one run of a pipeline, and is never used again. It is empty for a process that
    can't be asked to stop: a recovery, a replay, or a run of an older release.
    """

    process: int | None = None
    host: str = ""
    run_id: str = ""

    @classmethod
    def read(cls, lock: Path) -> LockHolder:
        with lock.open("rb") as file:
            text = file.read(_BYTES_MAX).decode("utf-8", errors="replace")
        process, host, run_id = [*text.split("\n"), "", ""][:3]
        number = int(process) if _PROCESS.fullmatch(process) else None
        return cls(number, one_line(host), run_id)

    @classmethod
    def this_process(cls, run_id: str) -> LockHolder:
        return cls(os.getpid(), socket.gethostname(), run_id)

    def write(self, lock: Path) -> None:
        # The process is first and on its own line, for readers of older releases.
        text = f"{self.process}\n{self.host}\n{self.run_id}\n"
        lock.write_text(text, encoding="utf-8", errors="replace")

    def __str__(self) -> str:
        is_here = self.host in {"", socket.gethostname()}
        place = "on this machine" if is_here else f"on host {self.host}"
        return place + (f" as process {self.process}" if self.process else "")
