"""What is on its way to one target partition: order, repetition, and what was acknowledged.

No I/O. The writer says what it sent and what was answered, the lane what may leave next.

A record batch keeps its bytes and its sequence through every retry (rule R8): the broker tells a
repeated one from a new one by nothing else. After a failure nothing more leaves until every answer
of the lane is in; then whatever is not acknowledged waits again, in its old place. Only then may
the lane turn to another leader, too: between two connections there is no order, and under TV1 a
leader that knows nothing of the producer yet would take the second record batch before the first.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Any

import google_crc32c

from eos.deadline import Backoff
from eos.errors import AttemptFailedError, EosError, NoAnswerError, UnavailableError
from eos.kafka.api import Api, Identity, ProduceAnswer, TopicPartition
from eos.kafka.outcomes import Outcome, describe, outcome_of
from eos.kafka.records.record_batch import stamp
from eos.ledger.receipt import Receipt

IN_FLIGHT_MAX = 5  # the leader remembers five record batches of a producer, no more
_SEQUENCE_MAX = 0x7FFFFFFF
_ID_REFUSED = 53
_OUT_OF_ORDER_SEQUENCE = 45
_MESSAGE_TOO_LARGE = 10


class _State(Enum):
    WAITING = "waiting"
    SENT = "sent"
    ACKNOWLEDGED = "acknowledged"


@dataclass(slots=True)
class Item:
    """A stamped record batch on its way."""

    blob: bytes
    records: int
    digest: int
    state: _State = _State.WAITING
    offset: int = -1


@dataclass(slots=True)
class PartitionQueue:
    """One target partition of one attempt. `items` leave once acknowledged, in sequence order.

    `leader` is where its requests go, None until it is looked up; `failure` what keeps the lane
    from sending; `cause` the last failure that no acknowledgement followed, and `backoff` the
    pauses since the first of them.
    """

    partition: TopicPartition
    identity: Identity
    transactional_id: str = ""  # for messages
    leader: int | None = None
    is_entered: bool = False
    items: deque[Item] = field(default_factory=deque)
    failure: EosError | None = None
    cause: EosError | None = None
    backoff: Backoff | None = None
    _on_the_wire: int = 0
    _is_leader_lost: bool = False
    _sequence_next: int = 0
    _records: int = 0
    _bytes: int = 0
    _digest: int = 0
    _offset_first: int = -1
    _offset_last: int = -1

    @property
    def name(self) -> str:
        return f"{self.partition.topic}-{self.partition.partition}"

    def add(self, blob: Any, records: int, digest: int) -> int:
        """Takes an encoded record batch. Returns the bytes to keep until it is acknowledged."""
        stamped = stamp(blob, self.identity, self._sequence_next)
        self._sequence_next = (self._sequence_next + records) & _SEQUENCE_MAX
        self.items.append(Item(stamped, records, digest))
        return len(stamped)

    def next_waiting(self) -> Item | None:
        """What to send next. The leader remembers five record batches, so five may be unanswered
        at once; one acknowledged behind a failed one (7: appended, not yet replicated) still
        counts until its turn comes, hence the look at the first five places only.

        The very first goes alone: it opens the partition's part of the transaction, is refused
        with 19 as a matter of course, and under TV1 the second might be taken without it.
        """
        if self.failure is not None:
            return None
        for item in islice(self.items, IN_FLIGHT_MAX if self._records else 1):
            if item.state is _State.WAITING:
                return item
        return None

    def sent(self, item: Item) -> None:
        item.state = _State.SENT
        self._on_the_wire += 1

    def answered(self, item: Item, answer: ProduceAnswer) -> int:
        """Returns how many bytes need not be kept any more. Raises what no repetition mends."""
        self._on_the_wire -= 1
        outcome = outcome_of(Api.PRODUCE, answer.error)
        if outcome is Outcome.OK:
            item.state, item.offset = _State.ACKNOWLEDGED, answer.offset
            return self._release()
        # 45 after a failure of an earlier record batch only says that the earlier one is
        # missing; alone it means that somebody else wrote under our identity.
        follows = self.failure is not None and answer.error == _OUT_OF_ORDER_SEQUENCE
        error = describe(
            Api.PRODUCE,
            answer.error,
            answer.message,
            where=self.name,
            resource=self.transactional_id if answer.error == _ID_REFUSED else "",
        )
        if answer.error == _MESSAGE_TOO_LARGE and item.records > 1:
            raise _too_large(error, item)
        if not follows and outcome not in (Outcome.RETRY, Outcome.REFRESH):
            raise error
        self._fail(error, is_leader_lost=outcome is Outcome.REFRESH)
        return 0

    def lost(self, error: NoAnswerError, *, is_late: bool = False) -> None:
        """Perhaps appended, perhaps not: the same bytes under the same sequence are right in both
        cases, on whatever connection to whoever leads by then. `is_late`: its time was short, so
        that a failure before it says more."""
        self._on_the_wire -= 1
        nothing = UnavailableError(
            f"{self.name}: {error.message}", hint=error.hint or "is the partition's leader alive?"
        )
        self._fail((self.cause if is_late else None) or nothing, is_leader_lost=True)

    @property
    def can_resend(self) -> bool:
        """Failed, and every answer is in."""
        return self.failure is not None and not self._on_the_wire

    def resend(self) -> None:
        """What is not acknowledged waits again, for the leader that is looked up next if the one
        before did not answer, or said that it is not the leader."""
        self.failure = None
        if self._is_leader_lost:
            self.leader, self._is_leader_lost = None, False
        for item in self.items:
            if item.state is _State.SENT:
                item.state = _State.WAITING

    def unfinished(self) -> EosError:
        """Why not everything was acknowledged, for who gives up now.

        Without a cause it was only slow, or paused: the next attempt may well be in time.
        """
        return self.cause or AttemptFailedError(
            f"{self.name}: {len(self.items)} record batches were not acknowledged within the "
            "writer's share of the transaction timeout",
            hint="raise `transaction.timeout` in the pipeline file, or make micro-batches smaller "
            "(source.kafka.max_records); are the brokers overloaded?",
        )

    def receipt(self) -> Receipt:
        return Receipt(
            *self.partition,
            records=self._records,
            offset_first=self._offset_first,
            offset_last=self._offset_last,
            bytes=self._bytes,
            digest=self._digest,
        )

    def _fail(self, error: EosError, *, is_leader_lost: bool) -> None:
        """The first failure says why; those behind it only follow."""
        if self.failure is None:
            self.failure = self.cause = error
        self._is_leader_lost = self._is_leader_lost or is_leader_lost

    def _release(self) -> int:
        if self.failure is None:
            self.cause = self.backoff = None
        released = 0
        while self.items and self.items[0].state is _State.ACKNOWLEDGED:
            item = self.items.popleft()
            if self._offset_first < 0:
                self._offset_first = item.offset
            self._offset_last = item.offset + item.records - 1
            self._records += item.records
            self._bytes += len(item.blob)
            self._digest = google_crc32c.extend(self._digest, item.digest.to_bytes(4, "big"))
            released += len(item.blob)
        return released


def _too_large(error: EosError, item: Item) -> AttemptFailedError:
    """Several records in a record batch that is too large: another attempt can divide them."""
    return AttemptFailedError(
        f"{error.message.rstrip('.')}: it has {item.records} records in {len(item.blob)} bytes",
        hint="if max.message.bytes of the topic was lowered, the next attempt encodes for it; if "
        "its compression.type differs from the sink's, brokers compress again and compare then",
        **error.fields,
    )
