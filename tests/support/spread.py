"""Somebody who remembers every number of every producer, wherever it was read, and decides one
record after the other: what `eos.dedup.producer_scope` says of millions at once."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

from eos.producers.state import UNWRAPPED
from support.deduped import Row

EPOCHS_KEPT = 4


@dataclass
class Epoch:
    begin: int
    base: int
    taken: set[int] = field(default_factory=set)

    def is_proven(self, number: int, circle: int) -> bool:
        """What was accepted below `begin` is proven only as far as nothing is missing; and never
        further back than half a circle."""
        if number not in self.taken or number <= max(self.taken) - circle // 2:
            return False
        return number >= self.begin or all(n in self.taken for n in range(number, self.begin))

    def missing(self, start: int) -> int:
        while start in self.taken:
            start += 1
        return start


@dataclass
class Producer:
    epochs: dict[int, Epoch] = field(default_factory=dict)
    fences: dict[int, int] = field(default_factory=dict)  # by partition
    forgotten: int = -1


class SpreadOracle:
    def __init__(
        self,
        window: int,
        circle: int = UNWRAPPED,
        accepts_gap: bool = True,
        kept: int = EPOCHS_KEPT,
    ) -> None:
        self.window, self.circle, self.accepts_gap, self.kept = window, circle, accepts_gap, kept
        self.producers: dict[bytes, Producer] = {}
        # By partition and offset: the lowest number that was missing where there is a gap.
        self.awaited: dict[tuple[int, int], int] = {}

    def copy(self) -> SpreadOracle:
        return copy.deepcopy(self)

    def verdicts(self, rows: Sequence[Row]) -> dict[tuple[int, int], str]:
        """Of the records of a micro-batch, each partition's in its order."""
        found = {}
        by_producer: dict[bytes, list[Row]] = {}
        for row in sorted(rows, key=lambda each: (each.sent.partition, each.offset)):
            if None in row.sent:
                found[row.sent.partition, row.offset] = "unstamped"
            else:
                by_producer.setdefault(row.sent.producer, []).append(row)
        for name, own in by_producer.items():
            known = self.producers.get(name, Producer())
            found |= self._of_one(known, own)
            if known.epochs:
                self.producers[name] = known
        return found

    def _of_one(self, known: Producer, rows: list[Row]) -> dict[tuple[int, int], str]:
        numbers = self._unwrapped(known, rows)
        came = [
            (row.sent.epoch, n, row.sent.partition, row.offset)
            for row, n in zip(rows, numbers, strict=True)
        ]
        epochs = sorted({each[0] for each in came})
        believed = set(known.epochs)
        for epoch in epochs:
            if epoch > known.forgotten and epoch not in known.epochs:
                lowest = min(each[1] for each in came if each[0] == epoch)
                is_new = epoch > max(known.epochs, default=epochs[0])
                if not is_new or self.accepts_gap or lowest < self.window:
                    believed.add(epoch)
        found, left = {}, []
        for each in came:  # in the order of each partition
            epoch, _, partition, offset = each
            newest = known.fences.get(partition, -1)
            if epoch < newest:
                found[partition, offset] = "fenced"
            else:
                left.append(each)
                if epoch in believed:
                    known.fences[partition] = epoch
        left.sort()
        newest = max(known.epochs, default=min((each[0] for each in left), default=0))
        before = frozenset(known.epochs)
        for epoch, number, partition, offset in left:
            state = known.epochs.get(epoch, Epoch(0, 0))
            self.awaited[partition, offset] = state.missing(state.base) % self.circle
            found[partition, offset] = self._verdict(known, epoch, number, newest, before)
        self._settle(known)
        return found

    def _verdict(
        self, known: Producer, epoch: int, number: int, newest: int, before: frozenset[int]
    ) -> str:
        if epoch not in known.epochs:
            if epoch <= known.forgotten and epoch not in before:
                return "late"
            if epoch > newest or number == 0:
                state = Epoch(0, 0)
            else:
                lowest = number - self.window
                begin = lowest if self.circle != UNWRAPPED else max(0, lowest)
                known.epochs[epoch] = Epoch(begin, number, {number})
                return "unknown_producer"
        else:
            state = known.epochs[epoch]
        if state.is_proven(number, self.circle):
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
        state.taken.add(number)
        while verdict == "gap" and state.missing(state.base) <= number - self.window:
            lowest = state.missing(state.base)
            state.begin = state.base = min(each for each in state.taken if each > lowest)
        known.epochs[epoch] = state
        return verdict

    def _settle(self, known: Producer) -> None:
        for state in known.epochs.values():
            is_whole = state.begin == state.base
            state.base = state.missing(state.base)
            lowest = max(state.begin, state.base - self.window)
            state.begin = state.base if is_whole else state.missing(lowest)
        for epoch in sorted(known.epochs)[: -self.kept]:
            del known.epochs[epoch]
            known.forgotten = max(known.forgotten, epoch)
        known.fences = {p: e for p, e in known.fences.items() if e in known.epochs}

    def _unwrapped(self, known: Producer, rows: list[Row]) -> list[int]:
        if self.circle == UNWRAPPED:
            return [row.sent.sequence for row in rows]
        found, last = [], {}
        epochs = [row.sent.epoch for row in rows]
        bound = max(known.epochs, default=min(epochs))
        first: dict[int, int] = {}
        for row in rows:
            partition, _, epoch, number = row.sent
            first.setdefault(epoch, number)
            if (epoch, partition) not in last:
                if epoch in known.epochs:
                    start = known.epochs[epoch].base
                else:
                    is_new = epoch > bound and epoch > known.forgotten
                    start = 0 if is_new else first[epoch]
                last[epoch, partition] = start
            before = last[epoch, partition]
            half = self.circle // 2
            step = (number - before + half) % self.circle - half
            last[epoch, partition] = before + step
            found.append(before + step)
        return found
