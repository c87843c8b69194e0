"""How does a run keep its audit table up to date, and what happens if the table can't be written?

A thread copies the ledger's records into the table. A micro-batch does not wait for it. After each
update the thread pauses for 40 times its duration, but for a second at least and five at most. So
it takes a small share of a core, and attempts that commit meanwhile become one Delta commit. While
the table can't be written, the pipeline continues, warns, and counts the attempts that the table
lacks. After `behind_max` attempts the run stops, and an operator must act. The ledger keeps the
records that the table lacks, so nothing is lost and nothing grows without a bound.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from eos.audit.projection import Projection, ProjectionResult
from eos.deadline import Backoff, Deadline
from eos.errors import EosError, PromiseBrokenError, UnavailableError
from eos.ledger.record import LedgerRecord
from eos.observe import events
from eos.observe.bus import Bus

EVERY_S = 1.0
_PAUSE_FACTOR, _PAUSE_S_MAX = 40, 5.0
_TICK_S = 60.0  # without a commit, look for new ledger records this often
_STEP_MS = 20_000
_CLOSE_MS, _CLOSE_FAILED_MS = 10_000, 2_000
_MAINTAIN_COMMITS = 64  # after so many Delta commits, check whether files must be compacted
FILES_MAX = 64
_FINDINGS_WARNED = 10  # of one update


class Follower:
    """Thread that updates the audit table beside a run.

    Start it once the run owns its pipeline. Close it at the end, however the run ends.
    """

    def __init__(
        self, projection: Projection, bus: Bus, behind_max: int, every_s: float = EVERY_S
    ) -> None:
        self._projection = projection
        self._bus = bus
        self.behind_max = behind_max
        self._every_s = every_s
        self._lock = threading.Condition()
        self._lag = 0  # committed attempts that the table lacks
        self._until = -1  # last ledger offset in the table, if known
        self._failure: EosError | None = None
        self._is_warned = False  # warned of missing attempts since the table was complete
        self._tries = 0
        self._reported_lag = 0
        # Delta commits since the last count of files. The first commit of a run counts them.
        self._commits = _MAINTAIN_COMMITS - 1
        self._wake = threading.Event()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="eos-audit", daemon=True)

    def start(self) -> None:
        self._wake.set()
        self._thread.start()

    def committed(self) -> None:
        """Announce a committed attempt to the thread, without waiting for it."""
        with self._lock:
            self._lag += 1
        self._wake.set()

    def require(self) -> None:
        """Raise if no further attempt may begin, because the table lacks `behind_max` attempts.

        Before that, wait up to 20 seconds for the thread to add attempts.
        """
        deadline = Deadline.after_ms(_STEP_MS)
        with self._lock:
            if isinstance(self._failure, PromiseBrokenError):
                raise self._failure
            tried = self._tries
            while self._lag >= self.behind_max:
                # Wait for one more try of the thread: the table may be available again.
                failed = self._failure if self._tries > tried else None
                if failed is not None or deadline.has_passed:
                    raise self._lag_error(failed)
                self._wake.set()
                self._lock.wait(deadline.left_ms / 1000)

    @property
    def needed_from(self) -> int:
        """Return the first ledger offset that the table lacks.

        The ledger must not be trimmed beyond it.
        """
        with self._lock:
            return self._until + 1

    def close(
        self, failed: Sequence[Mapping[str, Any]] = (), last: LedgerRecord | None = None
    ) -> None:
        """End the thread and add the missing attempts, within a time limit. The next run adds the
        rest.

        `failed` has aborted attempts that no ledger record lists. `last` is the last ledger record.
        """
        self._end.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_MS / 1000 + _STEP_MS / 1000)
        if self._thread.is_alive():
            self._warn_of_end(failed, "an update of the table still runs")
            return
        # After a recent failure a retry rarely helps, and the end of the run waits for it.
        deadline = Deadline.after_ms(_CLOSE_FAILED_MS if self._failure else _CLOSE_MS)
        backoff = Backoff()
        try:
            while not self._caught_up(deadline).is_settled and not deadline.has_passed:
                backoff.sleep(deadline)
            if failed:
                self._end_with(failed, last)
        except Exception as error:  # noqa: BLE001 - must not hide why the run ended
            self._warn_of_end(failed, error.message if isinstance(error, EosError) else repr(error))

    def _warn_of_end(self, failed: Sequence[Mapping[str, Any]], reason: str) -> None:
        aborted = f", and {_attempts(len(failed), 'aborted')}" if failed else ""
        self._bus.emit(
            events.Warned(
                f"the audit table lacks the end of this run{aborted}; the next run adds what "
                f"the ledger has: {reason}"
            )
        )

    def _end_with(self, failed: Sequence[Mapping[str, Any]], last: LedgerRecord | None) -> None:
        if last is None:
            raise UnavailableError(
                "audit_ledger_unreadable",
                "the ledger could not be read",
                hint="the next run adds to the table what the ledger has",
            )
        self._projection.end_with(failed, last)

    def _run(self) -> None:
        is_settled = True
        while not self._end.is_set():
            self._wake.wait(_TICK_S if is_settled else self._every_s)
            self._wake.clear()
            if self._end.is_set():
                return
            start = time.monotonic()
            try:
                is_settled = self._caught_up(Deadline.after_ms(_STEP_MS)).is_settled
                self._maintain()
            except EosError as error:
                is_settled = False
                self._note_failure(error)
            except Exception as error:  # noqa: BLE001 - the run must report any error
                is_settled, cause = False, type(error).__name__
                self._note_failure(
                    UnavailableError(
                        "audit_update_failed",
                        f"{cause}: {error}",
                        hint="is the table's folder available, and may this user write there? The "
                        "next run adds what the ledger has",
                    )
                )
            self._end.wait(self.pause_s(time.monotonic() - start))

    def pause_s(self, update_s: float) -> float:
        """Return the pause after an update that took `update_s` seconds: longer after a longer
        one."""
        return max(self._every_s, min(_PAUSE_FACTOR * update_s, _PAUSE_S_MAX))

    def _caught_up(self, deadline: Deadline) -> ProjectionResult:
        with self._lock:
            lag = self._lag
        found = self._projection.catch_up(deadline)
        with self._lock:
            self._until = found.until
            self._lag -= lag if found.is_settled else max(0, lag - 1)
            self._tries += 1
            self._failure = None
            was_warned, self._is_warned = self._is_warned, False
            self._lock.notify_all()
        self._commits += bool(found.rows)
        if was_warned:
            self._bus.emit(events.Warned("the audit table can be written again, and is complete"))
        self._report_lag()
        if found.lost:
            first, last = found.lost[0], found.lost[-1]
            self._bus.emit(
                events.Warned(
                    f"the audit table lacks the ledger's offsets {first} to {last}: the ledger "
                    "was trimmed before the table had them, or the table was deleted since"
                )
            )
        self._warn_of_producers(found)
        return found

    def _warn_of_producers(self, found: ProjectionResult) -> None:
        """Warn of producer states that contradict the broker, or that lack their history."""
        if found.rebuilt_from is not None:
            extent = "from the whole ledger"
            if found.rebuilt_from:
                extent = f"from the ledger's offset {found.rebuilt_from} on: earlier records were "
                extent += "deleted"
            self._bus.emit(events.Warned(f"the audit table `producers` was rebuilt {extent}"))
        for each in found.findings[:_FINDINGS_WARNED]:
            self._bus.emit(
                events.Warned(f"audit finding, {each.case}: {each.message} ({each.witness})")
            )
        if len(found.findings) > _FINDINGS_WARNED:
            count = len(found.findings) - _FINDINGS_WARNED
            self._bus.emit(events.Warned(f"{count} more audit findings: `eos audit` lists them"))

    def _note_failure(self, error: EosError) -> None:
        with self._lock:
            self._failure = error
            self._tries += 1
            lag, is_broken = self._lag, isinstance(error, PromiseBrokenError)
            is_new = not self._is_warned and bool(lag or is_broken)
            self._is_warned = self._is_warned or is_new
            self._lock.notify_all()
        if is_new and is_broken:
            self._bus.emit(events.Warned(f"the audit table can't be updated: {error.message}"))
        elif is_new:
            self._bus.emit(
                events.Warned(
                    f"the audit table lacks {_attempts(lag)}; the pipeline continues, and stops "
                    f"at {self.behind_max}: {error.message}"
                )
            )
        self._report_lag()

    def _report_lag(self) -> None:
        with self._lock:
            lag, before = self._lag, self._reported_lag
            self._reported_lag = lag
        if lag != before:
            self._bus.emit(events.AuditFollowed(lag))

    def _maintain(self) -> None:
        """Compact the table's files once there are `FILES_MAX`.

        If another process does the same now, the second compaction to commit has no effect.
        """
        if self._commits < _MAINTAIN_COMMITS:
            return
        self._commits = 0
        try:
            self._projection.maintain(FILES_MAX)
        except EosError as error:
            self._bus.emit(events.Warned(f"the audit table was not compacted: {error.message}"))

    def _lag_error(self, failed: EosError | None) -> EosError:
        reason = failed.message if failed else "writing it takes too long"
        return PromiseBrokenError(
            "audit_table_lag",
            f"the audit table lacks {_attempts(self._lag)}, the limit is {self.behind_max}: "
            f"{reason}",
            hint="nothing is lost: the ledger has them all, and the next run adds them once the "
            "table can be written. `audit: {transactions: false}` in the profile turns the table "
            "off",
        )


def _attempts(count: int, which: str = "") -> str:
    subject = f"{which} attempt".strip()
    return f"1 {subject}" if count == 1 else f"{count} {subject}s"
