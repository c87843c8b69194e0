"""The verdict on each record with `scope: producer`, one by one: the specification.

This module decides one record after the other, and remembers every accepted number.
`producer_scope` decides the records of many producers at once, and keeps smaller states. A test
compares the verdicts of both, and runs this example. Nothing else uses this module.

The records of a producer in a micro-batch are validated together, in the order of epoch and number.
Records with the same number are in the order of topic, partition and offset. So the order in which
partitions are read has no effect, and all attempts of a micro-batch have the same verdicts.

A number `window` or more above the lowest missing number is a gap. A hole is a range of missing
numbers. If gaps are accepted, a gap abandons each hole that begins `window` or more below it.

A record of an older epoch is fenced only if a newer epoch's record precedes it in the same
partition. If the newer record is in another partition, the older one may have been sent first. So
the state of its own epoch decides.

Numbers that wrap are unwrapped by their distance to the previous record of the same producer, epoch
and partition. The first record of a partition is compared to the lowest missing number.

The example has `on_gap: accept` and `window: 5`, and all records are of one producer. The last
column lists, for each epoch, the accepted numbers and the number that the epoch waits for.

| micro-batch | partition | epoch | number | verdict | state after the micro-batch |
| --- | --- | --- | --- | --- | --- |
| 1 | 0 | 0 | 0 | appended | epoch 0: 0, 2 (waits for 1) |
| 1 | 1 | 0 | 2 | appended | epoch 0: 0, 2 (waits for 1) |
| 2 | 0 | 0 | 2 | duplicate | epoch 0: 0-2 (waits for 3) |
| 2 | 1 | 0 | 1 | appended | epoch 0: 0-2 (waits for 3) |
| 3 | 0 | 0 | 8 | gap | epoch 0: 0-2, 8 (waits for 9) |
| 4 | 0 | 0 | 4 | late | epoch 0: 0-2, 8 (waits for 9); epoch 1: 0 (waits for 1) |
| 4 | 1 | 1 | 0 | appended | epoch 0: 0-2, 8 (waits for 9); epoch 1: 0 (waits for 1) |
| 5 | 0 | 0 | 9 | appended | epoch 0: 0-2, 8-9 (waits for 10); epoch 1: 0 (waits for 1) |
| 5 | 1 | 0 | 10 | fenced | epoch 0: 0-2, 8-9 (waits for 10); epoch 1: 0 (waits for 1) |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from eos.dedup.producer_scope import EPOCHS_KEPT
from eos.dedup.scalar_verdicts import Place, StampedRecord, ranges
from eos.producers.state import UNWRAPPED


class Stamp(NamedTuple):
    epoch: int
    number: int
    partition: int
    offset: int


@dataclass
class EpochState:
    """Accepted numbers of an epoch. `accepted` has all accepted numbers from `begin` on.

    `base` is the lowest number to wait for. Missing numbers from `begin` to `base` may still be
    accepted. `begin` is less than `base` only if the first known record was in the middle of its
    sequence.
    """

    begin: int
    base: int
    accepted: set[int] = field(default_factory=set)

    def missing(self, start: int) -> int:
        """Return the lowest number from `start` on that was not accepted."""
        while start in self.accepted:
            start += 1
        return start

    def has(self, number: int, modulus: int) -> bool:
        """Return whether the number was provably accepted.

        A number below `begin` must be in an unbroken run of accepted numbers up to `begin`. Numbers
        wrap at `modulus`, so one half of it or more below the newest number proves nothing."""
        if number not in self.accepted or number <= max(self.accepted) - modulus // 2:
            return False
        return number >= self.begin or self.missing(number) >= self.begin


@dataclass
class ProducerState:
    """States of a producer's newest epochs.

    `fences` has the producer's newest epoch in each partition. The states of epochs up to
    `forgotten` were removed."""

    epochs: dict[int, EpochState] = field(default_factory=dict)
    fences: dict[int, int] = field(default_factory=dict)
    forgotten: int = -1


@dataclass
class ProducerScope:
    """Verdicts of `scope: producer`: a producer has one sequence for all partitions."""

    window: int
    circle: int = UNWRAPPED
    accepts_gap: bool = True
    states: dict[bytes, ProducerState] = field(default_factory=dict)
    expected: dict[Place, int] = field(default_factory=dict)  # the lowest missing number

    def verdicts(self, records: Iterable[StampedRecord]) -> dict[Place, str]:
        """Return the verdict of each record of a micro-batch."""
        found: dict[Place, str] = {}
        of_producer: dict[bytes, list[Stamp]] = {}
        for partition, offset, producer, epoch, number in sorted(records, key=lambda r: r[:2]):
            if producer is None or epoch is None or number is None:
                found[partition, offset] = "unstamped"
            else:
                stamp = Stamp(epoch, number, partition, offset)
                of_producer.setdefault(producer, []).append(stamp)
        for producer, stamps in of_producer.items():
            known = self.states.get(producer, ProducerState())
            found |= self._of_producer(known, stamps)
            if known.epochs:
                self.states[producer] = known
        return found

    def _of_producer(self, known: ProducerState, stamps: list[Stamp]) -> dict[Place, str]:
        stamps = self._unwrapped(known, stamps)
        fencing = self._fencing(known, stamps)
        found: dict[Place, str] = {}
        others = []
        for stamp in stamps:  # in the order of each partition
            if stamp.epoch < known.fences.get(stamp.partition, -1):
                found[stamp[2:]] = "fenced"
                continue
            others.append(stamp)
            if stamp.epoch in fencing:
                known.fences[stamp.partition] = stamp.epoch
        newest = max(known.epochs, default=min((each.epoch for each in others), default=0))
        for stamp in sorted(others):
            found[stamp[2:]] = self._verdict(known, stamp, newest)
        self._reduce(known)
        return found

    def _fencing(self, known: ProducerState, stamps: list[Stamp]) -> set[int]:
        """Return the epochs that fence older epochs: all that have a state, or get one now."""
        found = set(known.epochs)
        bound = max(known.epochs, default=min(each.epoch for each in stamps))
        for epoch in {each.epoch for each in stamps} - found:
            lowest = min(each.number for each in stamps if each.epoch == epoch)
            is_new = epoch > bound
            if epoch > known.forgotten and (not is_new or self.accepts_gap or lowest < self.window):
                found.add(epoch)
        return found

    def _verdict(self, known: ProducerState, stamp: Stamp, newest: int) -> str:
        """Return the verdict, and accept the number if the verdict allows it.

        `newest` is the producer's newest epoch before the micro-batch, or its lowest epoch in the
        micro-batch if the producer is unknown."""
        epoch, number = stamp[:2]
        state = known.epochs.get(epoch)
        self.expected[stamp[2:]] = state.missing(state.base) % self.circle if state else 0
        if state is None and epoch <= known.forgotten:
            return "late"
        if state is None and number and epoch <= newest:
            # Lower numbers of this epoch may have been accepted before its state was removed.
            lowest = number - self.window
            begin = lowest if self.circle != UNWRAPPED else max(0, lowest)
            known.epochs[epoch] = EpochState(begin, number, {number})
            return "unknown_producer"
        state = state or EpochState(0, 0)
        if state.has(number, self.circle):
            return "duplicate"
        if number < state.begin:
            return "late"
        verdict = "appended"
        if number < state.base:
            verdict = "unknown_producer"
        elif number >= state.missing(state.base) + self.window:
            verdict = "gap"
            if not self.accepts_gap:
                return verdict
        state.accepted.add(number)
        while verdict == "gap" and state.missing(state.base) <= number - self.window:
            lowest = state.missing(state.base)
            # Abandon the missing numbers up to the next accepted number.
            state.begin = state.base = min(each for each in state.accepted if each > lowest)
        known.epochs[epoch] = state
        return verdict

    def _reduce(self, known: ProducerState) -> None:
        """Reduce the states to what is stored: a window of numbers, and the newest epochs."""
        for state in known.epochs.values():
            is_contiguous = state.begin == state.base
            state.base = state.missing(state.base)
            lowest = max(state.begin, state.base - self.window)
            state.begin = state.base if is_contiguous else state.missing(lowest)
        for epoch in sorted(known.epochs)[:-EPOCHS_KEPT]:
            del known.epochs[epoch]
            known.forgotten = max(known.forgotten, epoch)
        known.fences = {at: each for at, each in known.fences.items() if each in known.epochs}

    def _unwrapped(self, known: ProducerState, stamps: list[Stamp]) -> list[Stamp]:
        """Return the stamps with numbers that continue to grow where they wrap to 0. Each is the
        number nearest to the previous one of the same epoch and partition."""
        if self.circle == UNWRAPPED:
            return stamps
        found: list[Stamp] = []
        previous: dict[tuple[int, int], int] = {}
        first: dict[int, int] = {}
        bound = max(known.epochs, default=min(each.epoch for each in stamps))
        for stamp in stamps:
            epoch, number, partition, _ = stamp
            first.setdefault(epoch, number)
            is_new = epoch > bound and epoch > known.forgotten
            start = 0 if is_new else first[epoch]
            if epoch in known.epochs:
                start = known.epochs[epoch].base
            before = previous.get((epoch, partition), start)
            half = self.circle // 2
            number = before + (number - before + half) % self.circle - half
            previous[epoch, partition] = number
            found.append(stamp._replace(number=number))
        return found

    def state(self, producer: bytes) -> str:
        epochs = sorted(self.states[producer].epochs.items())
        texts = ((at, ranges(each.accepted), each.base) for at, each in epochs)
        return "; ".join(f"epoch {at}: {own} (waits for {base})" for at, own, base in texts)
