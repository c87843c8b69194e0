"""A pipeline without Spark that copies in a thread, and when it committed."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import pairwise

from eos.errors import EosError
from eos.observe import events
from support.copy import Copy, Job
from support.played import At
from support.scenes import Scene

PATIENCE_S = 300  # a test that waits for longer has failed
_STEP_S = 0.05


@dataclass
class Flow:
    """A pipeline that copies in a thread of its own, and when it committed (`marks`)."""

    scene: Scene
    crash: At | None = None
    goes_on: bool = False  # until `finish`, instead of until its source is drained
    told: list[events.Event] = field(default_factory=list)
    marks: list[float] = field(default_factory=list)
    end: Future[EosError | None] = field(default_factory=Future)
    copy: Copy | None = None  # once it runs
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def job(self) -> Job:
        return self.scene.job

    @property
    def commits(self) -> int:
        return sum(isinstance(event, events.MicroBatchCommitted) for event in self.told)

    @property
    def failed(self) -> list[str]:
        return [event.reason for event in self.told if isinstance(event, events.AttemptFailed)]

    def stall_s(self, since: float) -> float:
        """The longest time without a commit, of those that lasted beyond that moment."""
        return max(after - before for before, after in pairwise(self.marks) if after > since)

    def run(self) -> EosError | None:
        """From its start to its clean end, or to the error that ends it."""
        self.marks.append(time.monotonic())
        with Copy(self.job, self.crash, self._tell) as copy:
            self.copy = copy
            try:
                copy.start()
                while copy.step() or self.goes_on:
                    time.sleep(_STEP_S)  # what a trigger does
                copy.stop()
            except EosError as error:
                return error
        return None

    def finish(self) -> EosError | None:
        """Returns when it has drained its source; the error that ended it, if one did."""
        self.goes_on = False
        return self.end.result(PATIENCE_S)

    def wait_commits(self, count: int) -> None:
        """Until there are as many, or it ended."""
        with self._changed:
            met = self._changed.wait_for(
                lambda: self.commits >= count or self.end.done(), PATIENCE_S
            )
        assert met, f"{self.job.name}: {self.commits} commits, told {self.told[-3:]}"

    def _tell(self, event: events.Event) -> None:
        with self._changed:
            self.told.append(event)
            if isinstance(event, events.MicroBatchCommitted):
                self.marks.append(time.monotonic())
            self._changed.notify_all()
