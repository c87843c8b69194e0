"""The work of one micro-batch, as the transaction machine sees it: `run/attempt.py` for a pipeline,
`replay/replayer.py` for dead letters."""

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
    """The values that the ledger's record has of an attempt, apart from its receipts."""

    refused: Refused = field(default_factory=dict)  # rejected source records, by rule and answer
    records_read: int | None = None  # source records that were visible; None: not counted
    reads: Mapping[str, int] = field(default_factory=dict)  # version of each lookup table
    producers: str = ""  # the version of dedup's states after the attempt
    dedup: Mapping[str, Any] = field(default_factory=dict)  # dedup's counts
    validate_first: int = 0  # micro-batches after this one that dedup validates before writing


class AttemptWork(ABC):
    """One micro-batch's work, inside its transaction and after it."""

    @abstractmethod
    def execute(self, identity: Identity, position: Position, floors: Ends) -> Sequence[Receipt]:
        """Write the micro-batch's records under `identity`.

        Returns when each of them is acknowledged exactly once. `position` is the ledger's;
        source records below `floors` are committed already.
        """

    def prepare_commit(self) -> AttemptFacts:
        """Check the targets again, write dedup's states, and return the facts to record. Called
        once per attempt, after everything is acknowledged and before the ledger's record."""
        return AttemptFacts()

    def skip(self, position: Position) -> None:  # noqa: B027 - most have nothing to do
        """Finish a micro-batch that is committed already, but that Spark runs again."""

    def follow(self, position: Position, _offset: int) -> Position:
        """Write the Delta tables after the commit, and return the position that includes them.

        The offset is that of the ledger's record. No newer micro-batch begins before this returns.
        """
        return position
