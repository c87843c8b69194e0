"""Record in the ledger that this run ended cleanly."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

from eos.errors import (
    EosError,
    Recovery,
)
from eos.observe import events
from eos.observe.bus import Bus
from eos.transaction.micro_batch import MicroBatches

if TYPE_CHECKING:
    pass


def note_clean_end(batches: MicroBatches, bus: Bus, *, is_at_rest: bool) -> None:
    """From here on another deployment may take the pipeline without force; and the next start may
    go on with its checkpoint, if nobody writes there any more (`startup/checkpoint_dir.py`)."""
    batches.is_stopping = True
    try:
        batches.note_stop(is_at_rest=is_at_rest)
    except EosError as error:
        if is_final(error):
            raise  # a start again would fence whoever replaced us, or meet the same
        bus.emit(events.Warned(f"the clean end could not be noted: {error.message}"))


def is_final(error: Exception | None) -> TypeGuard[EosError]:
    """An end that a run which was asked to stop must not hide: a start again would meet it."""
    return isinstance(error, EosError) and error.recovery in {Recovery.FENCED, Recovery.STOP}
