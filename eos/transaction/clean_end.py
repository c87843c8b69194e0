"""Write the ledger record that marks a clean end of a run."""

from __future__ import annotations

from typing import TypeGuard

from eos.errors import EosError, Recovery
from eos.observe import events
from eos.observe.bus import Bus
from eos.transaction.micro_batch import MicroBatches


def note_clean_end(batches: MicroBatches, bus: Bus, *, is_at_rest: bool) -> None:
    """Write a stop record to the ledger. After it, another deployment may start the pipeline
    without `--take-over`.

    `is_at_rest`: no query writes to the checkpoint any more, so the next run may resume from it
    (`startup/checkpoint_dir.py`).
    """
    batches.is_stopping = True
    try:
        batches.note_stop(is_at_rest=is_at_rest)
    except EosError as error:
        if is_final(error):
            raise  # a restart would fence the new owner, or meet the same error
        bus.emit(
            events.Warned(
                f"the ledger record of the clean stop could not be written: {error.message}"
            )
        )


def is_final(error: Exception | None) -> TypeGuard[EosError]:
    """Return whether a run must exit with this error even if it was asked to stop, because a
    restart would not help. False for None."""
    return isinstance(error, EosError) and error.recovery in {Recovery.FENCED, Recovery.STOP}
