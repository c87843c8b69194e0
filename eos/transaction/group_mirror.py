"""Mirror the ledger's ends to the consumer group on the source's cluster, after each commit.

The transaction is on the cluster of the targets, whose brokers reject offsets of topics that they
don't have. So its ledger record alone has the position, and this copy is for tools that show the
lag. Nothing reads it to decide anything. A thread sends it, so that no micro-batch waits for it.
"""

from __future__ import annotations

import threading
from typing import Protocol

from eos.deadline import Deadline
from eos.errors import EosError
from eos.kafka.client import KafkaClient
from eos.ledger.record import Ends
from eos.observe import events
from eos.observe.bus import Bus

_SEND_MS_MAX = 10_000
_CLOSE_S_MAX = 5.0  # how long a run's end waits for the last offsets


class Group(Protocol):
    """The pipeline's consumer group, a copy of the ledger's ends."""

    def in_transaction(self, ends: Ends) -> Ends:
        """Return the offsets that the attempt's transaction commits."""

    def committed(self, ends: Ends) -> None:
        """Note that a transaction committed these ends in the ledger."""

    def compare(self, ends: Ends) -> None: ...

    def close(self) -> None:
        """End what still runs, within seconds."""


class GroupMirror:
    """A thread that commits the newest ends as offsets of the group. It begins with the first
    commit.

    A failure is a warning, once until a later commit succeeds, and the next commit repeats it.
    """

    def __init__(self, client: KafkaClient, group: str, cluster: str, bus: Bus) -> None:
        self._client, self._group = client, group
        self._cluster, self._bus = cluster, bus
        self._changed = threading.Condition()
        self._wanted: Ends | None = None  # the newest ends that were not sent yet
        self._is_closing = False
        self._is_failing = False
        self._thread: threading.Thread | None = None

    def in_transaction(self, _ends: Ends) -> Ends:
        return {}

    def committed(self, ends: Ends) -> None:
        with self._changed:
            self._wanted = dict(ends)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="eos-group", daemon=True)
                self._thread.start()
            self._changed.notify()

    def compare(self, _ends: Ends) -> None:
        """Do nothing: another client may move these offsets without a consequence."""

    def close(self) -> None:
        """Send the last ends, and end the thread. Wait for at most five seconds."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_CLOSE_S_MAX)

    def _run(self) -> None:
        while (ends := self._next()) is not None:
            try:
                if ends:
                    deadline = Deadline.after_ms(_SEND_MS_MAX)
                    self._client.commit_group_offsets(self._group, ends, deadline)
                self._is_failing = False
            except Exception as error:  # noqa: BLE001 - a copy for tools must not end a run
                self._warn(error.message if isinstance(error, EosError) else repr(error))

    def _next(self) -> Ends | None:
        """Wait for ends to send; return None once there are none and the run has ended."""
        with self._changed:
            while self._wanted is None and not self._is_closing:
                self._changed.wait()
            found, self._wanted = self._wanted, None
            return found

    def _warn(self, reason: str) -> None:
        if not self._is_failing:
            self._is_failing = True
            self._bus.emit(
                events.Warned(
                    f"the group's offsets can't be mirrored to the source's cluster "
                    f"{self._cluster}: {reason}. Only tools that show the lag miss them; the next "
                    "commit repeats them"
                )
            )
