"""Keep the group offsets and the transactional id of an idle pipeline from expiring.

Kafka removes both silently after days without a commit. By the rule "idle pipelines refresh", a
pipeline without new data commits an empty transaction in time. That commit also detects that
another instance took over. The same thread deletes old records of the ledger.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from eos.deadline import Deadline
from eos.errors import EosError, KafkaRefusedError, Recovery
from eos.kafka.client import KafkaClient
from eos.observe import events
from eos.observe.bus import Bus
from eos.startup.ownership import RunLock
from eos.transaction.ledger_trim import trim
from eos.transaction.micro_batch import MicroBatches

_DAY_MS = 86_400_000
_TICK_S_MAX = 30.0
# How many ledger records are kept, about 100 MB. `eos recover --rewind-to` can go back to any of
# them.
RECORDS_KEPT = 100_000
_TRIM_EVERY_MS = 3_600_000
# How many refreshes fit into the shortest expiry time.
_TIMES = 4


def interval_ms(client: KafkaClient, deadline: Deadline) -> int:
    """Return the time between two refreshes, in ms: a day, or a quarter of the broker's shortest
    expiry time if that is less."""
    limits = [_DAY_MS * _TIMES]
    with suppress(KafkaRefusedError):  # this user may have no right to read broker settings
        limits.append(int(client.broker_config("offsets.retention.minutes", deadline)) * 60_000)
        limits.append(int(client.broker_config("transactional.id.expiration.ms", deadline)))
    return min(limits) // _TIMES


class IdleWatch:
    """A thread that commits an empty transaction if nothing was committed for `every_ms`.

    If the pipeline was fenced or an operator is needed, it calls `on_stop`, which ends the run.
    After any other error it emits a warning, and tries again soon.
    """

    def __init__(
        self,
        batches: MicroBatches,
        every_ms: int,
        lock: RunLock,
        bus: Bus,
        on_stop: Callable[[EosError], None],
        needed_from: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._batches = batches
        self._every_ms = every_ms
        self._lock = lock
        self._bus = bus
        self._next_trim = Deadline.after_ms(0)
        self._on_stop = on_stop
        self._needed_from = needed_from  # offset of the first record that the audit table lacks
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="eos-idle", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it. Call this once Spark's query has ended, as `on_stop` may
        wait for that. All requests have deadlines, so this wait is bounded, too."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        tick_s = min(_TICK_S_MAX, self._every_ms / 1000 / _TIMES)
        while not self._end.wait(tick_s):
            try:
                self._try_lock()
                self._batches.refresh(self._every_ms)
                self._trim()
            except EosError as error:
                if error.recovery in {Recovery.FENCED, Recovery.STOP}:
                    self._on_stop(error)
                    return
                self._bus.emit(events.Warned(f"the idle refresh failed: {error.message}"))
            except Exception as error:  # noqa: BLE001 - the pipeline continues without a refresh
                self._bus.emit(events.Warned(f"the idle refresh failed: {error!r}"))

    def _try_lock(self) -> None:
        """Acquire the lock if a run with --take-over started without it, because the fenced
        instance still held it. If that fails, the pipeline still needs its refresh."""
        try:
            self._lock.try_acquire()
        except OSError as error:
            self._bus.emit(events.Warned(f"the lock could not be acquired: {error}"))

    def _trim(self) -> None:
        """Delete the ledger's oldest records, so that its disk space is bounded. At most once an
        hour."""
        if not self._next_trim.has_passed:
            return
        self._next_trim = Deadline.after_ms(_TRIM_EVERY_MS)
        trim(self._batches.ledger, RECORDS_KEPT, self._bus, self._needed_from())
