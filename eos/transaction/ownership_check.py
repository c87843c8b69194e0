"""Find out whether this process still owns its transactional id, and whether its last attempt
committed.

The broker may refuse the owner's InitProducerId with (id, epoch) as fenced although no other
instance took over. On any cluster:
- The request was granted and its response was lost. Then a broker died, and the new coordinator
  read the log, which holds the new epoch only. It can't recognize the retry as a retry.
- The request was granted under another producer id, because the owner's epochs had run out. Its
  response was lost.
- The owner's InitProducerId without an identity arrived twice, the second time long after the
  first.

Under TV1, the broker aborts an open transaction under a new epoch and forgets its owner. So these
cases are added:
- The owner's transaction exceeded its timeout.
- The owner's EndTxn never arrived. The InitProducerId that is to resolve the doubt then aborts the
  transaction itself.
- The owner's AddPartitionsToTxn arrived twice, the second time after the end. It opened another
  transaction.
- A replaced instance sent InitProducerId, which aborted the new owner's transaction.

Two facts distinguish these cases from a takeover:
- The coordinator keeps the timeout of the last granted InitProducerId, in its log too. Each process
  requests a different timeout (`own_timeout_ms`).
- The first record of a newer owner in the ledger is its start record.

The timeout closes the gap before the newer owner's start record is committed. For example, A owns
the id with a timeout of 59,871 ms, and B is a newer instance:

    A   sends EndTxn; the response is lost
    B   InitProducerId without an identity, timeout 58,233: granted under a new epoch
    A   InitProducerId with (id, epoch): refused, since its epoch is over
    A   reads the ledger to its end: no record of B yet
    A   DescribeTransactions: timeout 58,233, which is not its own. A raises FencedError (exit 3)

If the timeout is still 59,871, no B was granted the id, and the broker itself ended A's epoch. A
then takes the id back: InitProducerId with the identity that DescribeTransactions returned. If B
comes between these two requests, that identity is over, the request is refused, and A looks again.

Once the id is taken back, the ledger is read to its end, which is final then ("never abort after
EndTxn(commit)"). To take it back with InitProducerId without an identity would be wrong:
1. A looks, and finds no other owner.
2. B takes over.
3. A's request, retried after a lost response, fences B, and both stop.

On any cluster, InitProducerId with (id, epoch) may be granted under another producer id. Either the
epochs of the old one have run out, or the broker forgot the transactional id and its owners since.
The ledger shows which.
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


def own_timeout_ms(configured_ms: int) -> int:
    """Return a transaction timeout for this process: random, up to a sixteenth below the configured
    one. The coordinator reports the timeout of the last granted InitProducerId, so it identifies
    the process.

    If two instances draw the same of thousands of values, the older one may take the id back until
    the newer one has written its start record. The newer one then stops, and no record is lost. If
    the configured value is slightly above the brokers' limit, the drawn one may be below it in one
    run and above it in the next. `eos doctor` finds this.
    """
    return max(1, configured_ms - 1 - secrets.randbelow(max(1, configured_ms // _SIXTEENTH)))


@dataclass(slots=True)
class OwnershipCheck:
    """The coordinator's requests, with a check of the ledger wherever a response is ambiguous.

    `last` is the identity in the newest ledger record that this process has read or committed, and
    `last_offset` that record's offset. `last` is NO_IDENTITY if there is none.
    """

    pipeline: str
    coordinator: Coordinator
    ledger: Ledger
    last: Identity = NO_IDENTITY
    last_offset: int = -1

    @property
    def is_undecided(self) -> bool:
        """Return whether the last attempt's outcome is unknown, or it is unclear why the broker
        refused this process as fenced.

        Then only `settle` may follow.
        """
        return self.coordinator.is_in_doubt or self.coordinator.is_disputed

    def begin(self, deadline: Deadline) -> Identity:
        """Begin an attempt and return its identity. Raise FencedError if another instance took
        over."""
        self._request(self.coordinator.begin, deadline)
        if self.coordinator.is_awaiting_ledger:
            self._resolve(NO_IDENTITY, deadline)
            self.coordinator.begin(deadline)
        return self.coordinator.identity

    def abort(self, deadline: Deadline, unknown: Identity = NO_IDENTITY) -> None:
        """Abort the attempt, so that the next one has a new identity. Either EndTxn(commit) was not
        sent, or `unknown` is the identity that it was sent for."""
        self._request(self.coordinator.abort, deadline, unknown)
        if self.coordinator.is_awaiting_ledger:
            self._resolve(unknown, deadline)

    def conclude(self, identity: Identity, deadline: Deadline) -> LedgerRecord | None:
        """End an attempt whose state is unknown after an interrupt, and return the ledger's last
        record.

        The attempt may be open, in doubt, or committed without this process having recorded it.
        """
        if self.is_undecided:
            return self.settle(identity, deadline)
        self.abort(deadline, identity)  # sends no request if the attempt has ended
        found = self.ledger.read_last(deadline)
        self._require_alone(found, identity)
        return self._record(found)

    def settle(self, identity: Identity, deadline: Deadline) -> LedgerRecord | None:
        """Resolve an attempt after EndTxn with an unknown outcome. Return the ledger's last record:
        the attempt's own if it was committed ("the ledger is the truth", "never abort after
        EndTxn(commit)").

        InitProducerId with (id, epoch) waits until the broker has finished the transaction. After
        that the ledger's end is final. No request of the attempt can take effect any more, since
        its epoch is over.
        """
        self._request(self.coordinator.settle, deadline, identity)
        return self._resolve(identity, deadline)

    def _record(self, found: LedgerRecord | None) -> LedgerRecord | None:
        if found is None and self.last != NO_IDENTITY:
            topic = self.ledger.partition.topic
            raise PromiseBrokenError(
                "ledger_gone",
                f"{self.pipeline}: the ledger {topic!r} is empty, although this pipeline has "
                "written to it",
                hint="its records or the topic were deleted while the pipeline ran. "
                f"`eos recover {self.pipeline}` lists the positions that are left to resume from",
            )
        if found is not None:
            self.last, self.last_offset = found.identity, found.offset
        return found

    def _request(
        self,
        request: Callable[[Deadline], object],
        deadline: Deadline,
        in_doubt: Identity = NO_IDENTITY,
    ) -> None:
        """Send a request. If the broker refuses it as fenced and the cause is unclear, find out
        whether another instance took over. A FencedError from here is final."""
        is_unresolved = self.coordinator.is_disputed or self.coordinator.is_awaiting_ledger
        if not is_unresolved:  # else an earlier InitProducerId must be resolved first
            try:
                request(deadline)
            except FencedError:
                if not self.coordinator.is_disputed:
                    raise
        if self.coordinator.is_disputed:
            self._fence_again(in_doubt, deadline)

    def _fence_again(self, in_doubt: Identity, deadline: Deadline) -> None:
        """Take the transactional id back, unless another owner was granted it.

        If the broker refuses, its identity changed after `describe`. The cause may be the broker or
        this process, so repeat both until the deadline.
        """
        backoff = self.coordinator.backoff()
        while True:
            self._require_alone(self.ledger.peek(deadline), in_doubt)
            current = self.coordinator.describe(deadline)
            if current.timeout_ms != self.coordinator.timeout_ms:
                raise self._fenced(
                    f"the transactional id is at epoch {current.identity.epoch} ({current.phase})"
                )
            try:
                self.coordinator.fence_again(current.identity, deadline)
            except FencedError:
                backoff.sleep(deadline)
                if deadline.has_passed:
                    raise
            else:
                return

    def _resolve(self, in_doubt: Identity, deadline: Deadline) -> LedgerRecord | None:
        """Read the ledger's last record, which is final because earlier identities are fenced. It
        is that of the attempt `in_doubt` if this committed."""
        found = self.ledger.read_last(deadline)
        self._require_alone(found, in_doubt)
        self._record(found)
        self.coordinator.settled()
        return found

    def _require_alone(self, last: LedgerRecord | None, in_doubt: Identity) -> None:
        """Raise unless the ledger's last record was written by this process, or by its attempt in
        doubt.

        A later record means that another instance took over. An earlier record means that the
        ledger lost records. Only the offset distinguishes these cases: two instances may have the
        same host name and process id, and a newer producer id may be the smaller number.
        """
        if last is None or last.identity in {self.last, in_doubt}:
            return
        if last.offset < self.last_offset:
            raise self.ledger.ends_before(last)
        raise self._fenced(
            f"its record is at offset {last.offset} of the ledger (host "
            f"{last.owner.get('host')}, process {last.owner.get('process')})"
        )

    def _fenced(self, evidence: str) -> FencedError:
        return FencedError(
            "newer_instance_running",
            f"{self.pipeline}: another instance took over: {evidence}",
            hint="stop one of the two instances of the pipeline",
        )
