"""Sends the record batches of one task to Kafka: pipelined, bounded, once.

One writer owns a target partition for the whole attempt (rule R2). A `PartitionQueue` decides what
its partition may send when, and what an answer means. The writer combines the record batches of its
queues into requests.
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
from eos.kafka.client import KafkaClient, PendingProduce
from eos.kafka.target_partitions import Targets
from eos.ledger.receipt import Receipt
from eos.transaction.add_partitions import join
from eos.transaction.partition_queue import IN_FLIGHT_MAX, Item, PartitionQueue

_LAST_MOMENTS_MS = 50
BUFFER_BYTES_MAX = 16 * 1024 * 1024  # stamped and not yet acknowledged, all partitions together


@dataclass(slots=True)
class _Request:
    number: int
    pending: PendingProduce
    items: list[tuple[PartitionQueue, Item]]


class Writer:
    """`add` record batches in order, then `finish`. Memory is bounded by BUFFER_BYTES_MAX."""

    def __init__(
        self,
        wire: KafkaClient,
        transactional_id: str,
        identity: Identity,
        targets: Targets,
        deadline: Deadline,
        crash: Dies,
        *,
        backoff: Callable[[], Backoff] = Backoff,
    ) -> None:
        self._wire = wire
        self._transactional_id = transactional_id
        self._identity = identity
        self._targets = targets
        self._deadline = deadline
        self._crash = crash
        self._backoff = backoff
        self._lanes: dict[int, PartitionQueue] = {}
        self._requests: dict[int, deque[_Request]] = {}  # by leader, oldest first
        self._buffered = 0
        self._resend_at: float | None = None
        self._sent = 0

    def add(self, target: int, blob: Any, records: int, digest: int) -> None:
        """Takes one encoded record batch; `advance` sends it, together with its neighbours.

        Blocks while too much is unacknowledged.
        """
        lane = self._lanes.get(target)
        if lane is None:
            lane = self._lanes[target] = PartitionQueue(
                self._targets.partitions[target], self._identity, self._transactional_id
            )
        self._buffered += lane.add(blob, records, digest)
        while self._buffered > BUFFER_BYTES_MAX:
            self._wait()

    def advance(self) -> None:
        """Sends what may be sent now. One request carries the next record batch of every lane:
        the leader then adds all their partitions to the transaction in one write (D5).
        """
        self._pump()

    def finish(self) -> dict[int, Receipt]:
        """Waits until everything is acknowledged and says where it lies."""
        while self._unfinished():
            self._wait()
        return {target: lane.receipt() for target, lane in self._lanes.items()}

    def _unfinished(self) -> list[PartitionQueue]:
        return [lane for lane in self._lanes.values() if lane.items]

    # -- sending ---------------------------------------------------------------------------

    def _pump(self) -> None:
        """Takes in the answers that are there and fills the pipelines, without waiting."""
        for requests in self._requests.values():
            while requests and requests[0].pending.done:
                self._take_in(requests.popleft())
        if self._deadline.has_passed:  # "too late" would take the place of the real cause
            return
        self._resend_failed()
        ready = [lane for lane in self._lanes.values() if lane.next_waiting()]
        self._enter([lane for lane in ready if not lane.is_entered])
        for leader, lanes in self._by_leader(ready).items():
            requests = self._requests.setdefault(leader, deque())
            while len(requests) < IN_FLIGHT_MAX:
                items = self._next_request(lanes)
                if not items:
                    break
                before = requests[-1].pending if requests else None
                requests.append(self._send(leader, items, before))

    def _by_leader(self, lanes: Sequence[PartitionQueue]) -> dict[int, list[PartitionQueue]]:
        unknown = [lane for lane in lanes if lane.leader is None]
        if unknown:
            partitions = frozenset(lane.partition for lane in unknown)
            found = self._wire.leaders(partitions, self._deadline)
            for lane in unknown:
                lane.leader = found[lane.partition]
        by_leader: dict[int, list[PartitionQueue]] = {}
        for lane in lanes:
            assert lane.leader is not None
            by_leader.setdefault(lane.leader, []).append(lane)
        return by_leader

    def _next_request(self, lanes: Sequence[PartitionQueue]) -> list[tuple[PartitionQueue, Item]]:
        """One record batch of each lane at most (87 otherwise), within max_request_bytes."""
        items: list[tuple[PartitionQueue, Item]] = []
        size = 0
        for lane in lanes:
            item = lane.next_waiting()
            if item is None:
                continue
            size += len(item.blob)
            if items and size > self._wire.settings.max_request_bytes:
                break
            items.append((lane, item))
        return items

    def _send(
        self, leader: int, items: list[tuple[PartitionQueue, Item]], before: PendingProduce | None
    ) -> _Request:
        self._sent += 1
        is_first = self._sent == 1
        if is_first:
            self._crash.reached("first_produce:before")
        for lane, item in items:
            lane.sent(item)
        pending = self._wire.send_produce(
            leader,
            self._transactional_id,
            {lane.partition: item.blob for lane, item in items},
            self._deadline.at_most_ms(self._wire.settings.request_timeout_ms),
            after=before,
        )
        if is_first and self._crash.point == "first_produce:after":
            pending.wait(self._deadline)
            self._crash.reached("first_produce:after")
        return _Request(self._sent, pending, items)

    def _enter(self, lanes: Sequence[PartitionQueue]) -> None:
        """Before the first record batch: of all partitions that are known by now at once."""
        if not lanes:
            return
        self._look_before_first_send(lanes)
        if self._wire.profile is TransactionProfile.TV1:
            join(
                self._wire,
                self._transactional_id,
                self._identity,
                frozenset(lane.partition for lane in lanes),
                self._deadline,
                self._backoff,
            )
        for lane in lanes:
            lane.is_entered = True

    def _look_before_first_send(self, lanes: Sequence[PartitionQueue]) -> None:
        """Rule R1: stops if this (producer id, epoch) already wrote to one of the partitions.

        A repeated stage has TaskContext.attemptNumber() 0 again. If its task came here after an
        earlier one had sent, the broker would acknowledge equal sequence ranges without looking at
        the bytes, and the transaction would mix two evaluations of the same rows.
        """
        states = self._wire.describe_producers(
            frozenset(lane.partition for lane in lanes), self._deadline
        )
        for lane in lanes:
            for state in states[lane.partition]:
                if state.identity == self._identity and state.sequence_last >= 0:
                    raise AttemptFailedError(
                        f"{lane.name}: a task of this attempt already wrote up to sequence "
                        f"{state.sequence_last}"
                    )

    # -- answers ---------------------------------------------------------------------------

    def _wait(self) -> None:
        """Lets one answer (or the time of a resend) come."""
        self._pump()
        unfinished = self._unfinished()
        if not unfinished:  # in time or not: what is acknowledged is acknowledged
            return
        if self._deadline.has_passed:
            raise next((lane for lane in unfinished if lane.cause), unfinished[0]).unfinished()
        heads = [requests[0] for requests in self._requests.values() if requests]
        if heads:
            # No answer: it is `done` now, and the next pump takes it in as each lane's failure.
            with suppress(NoAnswerError):
                min(heads, key=lambda head: head.number).pending.wait(self._deadline)
        elif self._resend_at is not None:
            pause = max(0.0, self._resend_at - time.monotonic())
            time.sleep(min(pause, self._deadline.left_ms / 1000))

    def _take_in(self, request: _Request) -> None:
        try:
            answers = request.pending.wait(self._deadline)
        except NoAnswerError as error:
            is_late = self._deadline.left_ms <= _LAST_MOMENTS_MS
            for lane, _ in request.items:
                lane.lost(error, is_late=is_late)
            return
        for lane, item in request.items:
            self._buffered -= lane.answered(item, answers[lane.partition])

    def _resend_failed(self) -> None:
        """Lets failed lanes send again, once all their answers are in and the pause is over.

        All of them at the same time: together they are one request and one write of the
        coordinator, one by one they would push each other out again (19, D5).
        """
        failed = [lane for lane in self._lanes.values() if lane.can_resend]
        if not failed:
            return
        if self._resend_at is None:
            self._resend_at = time.monotonic() + max(map(self._next_pause_s, failed))
        if time.monotonic() < self._resend_at:
            return
        self._resend_at = None
        for lane in failed:
            lane.resend()
        if any(lane.leader is None for lane in failed):
            topics = frozenset(lane.partition.topic for lane in failed)
            try:
                self._wire.refresh_metadata(topics, self._deadline)
            except UnavailableError as nobody:  # in time: what failed before says more
                raise failed[0].unfinished() from nobody

    def _next_pause_s(self, lane: PartitionQueue) -> float:
        if lane.backoff is None:
            lane.backoff = self._backoff()
        return lane.backoff.next_s(self._deadline)
