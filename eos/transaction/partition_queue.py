"""Decide which record batches of one target partition are sent next, retried, or done.

No I/O: the writer reports each request and response, and the queue decides what may be sent next.

Retries keep bytes and sequence, because the broker recognizes a repeated record batch by its
sequence alone. After a failure, the queue sends nothing until all its responses have arrived. Then
the unacknowledged record batches are sent again, in their old order.

Only then may the queue change to another leader, since two connections have no common order. Under
TV1, the new leader may know nothing of the producer: it would accept the second record batch before
the first.
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
from eos.kafka.outcomes import LEADER_HINT, Outcome, describe, outcome_of
from eos.kafka.records.record_batch import last_ms, stamp
from eos.ledger.receipt import BATCHES_MAX, AppendedBatch, Receipt

IN_FLIGHT_MAX = 5  # a leader remembers the last five record batches of a producer
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
    """A record batch with its producer id, epoch and sequence set. It is kept until it and all
    earlier ones are acknowledged."""

    blob: bytes
    records: int
    digest: int
    state: _State = _State.WAITING
    offset: int = -1


@dataclass(slots=True)
class PartitionQueue:
    """The pending record batches of one target partition, in one attempt.

    Acknowledged `items` are removed in the order of their sequences.

    - `leader`: the broker that gets the requests; None until it is looked up.
    - `failure`: the error that keeps the queue from sending.
    - `cause`: the last failure without an acknowledgement after it.
    - `backoff`: the pauses since the first such failure.
    """

    partition: TopicPartition
    identity: Identity
    transactional_id: str = ""  # used in error messages only
    leader: int | None = None
    is_in_transaction: bool = False
    items: deque[Item] = field(default_factory=deque)
    failure: EosError | None = None
    cause: EosError | None = None
    backoff: Backoff | None = None
    _in_flight: int = 0
    _is_leader_lost: bool = False
    _sequence_next: int = 0
    _records: int = 0
    _bytes: int = 0
    _digest: int = 0
    _offset_first: int = -1
    _offset_last: int = -1
    _batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_MAX))

    @property
    def name(self) -> str:
        return f"{self.partition.topic}-{self.partition.partition}"

    def add(self, blob: Any, records: int, digest: int) -> int:
        """Add an encoded record batch. Return how many bytes it occupies until it is
        acknowledged."""
        stamped = stamp(blob, self.identity, self._sequence_next)
        self._sequence_next = (self._sequence_next + records) & _SEQUENCE_MAX
        self.items.append(Item(stamped, records, digest))
        return len(stamped)

    def next_waiting(self) -> Item | None:
        """Return the record batch to send next, or None.

        The leader remembers five record batches, so at most five may be unacknowledged. A record
        batch that is acknowledged after a failed one counts too, until the failed one is
        acknowledged. (REQUEST_TIMED_OUT means: appended, and not replicated yet.) So only the first
        five places are examined.

        The very first record batch is sent alone. It adds the partition to the transaction, and its
        first rejection with NOT_ENOUGH_REPLICAS is routine. Under TV1 the leader might accept the
        second one without it.
        """
        if self.failure is not None:
            return None
        for item in islice(self.items, IN_FLIGHT_MAX if self._records else 1):
            if item.state is _State.WAITING:
                return item
        return None

    def sent(self, item: Item) -> None:
        item.state = _State.SENT
        self._in_flight += 1

    def process(self, item: Item, answer: ProduceAnswer) -> int:
        """Process the broker's response for one record batch. Return how many bytes of memory this
        frees. Raise the error if a retry can't help."""
        self._in_flight -= 1
        outcome = outcome_of(Api.PRODUCE, answer.error)
        if outcome is Outcome.OK:
            item.state, item.offset = _State.ACKNOWLEDGED, answer.offset
            return self._release()
        # After an earlier record batch failed, OUT_OF_ORDER_SEQUENCE_NUMBER only means that it is
        # missing. Without an earlier failure, another process wrote under our identity.
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
        """Process a request that got no response. Whether the record batch was appended is unknown.

        A retry with the same bytes and sequence is right in both cases, whichever broker is the
        leader by then. `is_late`: the request had little time, so report an earlier failure if
        there is one.
        """
        self._in_flight -= 1
        reason = error.message
        no_response = UnavailableError(
            "no_response_by_deadline",
            f"{self.name}: {reason}",
            hint=LEADER_HINT,
        )
        self._fail((self.cause if is_late else None) or no_response, is_leader_lost=True)

    @property
    def can_resend(self) -> bool:
        """Return whether a request failed and all responses have arrived."""
        return self.failure is not None and not self._in_flight

    def resend(self) -> None:
        """Mark the unacknowledged record batches to be sent again. Forget the leader if it did not
        respond, or reported that it is not the leader."""
        self.failure = None
        if self._is_leader_lost:
            self.leader, self._is_leader_lost = None, False
        for item in self.items:
            if item.state is _State.SENT:
                item.state = _State.WAITING

    def unfinished(self) -> EosError:
        """Return the error for a writer that gives up on unacknowledged record batches.

        If no request failed, the queue was only slow or paused, and the next attempt may finish in
        time.
        """
        count = len(self.items)
        return self.cause or AttemptFailedError(
            "record_batches_not_acknowledged",
            f"{self.name}: {count} record batches were not acknowledged within the "
            "writer's share of the transaction timeout",
            hint="check the brokers' load. Then raise `transaction.timeout` in the pipeline file, "
            "or make micro-batches smaller (source.kafka.max_records)",
        )

    def receipt(self) -> Receipt:
        return Receipt(
            *self.partition,
            records=self._records,
            offset_first=self._offset_first,
            offset_last=self._offset_last,
            bytes=self._bytes,
            digest=self._digest,
            batches=tuple(self._batches),
        )

    def _fail(self, error: EosError, *, is_leader_lost: bool) -> None:
        """Keep the first failure as the cause, because later ones only follow from it."""
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
            first, end = self._records, self._records + item.records
            self._batches.append(
                AppendedBatch(
                    first & _SEQUENCE_MAX,
                    (end - 1) & _SEQUENCE_MAX,
                    item.offset,
                    self._offset_last,
                    last_ms(item.blob),
                )
            )
            self._records = end
            self._bytes += len(item.blob)
            self._digest = google_crc32c.extend(self._digest, item.digest.to_bytes(4, "big"))
            released += len(item.blob)
        return released


def _too_large(error: EosError, item: Item) -> AttemptFailedError:
    """Return the error for a rejected record batch with several records. The next attempt can split
    it."""
    message, size = error.message.rstrip("."), len(item.blob)
    return AttemptFailedError(
        "record_batch_too_large",
        f"{message}: it has {item.records} records in {size} bytes",
        hint="if the topic's max.message.bytes was lowered, the next attempt uses the new limit. "
        "If its compression.type differs from the sink's, brokers compress again before they "
        "compare",
        **error.fields,
    )
