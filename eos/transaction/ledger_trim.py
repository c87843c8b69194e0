"""Delete the ledger's oldest records. If the broker refuses, only a warning is emitted."""

from __future__ import annotations

from eos.deadline import Deadline
from eos.errors import EosError
from eos.ledger.ledger import Ledger
from eos.observe import events
from eos.observe.bus import Bus
from eos.transaction.micro_batch import STEP_TIMEOUT_MS


def trim(ledger: Ledger, keep: int, bus: Bus, needed_from: int | None = None) -> None:
    """Delete all but about `keep` ledger records, and none from offset `needed_from` on.

    If the broker refuses, for instance without the permission to delete records, emit a warning and
    continue.
    """
    try:
        ledger.trim(keep, Deadline.after_ms(STEP_TIMEOUT_MS), needed_from)
    except EosError as error:
        bus.emit(
            events.Warned(f"the ledger's oldest records could not be deleted: {error.message}")
        )
