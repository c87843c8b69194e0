"""How a clean end of a run is recorded in the ledger."""

from __future__ import annotations

from typing import TypeGuard

from eos.errors import EosError, Recovery
from eos.observe import events
from eos.observe.bus import Bus
from eos.transaction.micro_batch import MicroBatches


def note_clean_end(batches: MicroBatches, bus: Bus, *, is_at_rest: bool) -> None:
    """Write a stop record. After it, another deployment may acquire the pipeline without force. The
    next run may resume from its checkpoint, if no query writes there any more
    (`startup/checkpoint_dir.py`)."""
    batches.is_stopping = True
    try:
        batches.note_stop(is_at_rest=is_at_rest)
    except EosError as error:
        if is_final(error):
            raise  # a restart would fence the new owner, or fail in the same way
        bus.emit(events.Warned(f"the clean end could not be noted: {error.message}"))


def is_final(error: Exception | None) -> TypeGuard[EosError]:
    """Return whether the error must end even a run that was asked to stop. A restart would fail in
    the same way."""
    return isinstance(error, EosError) and error.recovery in {Recovery.FENCED, Recovery.STOP}
