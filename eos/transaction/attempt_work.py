"""What the transaction code needs from the work of one micro-batch.

`run/attempt.py` implements it for a pipeline, `replay/replayer.py` for dead letters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eos.kafka.api import Identity
from eos.ledger.receipt import Receipt
from eos.ledger.record import Ends, Position, Refused


@dataclass(frozen=True, slots=True)
class AttemptFacts:
    """The facts of an attempt that the ledger's record contains, apart from its receipts."""

    refused: Refused = field(default_factory=dict)  # rejected source records, by rule and outcome
    records_read: int | None = None  # visible source records; None: not counted
    reads: Mapping[str, int] = field(default_factory=dict)  # version of each lookup table
    producers: str = ""  # the version of dedup's states after the attempt
    dedup: Mapping[str, Any] = field(default_factory=dict)  # dedup's counts
    validate_first: int = 0  # micro-batches after this one that dedup validates before writing


class AttemptWork(ABC):
    """The work of one micro-batch, inside its transaction and after it."""

    @abstractmethod
    def execute(self, identity: Identity, position: Position, floors: Ends) -> Sequence[Receipt]:
        """Write the micro-batch's records under `identity`.

        Returns when each of them is acknowledged exactly once. `position` is the ledger's;
        source records below `floors` are committed already.
        """

    def prepare_commit(self) -> AttemptFacts:
        """Check the targets again, write dedup's states, and return the facts to record.

        Called once per attempt, after all records are acknowledged and before the ledger's record
        is written.
        """
        return AttemptFacts()

    def skip(self, position: Position) -> None:  # noqa: B027 - most have nothing to do
        """Finish a micro-batch that is already committed, but that Spark runs again."""

    def follow(self, position: Position, _offset: int) -> Position:
        """Write the Delta tables after the commit, and return the position that includes them.

        The offset is that of the ledger's record. No newer micro-batch begins before this returns.
        """
        return position
