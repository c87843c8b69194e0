"""Models of dedup: what upstreams send, and the verdicts of plain, slow oracles.

As a program, this is an upstream: it stamps with `eos.stamp`, resends records without an
acknowledgement, and may be killed. Its arguments are BOOTSTRAP TOPIC STAMP-FILE EPOCH FIRST:
payments of its outbox begin at FIRST, and with an EPOCH above 0 it took over. For each line
`UNTIL BATCHES` it sends payments up to UNTIL, in batches of ten, receives the acknowledgements of
BATCHES of them, and prints `sent`.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import strategies as st

from eos.producers.state import UNWRAPPED
from eos.stamp import Stamp
from support import kafka_io
from support.dedup import Row, Sent


class PartitionOracle:
    """Remembers every number that was accepted, of each producer in each partition, as a list."""

    def __init__(self, circle: int = UNWRAPPED) -> None:
        self.circle = circle
        self.epochs: dict[tuple[int, bytes], int] = {}
        self.taken: dict[tuple[int, bytes], list[int]] = {}
        # By partition and offset: which number should have come where there is a gap.
        self.awaited: dict[tuple[int, int], int] = {}

    def copy(self) -> PartitionOracle:
        made = PartitionOracle(self.circle)
        made.epochs = dict(self.epochs)
        made.taken = {key: list(numbers) for key, numbers in self.taken.items()}
        return made

    def verdicts(self, rows: Sequence[Row]) -> dict[tuple[int, int], str]:
        found = {}
        for row in rows:
            place = row.sent.partition, row.offset
            self.awaited[place] = self._awaited(row.sent)
            found[place] = self.verdict(row.sent)
        return found

    def _awaited(self, sent: Sent) -> int:
        key = sent.partition, sent.producer or b""
        is_same = key in self.taken and self.epochs[key] == sent.epoch
        return (self.taken[key][-1] + 1) % self.circle if is_same else 0

    def verdict(self, sent: Sent) -> str:
        partition, producer, epoch, number = sent
        if producer is None or epoch is None or number is None:
            return "unstamped"
        key = partition, producer
        found = self._verdict(key, epoch, number)
        if found in {"appended", "gap", "unknown_producer"}:
            if self.epochs.get(key) != epoch:
                self.taken[key] = []
            self.epochs[key] = epoch
            self.taken[key].append(number)
        return found

    def _verdict(self, key: tuple[int, bytes], epoch: int, number: int) -> str:
        if key not in self.epochs:
            return "unknown_producer" if number else "appended"
        if epoch != self.epochs[key]:
            if epoch < self.epochs[key]:
                return "fenced"
            return "gap" if number else "appended"
        taken = self.taken[key]
        following = (taken[-1] + 1) % self.circle
        if number == following:
            return "appended"
        if (number - following) % self.circle < self.circle // 2:
            return "gap"
        behind = (following - number) % self.circle
        is_whole = behind <= len(taken) and taken[-behind:] == [
            (number + step) % self.circle for step in range(behind)
        ]
        return "duplicate" if number in taken[-5:] or is_whole else "late"


EPOCHS_KEPT = 4


@dataclass
class EpochState:
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
class ProducerState:
    epochs: dict[int, EpochState] = field(default_factory=dict)
    fences: dict[int, int] = field(default_factory=dict)  # by partition
    forgotten: int = -1


class ProducerScopeOracle:
    def __init__(
        self,
        window: int,
        circle: int = UNWRAPPED,
        accepts_gap: bool = True,
        kept: int = EPOCHS_KEPT,
    ) -> None:
        self.window, self.circle, self.accepts_gap, self.kept = window, circle, accepts_gap, kept
        self.producers: dict[bytes, ProducerState] = {}
        # By partition and offset: the lowest number that was missing where there is a gap.
        self.awaited: dict[tuple[int, int], int] = {}

    def copy(self) -> ProducerScopeOracle:
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
            known = self.producers.get(name, ProducerState())
            found |= self._of_one(known, own)
            if known.epochs:
                self.producers[name] = known
        return found

    def _of_one(self, known: ProducerState, rows: list[Row]) -> dict[tuple[int, int], str]:
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
            state = known.epochs.get(epoch, EpochState(0, 0))
            self.awaited[partition, offset] = state.missing(state.base) % self.circle
            found[partition, offset] = self._verdict(known, epoch, number, newest, before)
        self._settle(known)
        return found

    def _verdict(
        self, known: ProducerState, epoch: int, number: int, newest: int, before: frozenset[int]
    ) -> str:
        if epoch not in known.epochs:
            if epoch <= known.forgotten and epoch not in before:
                return "late"
            if epoch > newest or number == 0:
                state = EpochState(0, 0)
            else:
                lowest = number - self.window
                begin = lowest if self.circle != UNWRAPPED else max(0, lowest)
                known.epochs[epoch] = EpochState(begin, number, {number})
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

    def _settle(self, known: ProducerState) -> None:
        for state in known.epochs.values():
            is_whole = state.begin == state.base
            state.base = state.missing(state.base)
            lowest = max(state.begin, state.base - self.window)
            state.begin = state.base if is_whole else state.missing(lowest)
        for epoch in sorted(known.epochs)[: -self.kept]:
            del known.epochs[epoch]
            known.forgotten = max(known.forgotten, epoch)
        known.fences = {p: e for p, e in known.fences.items() if e in known.epochs}

    def _unwrapped(self, known: ProducerState, rows: list[Row]) -> list[int]:
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


CIRCLE = 2**16
ACTIONS = (
    "next",
    "next",
    "next",
    "again",
    "batch again",
    "restart",
    "zombie",
    "skip",
    "below",
    "any",
)


@st.composite
def upstream_records(draw, circle):
    """What an upstream sends, as (partition, producer, epoch, sequence)."""
    found: list[Sent] = []
    heads: dict[tuple[int, bytes], tuple[int, int]] = {}
    for _ in range(draw(st.integers(1, 30))):
        key = draw(st.integers(0, 1)), b"p%d" % draw(st.integers(0, 2))
        begins = st.sampled_from([0, 0, 7, CIRCLE - 3])
        epoch, number = heads.get(key) or (draw(st.integers(0, 2)), draw(begins))
        action = draw(st.sampled_from(ACTIONS))
        own = [each for each in found if each[:2] == key]
        if action == "again" and own:
            found.append(draw(st.sampled_from(own)))
            continue
        if action == "batch again":  # as one that did not hear the answer
            found += own[-5:]
            continue
        if action == "zombie" and own and epoch:
            found.append(Sent(*key, epoch - 1, draw(st.integers(0, 5))))
            continue
        if action == "below" and own:
            found.append(Sent(*key, epoch, (number - draw(st.integers(1, 9))) % min(circle, 2**62)))
            continue
        if action == "restart":
            epoch, number = epoch + 1, 0
        if action == "skip":
            number = (number + draw(st.integers(1, 3))) % circle
        if action == "any":
            stamp = draw(st.sampled_from([(None, 0, 0), (key[1], None, 0), (key[1], 0, -1)]))
            found.append(Sent(key[0], *(None if part == -1 else part for part in stamp)))
            continue
        found.append(Sent(*key, epoch, number))
        heads[key] = epoch, (number + 1) % circle
    return found


BATCH = 10
CHECKOUT = Path(__file__).parents[2]


class Till:
    """From the test's side."""

    def __init__(
        self,
        environment: dict[str, str],
        bootstrap: str,
        topic: str,
        file: Path,
        epoch: int = 0,
        first: int = 0,
    ) -> None:
        words = [bootstrap, topic, str(file), str(epoch), str(first)]
        self._process = subprocess.Popen(
            # Not by its path: then this folder's modules would pass for Python's own.
            [sys.executable, "-m", "support.dedup_model", *words],
            env={**environment, "PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'tests'}"},
            cwd=file.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def sends(self, until: int, batches: int) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{until} {batches}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "sent\n"

    def killed(self) -> None:
        """SIGKILL: it closes nothing and says nothing."""
        self._process.kill()
        self.over()

    def over(self) -> None:
        """Whatever became of it: nothing of it is left."""
        self._process.kill()
        self._process.communicate(timeout=300)


def main(bootstrap: str, topic: str, file: str, epoch: int, first: int) -> None:
    producer = kafka_io.producer(bootstrap)
    stamp = Stamp(file, "till-a", epoch=epoch, resumes=True)
    for line in sys.stdin:
        until, batches = map(int, line.split())
        for number in range(stamp.next_of(0), until - first):
            payment = {"payment_id": first + number, "till": "a", "cents": number}
            headers = stamp.headers(0)
            producer.produce(topic, json.dumps(payment), partition=0, headers=headers)
            if (number + 1) % BATCH == 0:
                assert producer.flush(300) == 0
                if number // BATCH < batches:
                    stamp.acknowledged()
        assert producer.flush(300) == 0
        print("sent", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:4], *map(int, sys.argv[4:]))
