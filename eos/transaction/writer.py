"""Sends the record batches of one task to Kafka: in order, pipelined, bounded, once.

One writer owns a target partition for the whole attempt (rule R2), so sequences are counted here,
from 0. A record batch keeps its bytes and its sequence through every retry (rule R8): the broker
tells a repeated one from a new one by nothing else.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice

import google_crc32c

from eos.deadline import Backoff, Deadline
from eos.encode.record_batch import stamp
from eos.encode.targets import Targets
from eos.errors import AttemptFailedError, NoAnswerError, UnavailableError
from eos.faults import CrashPlan
from eos.transaction.outcomes import Outcome, describe, outcome_of
from eos.transaction.port import Api, Identity, ProduceAnswer, TopicPartition
from eos.transaction.receipt import Receipt
from eos.transaction.wire import Wire
from eos.transaction.wire.wire import PendingProduce

IN_FLIGHT_MAX = 5  # the leader remembers five record batches of a producer, no more
BUFFER_BYTES_MAX = 16 * 1024 * 1024  # stamped and not yet acknowledged, all partitions together
_OUT_OF_ORDER_SEQUENCE = 45


class _State(Enum):
    WAITING = "waiting"
    SENT = "sent"
    ACKNOWLEDGED = "acknowledged"


@dataclass(slots=True)
class _Item:
    """A stamped record batch on its way."""

    blob: bytes
    records: int
    digest: int
    state: _State = _State.WAITING
    offset: int = -1


@dataclass(slots=True)
class _Lane:
    """One target partition. `items` stand in sequence order and leave once acknowledged.

    After a failure nothing more is sent until every answer of the lane is in; then whatever is
    still not acknowledged waits again, in its old place.
    """

    partition: TopicPartition
    items: deque[_Item] = field(default_factory=deque)
    on_the_wire: int = 0
    failure: ProduceAnswer | None = None
    sequence_next: int = 0
    records: int = 0
    bytes: int = 0
    digest: int = 0
    offset_first: int = -1
    offset_last: int = -1
    is_checked: bool = False

    def next_waiting(self) -> _Item | None:
        """What to send next. The leader remembers five record batches, so five may be unanswered
        at once; one acknowledged behind a failed one (7: appended, not yet replicated) still
        counts until its turn comes, hence the look at the first five places only.
        """
        if self.failure is not None:
            return None
        for item in islice(self.items, IN_FLIGHT_MAX):
            if item.state is _State.WAITING:
                return item
        return None

    def acknowledged(self, item: _Item) -> None:
        if self.offset_first < 0:
            self.offset_first = item.offset
        self.offset_last = item.offset + item.records - 1
        self.records += item.records
        self.bytes += len(item.blob)
        self.digest = google_crc32c.extend(self.digest, item.digest.to_bytes(4, "big"))


@dataclass(slots=True)
class _Request:
    pending: PendingProduce
    items: list[tuple[_Lane, _Item]]


class Writer:
    """`add` record batches in order, then `finish`. Memory is bounded by BUFFER_BYTES_MAX."""

    def __init__(
        self,
        wire: Wire,
        transactional_id: str,
        identity: Identity,
        targets: Targets,
        deadline: Deadline,
        crash: CrashPlan,
    ) -> None:
        self._wire = wire
        self._transactional_id = transactional_id
        self._identity = identity
        self._targets = targets
        self._deadline = deadline
        self._crash = crash
        self._lanes: dict[int, _Lane] = {}
        self._requests: dict[int, deque[_Request]] = {}  # by leader, oldest first
        self._leaders: dict[TopicPartition, int] = {}
        self._buffered = 0
        self._backoff = Backoff()
        self._resend_at: float | None = None
        self._sent_any = False

    def add(self, target: int, blob: bytes, records: int, digest: int) -> None:
        """Takes one encoded record batch; `advance` sends it, together with its neighbours.

        Blocks while too much is unacknowledged.
        """
        lane = self._lanes.get(target)
        if lane is None:
            lane = self._lanes[target] = _Lane(self._targets.partitions[target])
        stamped = stamp(blob, self._identity, lane.sequence_next)
        lane.sequence_next = (lane.sequence_next + records) & 0x7FFFFFFF
        lane.items.append(_Item(stamped, records, digest))
        self._buffered += len(stamped)
        while self._buffered > BUFFER_BYTES_MAX:
            self._wait()

    def advance(self) -> None:
        """Sends what may be sent now. One request carries the next record batch of every lane:
        the leader then adds all their partitions to the transaction in one write (D5).
        """
        self._pump()

    def finish(self) -> dict[int, Receipt]:
        """Waits until everything is acknowledged and says where it lies."""
        while any(lane.items for lane in self._lanes.values()):
            self._wait()
        return {
            target: Receipt(
                *lane.partition,
                records=lane.records,
                offset_first=lane.offset_first,
                offset_last=lane.offset_last,
                bytes=lane.bytes,
                digest=lane.digest,
            )
            for target, lane in self._lanes.items()
        }

    # -- sending ---------------------------------------------------------------------------

    def _pump(self) -> None:
        """Takes in the answers that are there and fills the pipelines, without waiting."""
        for requests in self._requests.values():
            while requests and requests[0].pending.done:
                self._take_in(requests.popleft())
        self._requeue_failed()
        ready = [lane for lane in self._lanes.values() if lane.next_waiting()]
        self._look_before_first_send([lane for lane in ready if not lane.is_checked])
        by_leader: dict[int, list[_Lane]] = {}
        for lane in ready:
            by_leader.setdefault(self._leader_of(lane.partition), []).append(lane)
        for leader, lanes in by_leader.items():
            requests = self._requests.setdefault(leader, deque())
            while len(requests) < IN_FLIGHT_MAX:
                items = self._next_request(lanes)
                if not items:
                    break
                before = requests[-1].pending if requests else None
                requests.append(self._send(leader, items, before))

    def _next_request(self, lanes: Sequence[_Lane]) -> list[tuple[_Lane, _Item]]:
        """One record batch of each lane at most (87 otherwise), within max_request_bytes."""
        items: list[tuple[_Lane, _Item]] = []
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
        self, leader: int, items: list[tuple[_Lane, _Item]], before: PendingProduce | None
    ) -> _Request:
        first = not self._sent_any
        self._sent_any = True
        if first:
            self._crash.reached("first_produce:before")
        for lane, item in items:
            item.state = _State.SENT
            lane.on_the_wire += 1
        pending = self._wire.send_produce(
            leader,
            self._transactional_id,
            {lane.partition: item.blob for lane, item in items},
            self._deadline.at_most_ms(self._wire.settings.request_timeout_ms),
            after=before,
        )
        if first and self._crash.point == "first_produce:after":
            pending.wait(self._deadline)
            self._crash.reached("first_produce:after")
        return _Request(pending, items)

    def _look_before_first_send(self, lanes: Sequence[_Lane]) -> None:
        """Rule R1: stops if this (producer id, epoch) already wrote to one of the partitions.

        A repeated stage has TaskContext.attemptNumber() 0 again. If its task came here after an
        earlier one had sent, the broker would acknowledge equal sequence ranges without looking at
        the bytes, and the transaction would mix two evaluations of the same rows.
        """
        if not lanes:
            return
        states = self._wire.describe_producers(
            frozenset(lane.partition for lane in lanes), self._deadline
        )
        for lane in lanes:
            for state in states[lane.partition]:
                if state.identity == self._identity and state.sequence_last >= 0:
                    raise AttemptFailedError(
                        f"{lane.partition.topic}-{lane.partition.partition}: a task of this "
                        f"attempt already wrote up to sequence {state.sequence_last}"
                    )
            lane.is_checked = True

    def _leader_of(self, partition: TopicPartition) -> int:
        leader = self._leaders.get(partition)
        if leader is None:
            partitions = frozenset(lane.partition for lane in self._lanes.values())
            self._leaders.update(self._wire.leaders(partitions, self._deadline))
            leader = self._leaders[partition]
        return leader

    # -- answers ---------------------------------------------------------------------------

    def _wait(self) -> None:
        """Lets one answer (or the time of a resend) come."""
        self._pump()
        oldest = next((requests[0] for requests in self._requests.values() if requests), None)
        if self._deadline.has_passed:
            self._give_up()
        if oldest is None:
            if self._resend_at is not None:
                pause = max(0.0, self._resend_at - time.monotonic())
                time.sleep(min(pause, self._deadline.left_ms / 1000))
            return
        # No answer: it is `done` now, and the next pump takes it in as each item's failure.
        with suppress(NoAnswerError):
            oldest.pending.wait(self._deadline)

    def _take_in(self, request: _Request) -> None:
        try:
            answers = request.pending.wait(self._deadline)
        except NoAnswerError as error:
            # Perhaps appended, perhaps not: the same bytes under the same sequence are right in
            # both cases, on whatever connection to whoever leads by then.
            self._leaders.clear()
            for lane, _ in request.items:
                lane.on_the_wire -= 1
                lane.failure = lane.failure or ProduceAnswer(-1, message=error.message)
            return
        for lane, item in request.items:
            lane.on_the_wire -= 1
            self._judge(lane, item, answers[lane.partition])

    def _judge(self, lane: _Lane, item: _Item, answer: ProduceAnswer) -> None:
        outcome = outcome_of(Api.PRODUCE, answer.error)
        if outcome is Outcome.OK:
            item.state, item.offset = _State.ACKNOWLEDGED, answer.offset
            if lane.failure is None:
                self._backoff = Backoff()
            while lane.items and lane.items[0].state is _State.ACKNOWLEDGED:
                done = lane.items.popleft()
                self._buffered -= len(done.blob)
                lane.acknowledged(done)
            return
        # 45 after a failure of an earlier record batch only says that the earlier one is
        # missing; alone it means that somebody else wrote under our identity.
        follows = lane.failure is not None and answer.error == _OUT_OF_ORDER_SEQUENCE
        if not follows and outcome not in (Outcome.RETRY, Outcome.REFRESH):
            where = f"{lane.partition.topic}-{lane.partition.partition}"
            raise describe(Api.PRODUCE, answer.error, answer.message, where=where)
        if outcome is Outcome.REFRESH:
            self._leaders.clear()
        lane.failure = lane.failure or answer

    def _requeue_failed(self) -> None:
        """Lets failed lanes send again, once all their answers are in and the pause is over."""
        failed = [lane for lane in self._lanes.values() if lane.failure and not lane.on_the_wire]
        if not failed:
            return
        if self._resend_at is None:
            self._resend_at = time.monotonic() + self._backoff.next_s(self._deadline)
        if time.monotonic() < self._resend_at:
            return
        self._resend_at = None
        if not self._leaders:
            topics = frozenset(lane.partition.topic for lane in self._lanes.values())
            self._wire.refresh_metadata(topics, self._deadline)
        for lane in failed:
            lane.failure = None
            for item in lane.items:
                if item.state is _State.SENT:
                    item.state = _State.WAITING

    def _give_up(self) -> None:
        lane = next(lane for lane in self._lanes.values() if lane.items)
        cause = lane.failure or "no answer came"
        raise UnavailableError(
            f"{lane.partition.topic}-{lane.partition.partition}: {len(lane.items)} record batches "
            f"were not acknowledged in time ({cause})",
            hint="is the partition's leader alive, and min.insync.replicas reachable?",
        )
