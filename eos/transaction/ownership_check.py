"""Whether this process still owns its transactional id, and what became of its last attempt.

An owner's init with (id, epoch) may be refused as if somebody had taken over, although nobody has:
- it was granted, its answer was lost, and a coordinator that read its log since (a broker died)
  does not know that the repetition is one: the log holds the new epoch only;
- it was granted under another producer id, because our epochs had run out, and its answer was lost;
- our own blank init arrived twice, the second time long after the first.
And on a TV1 cluster, where the broker ends what is open under a new epoch and forgets whose it was:
- our transaction outlived its timeout;
- our EndTxn never arrived: the init that is to close the doubt ends the transaction itself;
- our AddPartitionsToTxn arrived twice, once of them after the end: it opened another one;
- our transaction was ended by the init of one that we had replaced.
Two things tell that from a takeover. The coordinator keeps, in its log too, the timeout that the
last granted init asked for, and no two owners ask for the same (`own_timeout_ms`). And a newer
owner's first record in the ledger is its start. If both say that nobody was there, the id is taken
by an init with what the coordinator was seen at, and the ledger is read to its true end (rule R7).
No blank init: repeated over a lost answer it could fence a copy that took over since we looked, and
then both would stop.

And on any cluster an init with (id, epoch) is granted under another producer id if our epochs have
run out, but also if the broker has forgotten the id, whoever owned it since. The ledger tells.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from eos.deadline import Deadline
from eos.errors import FencedError, PromiseBrokenError
from eos.kafka.api import NO_IDENTITY, Identity
from eos.ledger.ledger import Ledger
from eos.ledger.record import LedgerRecord
from eos.transaction.coordinator import Coordinator

_SIXTEENTH = 16


def own_timeout_ms(asked_ms: int) -> int:
    """The transaction timeout of one process: up to a sixteenth less than asked for, so that the
    coordinator can say whose init it granted last. If two copies draw the same of the thousands
    that usual timeouts have, the older may take the id back until the newer has written its start
    record: the newer then stops, and nothing is lost. What is configured above the brokers' limit
    may pass in one start and not in the next: `eos doctor` finds it."""
    return max(1, asked_ms - 1 - secrets.randbelow(max(1, asked_ms // _SIXTEENTH)))


@dataclass(slots=True)
class OwnershipCheck:
    """A coordinator, and the ledger that has the last word. `last` is the transaction of the newest
    record that this process has read or committed, and `last_offset` the record's offset;
    NO_IDENTITY as long as there is none."""

    pipeline: str
    coordinator: Coordinator
    ledger: Ledger
    last: Identity = NO_IDENTITY
    last_offset: int = -1

    @property
    def is_undecided(self) -> bool:
        """What became of the last attempt is not known, or a dispute was not brought to its end:
        `settle` comes next, and nothing else."""
        return self.coordinator.is_in_doubt or self.coordinator.is_disputed

    def begin(self, deadline: Deadline) -> Identity:
        self._ask(self.coordinator.begin, deadline)
        if self.coordinator.is_judging:
            self._judge(NO_IDENTITY, deadline)
            self.coordinator.begin(deadline)
        return self.coordinator.identity

    def abort(self, deadline: Deadline, unknown: Identity = NO_IDENTITY) -> None:
        """Ends the attempt with a new identity in hand: EndTxn(commit) was not sent, or `unknown`
        is what it was sent for."""
        self._ask(self.coordinator.abort, deadline, unknown)
        if self.coordinator.is_judging:
            self._judge(unknown, deadline)

    def conclude(self, identity: Identity, deadline: Deadline) -> LedgerRecord | None:
        """Ends an attempt of which nothing is known: it may be open, in doubt, or committed, and we
        were interrupted before we noted it. Returns the ledger's last record."""
        if self.is_undecided:
            return self.settle(identity, deadline)
        self.abort(deadline, identity)  # sends nothing if the attempt has ended
        found = self.ledger.read_last(deadline)
        self._require_alone(found, identity)
        return self._noted(found)

    def settle(self, identity: Identity, deadline: Deadline) -> LedgerRecord | None:
        """EndTxn was sent and its outcome is unknown: the ledger knows (rules R4, R7). Returns its
        last record, which is the attempt's if that was committed.

        Our init with (id, epoch) waits until the broker has finished whatever it had begun. After
        that the ledger's end is final: no request of the attempt can still be on its way, since
        its epoch is over.
        """
        self._ask(self.coordinator.settle, deadline, identity)
        return self._judge(identity, deadline)

    def _noted(self, found: LedgerRecord | None) -> LedgerRecord | None:
        if found is None and self.last != NO_IDENTITY:
            raise PromiseBrokenError(
                f"{self.pipeline}: the ledger {self.ledger.partition.topic!r} is empty, although "
                "this pipeline wrote to it",
                hint="somebody deleted its records or the topic, while the pipeline ran: "
                f"`eos recover {self.pipeline}` shows what is left to go on from",
                case="ledger_gone",
            )
        if found is not None:
            self.last, self.last_offset = found.identity, found.offset
        return found

    def _ask(
        self,
        ask: Callable[[Deadline], object],
        deadline: Deadline,
        in_doubt: Identity = NO_IDENTITY,
    ) -> None:
        """What is refused is disputed where it can be; FencedError is the last word."""
        is_asked = self.coordinator.is_disputed or self.coordinator.is_judging
        if not is_asked:  # else it was before, and not brought to its end
            try:
                ask(deadline)
            except FencedError:
                if not self.coordinator.is_disputed:
                    raise
        if self.coordinator.is_disputed:
            self._fence_again(in_doubt, deadline)

    def _fence_again(self, in_doubt: Identity, deadline: Deadline) -> None:
        """Takes the id if nobody else was granted it since. Refused, somebody was there between our
        look and our init, perhaps only the broker, or ourselves: so we look again."""
        backoff = self.coordinator.backoff()
        while True:
            self._require_alone(self.ledger.look(deadline), in_doubt)
            seen = self.coordinator.look(deadline)
            if seen.timeout_ms != self.coordinator.timeout_ms:
                raise self._fenced(f"it is at epoch {seen.identity.epoch} ({seen.phase})")
            try:
                self.coordinator.fence_again(seen.identity, deadline)
            except FencedError:
                backoff.sleep(deadline)
                if deadline.has_passed:
                    raise
            else:
                return

    def _judge(self, in_doubt: Identity, deadline: Deadline) -> LedgerRecord | None:
        """We are fenced off from everybody before: what the ledger ends with is final."""
        found = self.ledger.read_last(deadline)
        self._require_alone(found, in_doubt)
        self._noted(found)
        self.coordinator.settled(found is not None and found.identity == in_doubt)
        return found

    def _require_alone(self, last: LedgerRecord | None, in_doubt: Identity) -> None:
        """Raise unless the ledger's last record is ours, or of the attempt in doubt. A later
        record means that another copy took over; an earlier one, that the ledger lost records.
        Only the offset tells them apart: two copies may have the same host name and process id,
        and a newer producer id may be the smaller one."""
        if last is None or last.identity in {self.last, in_doubt}:
            return
        if last.offset < self.last_offset:
            raise self.ledger.ends_before(last)
        raise self._fenced(
            f"its record is at offset {last.offset} of the ledger (host "
            f"{last.owner.get('host')}, process {last.owner.get('process')})"
        )

    def _fenced(self, seen: str) -> FencedError:
        return FencedError(
            f"{self.pipeline}: another copy took over: {seen}",
            hint="stop one of the two copies of the pipeline",
        )
