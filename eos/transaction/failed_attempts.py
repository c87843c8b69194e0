"""Collect aborted attempts until a committed ledger record lists them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from eos.errors import EosError
from eos.kafka.api import Identity
from eos.transaction.attempt_events import reason_of

_LISTED_MAX, _REASON_MAX = 20, 500


class FailedAttempts:
    """Aborted attempts that no ledger record lists yet, at most 20.

    The next committed record lists them, and the audit table gets its rows from that record.
    Aborted transactions without a micro-batch (start, refresh, stop) are included.
    """

    def __init__(self, earlier: Iterable[Mapping[str, Any]] = ()) -> None:
        self._listed = [dict(each) for each in earlier]
        self._facts: Mapping[str, Any] = {}

    @property
    def listed(self) -> list[dict[str, Any]]:
        return list(self._listed)

    def begin(self, **facts: Any) -> None:
        """Remember what is known about the attempt that begins (kind, ranges, time), for `add`."""
        self._facts = facts

    def add(self, identity: Identity, batch_id: int, number: int, error: Exception) -> None:
        """Add a failed attempt, unless it is listed already or 20 are listed.

        So many fail only if nothing was committed for long, and then the run is about to end.
        """
        producer_id, epoch = identity
        known = {(each["producer_id"], each["epoch"]) for each in self._listed}
        if identity in known or len(self._listed) >= _LISTED_MAX:
            return
        kind = error.kind if isinstance(error, EosError) else type(error).__name__
        self._listed.append(
            {
                **self._facts,
                "batch_id": batch_id,
                "number": number,
                "producer_id": producer_id,
                "epoch": epoch,
                "at_ms": int(time.time() * 1000),
                "reason": reason_of(error)[:_REASON_MAX],
                "error": kind,
            }
        )

    def clear(self) -> None:
        """Empty the list, after a committed record has listed the attempts."""
        self._listed = []
