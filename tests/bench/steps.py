"""Where a micro-batch's time goes: each step of the driver, and its calls into the JVM.

Stands around the functions that a micro-batch goes through, in a benchmark only.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from py4j.clientserver import JavaClient

from eos.audit.follower import Follower
from eos.ledger.group_offsets import GroupCheck
from eos.ledger.ledger import Ledger
from eos.micro_batch import jobs, work
from eos.micro_batch.jobs import Jobs
from eos.micro_batch.target_guard import TargetGuard
from eos.run import query
from eos.run.query import PipelineQuery
from eos.startup.source_state import LiveSource
from eos.transaction.micro_batch import MicroBatches

WHOLE = "foreachBatch"
# A step's own time: without the steps inside of it.
STEPS: tuple[tuple[Any, str, str], ...] = (
    (PipelineQuery, "__call__", WHOLE),
    (PipelineQuery, "_ranges", "offset log"),
    (query, "require_planned", "what Spark planned"),
    (GroupCheck, "compare", "group compared"),
    (MicroBatches, "_begin", "begin"),
    (work, "encodable", "transforms"),
    (TargetGuard, "require_same", "targets"),
    (Jobs, "write_in_python", "job described"),
    (Jobs, "write_rows", "job described"),
    (Jobs, "_in_driver", "records written"),
    (jobs, "collected", "job"),
    (LiveSource, "topic_ids", "source topics"),
    (MicroBatches, "_commit", "offsets, end"),
    (Ledger, "require_follows", "ledger follows"),
    (Follower, "committed", "audit"),
)


class Steps:
    """`taken` has milliseconds by step of each micro-batch, and `calls` into the JVM."""

    def __init__(self) -> None:
        self.taken: list[dict[str, float]] = []
        self.calls: list[int] = []
        self._now: Counter[str] = Counter()
        self._count = 0
        self._inside: list[float] = []  # of the steps that are open: what those within took
        self._thread = 0
        for owner, name, step in STEPS:
            setattr(owner, name, self._timed(getattr(owner, name), step))
        JavaClient.send_command = self._counted(JavaClient.send_command)

    def clear(self) -> None:
        self.taken.clear()
        self.calls.clear()

    def _timed(self, call: Callable[..., Any], step: str) -> Callable[..., Any]:
        @functools.wraps(call)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if step == WHOLE:
                self._thread, self._count = threading.get_ident(), 0
                self._now.clear()
            elif threading.get_ident() != self._thread:
                return call(*args, **kwargs)
            begun = time.monotonic()
            self._inside.append(0.0)
            try:
                return call(*args, **kwargs)
            finally:
                taken = (time.monotonic() - begun) * 1000
                self._now[step] += taken - self._inside.pop()
                if self._inside:
                    self._inside[-1] += taken
                if step == WHOLE:
                    self.taken.append(dict(self._now))
                    self.calls.append(self._count)

        return timed

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self._count += threading.get_ident() == self._thread
            return call(*args, **kwargs)

        return counted
