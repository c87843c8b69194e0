"""The interface through which the transaction code runs the work of one micro-batch.

`micro_batch/work.py` implements it for a pipeline, `replay/replayer.py` for dead letters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eos.kafka.api import Identity
from eos.kafka.read_amounts import ReadAmounts
from eos.ledger.receipt import Receipt
from eos.ledger.record import Ends, Position, Refused


@dataclass(frozen=True, slots=True)
class AttemptFacts:
    """What the ledger record of an attempt contains, apart from its receipts (counts and offsets
    per target partition). `amounts` are for its event alone."""

    refused: Refused = field(default_factory=dict)  # rejected source records, by rule and outcome
    records_read: int | None = None  # source records read, without aborted ones; None: not counted
    reads: Mapping[str, int] = field(default_factory=dict)  # version of each lookup table
    producers: str = ""  # the version of dedup's states after the attempt
    dedup: Mapping[str, Any] = field(default_factory=dict)  # dedup's counts
    validate_first: int = 0  # micro-batches after this one that dedup validates before writing
    amounts: ReadAmounts = field(default_factory=ReadAmounts)


class AttemptWork(ABC):
    """The work of one micro-batch: what runs inside its transaction, and what follows the
    commit."""

    @abstractmethod
    def execute(self, identity: Identity, position: Position, floors: Ends) -> Sequence[Receipt]:
        """Write the micro-batch's records to Kafka under `identity` (producer id and epoch), and
        return the receipts.

        Return only when each record is acknowledged exactly once, which `check` in
        `ledger/receipt.py` finds out. `position` has the offsets of the
        ledger's last record. Source records below `floors` are committed already.
        """

    def prepare_commit(self) -> AttemptFacts:
        """Check the target topics again, write dedup's states, and return what the ledger record
        needs.

        Called once per attempt, after all records are acknowledged and before the ledger record is
        written.
        """
        return AttemptFacts()

    def skip(self, position: Position) -> None:  # noqa: B027 - nothing to do by default
        """Finish a micro-batch that Spark runs again although the ledger lists it as committed."""

    def follow(self, position: Position, _offset: int) -> Position:
        """Write the Delta tables after the commit, and return the position with their new versions.

        `_offset` is the ledger offset of the committed record. No newer micro-batch begins before
        this returns.
        """
        return position
