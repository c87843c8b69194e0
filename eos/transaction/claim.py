"""Whether this process still owns its transactional id, and what became of its last attempt.

The coordinator can't tell alone. On a TV1 cluster the broker ends what is open under a new epoch
and forgets whose it was; the owner's init with (id, epoch) is then refused, as if somebody had
taken over. It happens to an owner
- whose transaction outlived its timeout;
- whose EndTxn never arrived: the init that is to close the doubt ends the transaction itself;
- whose AddPartitionsToTxn arrived twice, once of them after the end: it opened another one;
- whose transaction was ended by the init of one that it had replaced.
Two things tell that from a takeover. The coordinator of the id remembers what happened to it last:
a takeover ends in an init that was granted, or in a higher epoch. And a newer owner's first record
in the ledger is its start. If both say that nobody was there, the start procedure is gone through
once more: a blank init, then the ledger to its true end (rule R7).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eos.deadline import Deadline
from eos.errors import FencedError, PromiseBrokenError
from eos.transaction.coordinator import Coordinator
from eos.transaction.ledger import Ledger
from eos.transaction.ledger_record import Record
from eos.transaction.port import NO_IDENTITY, Identity

# What the coordinator is at, or has done, when it ends a transaction without being asked to by
# the transaction's owner.
_ENDED_BY_BROKER = frozenset({"PrepareEpochFence", "PrepareAbort", "CompleteAbort"})


@dataclass(slots=True)
class Claim:
    """A coordinator, and the ledger that has the last word. `last` is the transaction of the newest
    record that this process has read or written; NO_IDENTITY as long as there is none."""

    pipeline: str
    coordinator: Coordinator
    ledger: Ledger
    last: Identity = NO_IDENTITY

    @property
    def is_undecided(self) -> bool:
        """What became of the last attempt is not known, or a dispute was not brought to its end:
        `settle` comes next, and nothing else."""
        return self.coordinator.is_in_doubt or self.coordinator.is_disputed

    def begin(self, deadline: Deadline) -> Identity:
        if self._is_refused(self.coordinator.begin, deadline):
            self._again(NO_IDENTITY, deadline)
            self.coordinator.settled(committed=False)
            self.coordinator.begin(deadline)
        return self.coordinator.identity

    def abort(self, deadline: Deadline) -> None:
        """Ends the attempt with a new identity in hand: EndTxn(commit) was not sent."""
        if self._is_refused(self.coordinator.abort, deadline):
            self._again(NO_IDENTITY, deadline)
            self.coordinator.settled(committed=False)

    def settle(self, identity: Identity, deadline: Deadline) -> Record | None:
        """EndTxn was sent and its outcome is unknown: the ledger knows (rules R4, R7). Returns its
        last record, which is the attempt's if that was committed.

        Our init with (id, epoch) waits until the broker has finished whatever it had begun. After
        that the ledger's end is final: no request of the attempt can still be on its way, since
        its epoch is over.
        """
        if self._is_refused(self.coordinator.settle, deadline):
            found = self._again(identity, deadline)
        else:
            found = self.read_last(deadline)
        self.coordinator.settled(found is not None and found.identity == identity)
        return found

    def read_last(self, deadline: Deadline) -> Record | None:
        found = self.ledger.read_last(deadline)
        if found is None and self.last != NO_IDENTITY:
            raise PromiseBrokenError(
                f"{self.pipeline}: the ledger {self.ledger.partition.topic!r} is empty, although "
                "this pipeline wrote to it",
                hint="somebody deleted its records or the topic, while the pipeline ran: "
                f"`eos recover {self.pipeline}` shows what is left to go on from",
                case="ledger_gone",
            )
        if found is not None:
            self.last = found.identity
        return found

    def _is_refused(self, ask: Callable[[Deadline], object], deadline: Deadline) -> bool:
        """Whether that can be disputed; raises FencedError if not."""
        if not self.coordinator.is_disputed:  # else a dispute was not brought to its end
            try:
                ask(deadline)
            except FencedError:
                if not self.coordinator.is_disputed:
                    raise
        return self.coordinator.is_disputed

    def _again(self, in_doubt: Identity, deadline: Deadline) -> Record | None:
        """The start procedure once more: look, fence, read."""
        known = {self.last, in_doubt}
        self._require_alone(self.ledger.look(deadline), known)
        ours, seen = self.coordinator.identity, self.coordinator.look(deadline)
        is_own_doing = seen.identity == (ours.producer_id, ours.epoch + 1)
        if not (is_own_doing and seen.phase in _ENDED_BY_BROKER):
            raise self._fenced(f"it is at epoch {seen.identity.epoch} ({seen.phase})")
        self.coordinator.fence_again(deadline)
        found = self.read_last(deadline)
        self._require_alone(found, known)
        return found

    def _require_alone(self, last: Record | None, known: set[Identity]) -> None:
        """Whoever wrote a record that is neither our last nor in doubt, it was not us."""
        if last is not None and last.identity not in known:
            raise self._fenced(
                f"its record is at offset {last.offset} of the ledger (host "
                f"{last.owner.get('host')}, process {last.owner.get('process')})"
            )

    def _fenced(self, seen: str) -> FencedError:
        return FencedError(
            f"{self.pipeline}: another copy took over: {seen}",
            hint="stop one of the two copies of the pipeline",
        )
