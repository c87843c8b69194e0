"""Send the record batches of one task to Kafka: pipelined, with bounded memory, each written once.

One writer owns a target partition for the whole attempt ("one writer per target partition"). A
`PartitionQueue` decides what its partition may send, and classifies the responses. The writer
combines record batches of several queues into requests.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from eos.deadline import Backoff, Deadline
from eos.errors import AttemptFailedError, NoAnswerError, UnavailableError
from eos.faults import Dies
from eos.kafka.api import Identity, TransactionProfile
from eos.kafka.client import KafkaClient
from eos.kafka.pending_produce import PendingProduce
from eos.kafka.target_partitions import Targets
from eos.ledger.receipt import Receipt
from eos.transaction.add_partitions import join_transaction
from eos.transaction.partition_queue import IN_FLIGHT_MAX, Item, PartitionQueue

_LAST_MOMENTS_MS = 50
BUFFER_BYTES_MAX = 16 * 1024 * 1024  # limit of unacknowledged bytes, all partitions


@dataclass(slots=True)
class _Request:
    number: int
    pending: PendingProduce
    items: list[tuple[PartitionQueue, Item]]


class Writer:
    """The Kafka producer of one task: call `add` for each record batch in order, then `finish`.

    Unacknowledged record batches take at most about BUFFER_BYTES_MAX bytes of memory.
    """

    def __init__(
        self,
        client: KafkaClient,
        transactional_id: str,
        identity: Identity,
        targets: Targets,
        deadline: Deadline,
        crash: Dies,
        *,
        backoff: Callable[[], Backoff] = Backoff,
    ) -> None:
        self._client = client
        self._transactional_id = transactional_id
        self._identity = identity
        self._targets = targets
        self._deadline = deadline
        self._crash = crash
        self._backoff = backoff
        self._queues: dict[int, PartitionQueue] = {}
        # requests without a response, by leader, oldest first
        self._requests: dict[int, deque[_Request]] = {}
        self._buffered = 0
        self._resend_at: float | None = None
        self._sent = 0

    def add(self, target: int, blob: Any, records: int, digest: int) -> None:
        """Add one encoded record batch for a target partition; `target` is its index in `Targets`.

        `advance` sends it, together with those of other partitions. Blocks while too many bytes are
        unacknowledged.
        """
        queue = self._queues.get(target)
        if queue is None:
            queue = self._queues[target] = PartitionQueue(
                self._targets.partitions[target], self._identity, self._transactional_id
            )
        self._buffered += queue.add(blob, records, digest)
        while self._buffered > BUFFER_BYTES_MAX:
            self._wait()

    def advance(self) -> None:
        """Send what may be sent now, without waiting.

        One request carries the next record batch of every target partition of a broker. So the
        broker adds all these partitions to the transaction at once. With separate requests, each
        would displace the verification of the one before.
        """
        self._pump()

    def finish(self) -> dict[int, Receipt]:
        """Wait until all record batches are acknowledged. Return a receipt (count, offsets, bytes,
        digest) for each target partition, by index."""
        while self._unfinished():
            self._wait()
        return {target: queue.receipt() for target, queue in self._queues.items()}

    def _unfinished(self) -> list[PartitionQueue]:
        return [queue for queue in self._queues.values() if queue.items]

    # -- sending ---------------------------------------------------------------------------

    def _pump(self) -> None:
        """Process the responses that have arrived and fill the pipelines, without waiting."""
        for requests in self._requests.values():
            while requests and requests[0].pending.done:
                self._process(requests.popleft())
        if self._deadline.has_passed:  # a request now would only time out, and hide the cause
            return
        self._resend_failed()
        ready = [queue for queue in self._queues.values() if queue.next_waiting()]
        self._add_to_transaction([queue for queue in ready if not queue.is_in_transaction])
        for leader, queues in self._by_leader(ready).items():
            requests = self._requests.setdefault(leader, deque())
            while len(requests) < IN_FLIGHT_MAX:
                items = self._next_request(queues)
                if not items:
                    break
                before = requests[-1].pending if requests else None
                requests.append(self._send(leader, items, before))

    def _by_leader(self, queues: Sequence[PartitionQueue]) -> dict[int, list[PartitionQueue]]:
        unknown = [queue for queue in queues if queue.leader is None]
        if unknown:
            partitions = frozenset(queue.partition for queue in unknown)
            found = self._client.leaders(partitions, self._deadline)
            for queue in unknown:
                queue.leader = found[queue.partition]
        by_leader: dict[int, list[PartitionQueue]] = {}
        for queue in queues:
            assert queue.leader is not None
            by_leader.setdefault(queue.leader, []).append(queue)
        return by_leader

    def _next_request(self, queues: Sequence[PartitionQueue]) -> list[tuple[PartitionQueue, Item]]:
        """Return the record batches of the next request, within max_request_bytes. It has at most
        one per queue: the broker rejects two of the same partition with INVALID_RECORD."""
        items: list[tuple[PartitionQueue, Item]] = []
        size = 0
        for queue in queues:
            item = queue.next_waiting()
            if item is None:
                continue
            size += len(item.blob)
            if items and size > self._client.settings.max_request_bytes:
                break
            items.append((queue, item))
        return items

    def _send(
        self, leader: int, items: list[tuple[PartitionQueue, Item]], before: PendingProduce | None
    ) -> _Request:
        self._sent += 1
        is_first = self._sent == 1
        if is_first:
            self._crash.reached("first_produce:before")
        for queue, item in items:
            queue.sent(item)
        pending = self._client.send_produce(
            leader,
            self._transactional_id,
            {queue.partition: item.blob for queue, item in items},
            self._deadline.at_most_ms(self._client.settings.request_timeout_ms),
            after=before,
        )
        if is_first and self._crash.point == "first_produce:after":
            pending.wait(self._deadline)
            self._crash.reached("first_produce:after")
        return _Request(self._sent, pending, items)

    def _add_to_transaction(self, queues: Sequence[PartitionQueue]) -> None:
        """Prepare target partitions for their first record batch. Under TV1, add them to the
        transaction in one request."""
        if not queues:
            return
        self._require_unused_epoch(queues)
        if self._client.profile is TransactionProfile.TV1:
            join_transaction(
                self._client,
                self._transactional_id,
                self._identity,
                frozenset(queue.partition for queue in queues),
                self._deadline,
                self._backoff,
            )
        for queue in queues:
            queue.is_in_transaction = True

    def _require_unused_epoch(self, queues: Sequence[PartitionQueue]) -> None:
        """Raise AttemptFailedError if this (producer id, epoch) already wrote to one of the
        partitions ("one epoch, one attempt").

        The broker compares sequences, not bytes, so a repeated task could mix two versions of the
        rows:
        1. A task sends record batches. Spark then repeats its stage.
        2. The repeated task has TaskContext.attemptNumber() 0 again, so it does not know of the
           first one.
        3. It reads or computes other rows, and sends them with the same sequences.
        4. The broker acknowledges them as duplicates without appending them.
        """
        states = self._client.describe_producers(
            frozenset(queue.partition for queue in queues), self._deadline
        )
        for queue in queues:
            for state in states[queue.partition]:
                if state.identity == self._identity and state.sequence_last >= 0:
                    raise AttemptFailedError(
                        "epoch_already_used",
                        f"{queue.name}: another task of this attempt has already written up to "
                        f"sequence {state.sequence_last}",
                        hint="the micro-batch is retried automatically under a new epoch",
                    )

    # -- responses -------------------------------------------------------------------------

    def _wait(self) -> None:
        """Wait for one response, or until failed record batches may be sent again."""
        self._pump()
        unfinished = self._unfinished()
        if not unfinished:  # everything is acknowledged, even if after the deadline
            return
        if self._deadline.has_passed:
            raise next((queue for queue in unfinished if queue.cause), unfinished[0]).unfinished()
        heads = [requests[0] for requests in self._requests.values() if requests]
        if heads:
            # After a timeout the request is `done`. The next `_pump` reports it to each of its
            # queues.
            with suppress(NoAnswerError):
                min(heads, key=lambda head: head.number).pending.wait(self._deadline)
        elif self._resend_at is not None:
            pause = max(0.0, self._resend_at - time.monotonic())
            time.sleep(min(pause, self._deadline.left_ms / 1000))

    def _process(self, request: _Request) -> None:
        try:
            answers = request.pending.wait(self._deadline)
        except NoAnswerError as error:
            is_late = self._deadline.left_ms <= _LAST_MOMENTS_MS
            for queue, _ in request.items:
                queue.lost(error, is_late=is_late)
            return
        for queue, item in request.items:
            self._buffered -= queue.process(item, answers[queue.partition])

    def _resend_failed(self) -> None:
        """Retry failed queues, once all their responses have arrived and the pause is over.

        All are retried together, in one request and one write of the coordinator. One after
        another, they would displace each other's verification again and fail with
        NOT_ENOUGH_REPLICAS.
        """
        failed = [queue for queue in self._queues.values() if queue.can_resend]
        if not failed:
            return
        if self._resend_at is None:
            self._resend_at = time.monotonic() + max(map(self._pause_s, failed))
        if time.monotonic() < self._resend_at:
            return
        self._resend_at = None
        for queue in failed:
            queue.resend()
        if any(queue.leader is None for queue in failed):
            topics = frozenset(queue.partition.topic for queue in failed)
            try:
                self._client.refresh_metadata(topics, self._deadline)
            except (
                UnavailableError
            ) as unavailable:  # raise the earlier failure, which explains more
                raise failed[0].unfinished() from unavailable

    def _pause_s(self, queue: PartitionQueue) -> float:
        if queue.backoff is None:
            queue.backoff = self._backoff()
        return queue.backoff.next_s(self._deadline)
