"""Idle is not safe (rule R11): group offsets expire after days, ids too, and nobody notices.

A pipeline without new data writes an empty attempt often enough that nothing expires. It is also
how an idle pipeline finds out that another copy took over. And what grows is cut here: the ledger.
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
# Of the ledger: what `eos recover --rewind-to` can go back to, in about 100 MB.
RECORDS_KEPT = 100_000
_TRIM_EVERY_MS = 3_600_000
# How often within the time after which something expires.
_TIMES = 4


def interval_ms(wire: KafkaClient, deadline: Deadline) -> int:
    """Once a day, or more often where the broker forgets sooner."""
    limits = [_DAY_MS * _TIMES]
    with suppress(KafkaRefusedError):  # its settings may be nobody's business here
        limits.append(int(wire.broker_config("offsets.retention.minutes", deadline)) * 60_000)
        limits.append(int(wire.broker_config("transactional.id.expiration.ms", deadline)))
    return min(limits) // _TIMES


class IdleWatch:
    """A thread that refreshes while nothing else commits. `on_stop` ends the run, with an error
    that a restart would meet again; after any other error the next refresh is another try."""

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
        self._needed_from = needed_from  # the ledger's first record that the audit table lacks
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="eos-idle", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when nothing of it is under way: each of its requests has a deadline."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        tick_s = min(_TICK_S_MAX, self._every_ms / 1000 / _TIMES)
        while not self._end.wait(tick_s):
            try:
                # A copy that was taken over by force held the lock until it noticed.
                self._lock.try_take()
                self._batches.refresh(self._every_ms)
                self._trim()
            except EosError as error:
                if error.recovery in {Recovery.FENCED, Recovery.STOP}:
                    self._on_stop(error)
                    return
                self._bus.emit(events.Warned(f"the idle refresh failed: {error.message}"))
            except Exception as error:  # noqa: BLE001 - the pipeline goes on without it
                self._bus.emit(events.Warned(f"the idle refresh failed: {error!r}"))

    def _trim(self) -> None:
        """The ledger's disk is bounded, too."""
        if not self._next_trim.has_passed:
            return
        self._next_trim = Deadline.after_ms(_TRIM_EVERY_MS)
        trim(self._batches.ledger, RECORDS_KEPT, self._bus, self._needed_from())
