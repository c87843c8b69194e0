"""An attempt's work that is a function: for tests of the transaction machine without Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eos.kafka.api import Identity
from eos.ledger.receipt import Receipt
from eos.ledger.record import Ends, Position
from eos.transaction.attempt_work import AttemptFacts, AttemptWork

Execute = Callable[[Identity, Ends], Sequence[Receipt]]


def unchanged(position: Position, _offset: int) -> Position:
    return position


@dataclass(frozen=True)
class Work(AttemptWork):
    writes: Execute
    facts: Callable[[], AttemptFacts] = AttemptFacts
    follows: Callable[[Position, int], Position] = unchanged

    def execute(self, identity: Identity, _position: Position, floors: Ends) -> Sequence[Receipt]:
        return self.writes(identity, floors)

    def prepare_commit(self) -> AttemptFacts:
        return self.facts()

    def follow(self, position: Position, offset: int) -> Position:
        return self.follows(position, offset)
