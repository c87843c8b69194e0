"""Decide many events at once: the same verdicts as `state.decide`, without Python code per record.

The rows of one producer and partition are in order of arrival. First the current epoch is computed
for each row: a running maximum over the rows that open an epoch. Then `sequences` decides inside
each epoch.

Sequences are numbers on a circle (see `state`). Only if a producer's sequences jump further than a
quarter of it (or 2^38, if they don't wrap), its rows are decided one by one. A producer that counts
its records never does that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eos.producers import table as tables
from eos.producers.sequences import Chain, Flags, Ints, applied
from eos.producers.state import (
    KAFKA,
    VERDICTS,
    ProducerState,
    Rules,
    SequenceEvent,
    Verdict,
    after,
    decide,
)
from eos.producers.table import Events, States

_APPENDED, _DUPLICATE, _LATE, _GAP, _FENCED, _UNKNOWN = range(6)
# How many rows are processed at once. This bounds the memory.
_ROWS_MAX = 1 << 19
# The limit of a range's distance from its segment's anchor, the sequence from which distances are
# counted. `_inside` packs segment and distance into one 64-bit key. There are at most 2 * _ROWS_MAX
# segments, so a key is below 2 ** 61.
_FAR = 1 << 38


@dataclass(frozen=True, slots=True)
class BatchVerdicts:
    """The verdict (appended, duplicate, gap, ...) of each event in a table, and the producers'
    states after it.

    `codes` has an index into VERDICTS for each row. `states` includes producers without events.
    """

    codes: npt.NDArray[np.int8]
    states: pa.Table


def decide_all(
    events: pa.Table, states: pa.Table | None = None, rules: Rules = KAFKA
) -> BatchVerdicts:
    """Return the verdict on each row of `events`, and the producers' states after all rows.

    A row of `events` is a record or a record batch: its producer's number and epoch, its first and
    last sequence, and its time (`at_ms`). `states` are the producers' states before these rows,
    with the schema `eos.producers.table.SCHEMA`. If it is None, all producers are unknown.
    """
    known = tables.SCHEMA.empty_table() if states is None else states
    codes = [np.zeros(0, np.int8)]
    for start in range(0, events.num_rows, _ROWS_MAX):
        part, known = _decided(events.slice(start, _ROWS_MAX), known, rules)
        codes.append(part)
    return BatchVerdicts(np.concatenate(codes), known)


def _decided(
    events: pa.Table, states: pa.Table, rules: Rules
) -> tuple[npt.NDArray[np.int8], pa.Table]:
    rows, old, producers, others = tables.opened(events, states)
    _require_valid(rows, rules)
    epochs = _Epochs.of(rows, old, rules)
    codes = np.where(epochs.is_fenced, _FENCED, _GAP).astype(np.int8)
    codes[epochs.is_newer & (rows.first == 0)] = _APPENDED
    codes[epochs.is_newer & (rows.first != 0) & epochs.is_unknown] = _UNKNOWN
    links = _Links.of(rows, old, epochs, rules)
    inside = links.row >= 0
    inside[inside] = ~epochs.is_opener[links.row[inside]]
    codes[links.row[inside]] = links.codes(rules)[inside]
    new = links.states(old, epochs.segment[rows.group_ends - 1], rules)
    far = np.unique(links.group[links.is_far])
    if len(far):
        new = new.replaced(_one_by_one(far, rows, old, codes, rules))
    return codes[rows.place], tables.closed(new, producers, others)


def _require_valid(rows: Events, rules: Rules) -> None:
    for name, limit in rules.limits.items():
        column: Ints = getattr(rows, name)
        invalid = (column < 0) | (column >= limit)
        if invalid.any():
            raise ValueError(f"{name} is {column[invalid][0]}: expected 0 to {limit - 1}")


@dataclass(frozen=True, slots=True)
class _Epochs:
    """For each row, its epoch compared with its producer's current one. A segment is one epoch of
    one producer on one partition."""

    is_fenced: Flags
    is_newer: Flags
    is_unknown: Flags  # the producer is not known when the row arrives
    is_opener: Flags
    segment: Ints
    initial: Ints  # per group: the segment of its previous state

    @classmethod
    def of(cls, rows: Events, old: States, rules: Rules) -> _Epochs:
        group, starts = rows.group, rows.group_ends - rows.group_sizes
        zero = rows.first == 0
        ranks, rank_max = _ranked(np.concatenate((old.epoch, rows.epoch)))
        old_rank, rank = ranks[: len(old.epoch)], ranks[len(old.epoch) :]
        # Doubled, so that a state without sequence ranges is below the events of its own epoch.
        before = np.where(old.is_known, 2 * old_rank + (old.counts > 0), -1)
        is_first = np.zeros(len(group), np.bool_)
        is_first[starts] = True
        unknown_opens = rules.writes(Verdict.UNKNOWN_PRODUCER)
        if unknown_opens:
            is_unknown = is_first & ~old.is_known[group]
        else:
            zeros = np.cumsum(zero) - zero
            is_unknown = ~old.is_known[group] & (zeros == zeros[starts][group])
        opens = zero | np.where(is_unknown, unknown_opens, rules.writes(Verdict.GAP))
        own = 2 * rank + 1
        # A running maximum per group. `lift` separates the groups: it exceeds any epoch.
        lift = group * (2 * rank_max + 4)
        best = np.maximum(np.where(opens, own, -1), np.where(is_first, before[group], -1))
        best = np.maximum.accumulate(best + lift) - lift
        current = np.where(is_first, before[group], np.concatenate(([0], best[:-1])))
        is_newer = own > current
        is_opener = is_newer & opens
        openers = np.cumsum(is_opener)
        return cls(
            is_fenced=own < current,
            is_newer=is_newer,
            is_unknown=is_unknown,
            is_opener=is_opener,
            segment=openers + group,
            initial=(openers - is_opener)[starts] + np.arange(len(starts)),
        )


def _ranked(epochs: Ints) -> tuple[Ints, int]:
    """Return numbers in the same order as the epochs, and the largest number.

    Epochs of 62 bits are replaced by their ranks: otherwise a group's number would not fit into the
    same 64-bit key.
    """
    largest = int(epochs.max()) if len(epochs) else 0
    if largest < 2**31:
        return epochs, largest
    ranks = np.unique(epochs, return_inverse=True)[1].astype(np.int64)
    return ranks, int(ranks.max())


@dataclass(frozen=True, slots=True)
class _Links:
    """The sequence ranges inside all epochs, in the order of `Chain`: ranges of the previous
    states, and rows."""

    chain: Chain
    row: Ints  # index of the row; -1: a range of the previous state
    group: Ints
    first: Ints
    last: Ints
    epoch: Ints
    at_ms: Ints
    run: Ints  # sequences without a hole up to the previous state's end; 0 for a row
    is_far: Flags
    is_applied: Flags

    @classmethod
    def of(cls, rows: Events, old: States, epochs: _Epochs, rules: Rules) -> _Links:
        of_state = np.repeat(np.arange(len(old.counts)), old.counts)
        inside = np.flatnonzero(epochs.is_opener | ~(epochs.is_newer | epochs.is_fenced))
        segment = np.concatenate((epochs.initial[of_state], epochs.segment[inside]))
        order = np.argsort(segment, kind="stable")

        def joined(previous: Ints, added: Ints) -> Ints:
            return np.concatenate((previous, added))[order]

        segment = segment[order]
        row = joined(np.full(len(of_state), -1), inside)
        first, last = (joined(old.first, rows.first[inside]), joined(old.last, rows.last[inside]))
        is_kept = row < 0
        ends = np.cumsum(old.counts)[old.counts > 0] - 1  # the newest range of each state
        is_newest = np.zeros(len(of_state), np.bool_)
        is_newest[ends] = True
        is_newest = np.concatenate((is_newest, np.zeros(len(inside), np.bool_)))[order]
        is_start = is_newest.copy()
        is_start[~is_kept] = epochs.is_opener[row[~is_kept]]
        anchors = np.zeros(int(segment[-1]) + 1 if len(segment) else 0, np.int64)
        anchors[segment[is_start]] = np.where(is_newest, last + 1, first)[is_start]
        modulus, far, size = rules.sequences, first - anchors[segment], last - first
        if modulus <= 2**32:  # otherwise sequences never wrap
            far = (far + modulus // 2) % modulus - modulus // 2
            size = size % modulus
        limit = min(modulus // 4, _FAR)
        is_far = (far <= -limit) | (size < 0) | (size >= limit) | (far >= limit - size)
        far, until = (np.clip(each, -_FAR, _FAR) for each in (far, far + size))
        chain = Chain(segment, far, until, is_kept, is_start)
        return cls(
            chain=chain,
            row=row,
            group=joined(of_state, rows.group[inside]),
            first=first,
            last=last,
            epoch=joined(old.epoch[of_state], rows.epoch[inside]),
            at_ms=joined(old.at_ms[of_state], rows.at_ms[inside]),
            run=joined(np.where(old.run[of_state] > 0, old.run[of_state], 0), 0 * inside),
            is_far=is_far,
            is_applied=applied(chain, accepts_gaps=rules.writes(Verdict.GAP)),
        )

    def codes(self, rules: Rules) -> npt.NDArray[np.int8]:
        """Return the verdict codes of all links. The caller decides the rows that open an epoch."""
        applied = np.flatnonzero(self.is_applied)
        before = np.maximum(np.cumsum(self.is_applied) - self.is_applied - 1, 0)
        expected = self._ends(applied)[before]
        back = expected - self.chain.first
        codes: npt.NDArray[np.int8] = np.where(back < 0, _GAP, _LATE).astype(np.int8)
        codes[back == 0] = _APPENDED
        below = np.flatnonzero((back > 0) & (self.row >= 0))  # few: most rows are next in sequence
        if len(below):
            size = self.chain.last[below] - self.chain.first[below] + 1
            is_seen = self._inside(below, applied, before[below], rules)
            if rules.is_ordered:
                is_seen |= back[below] <= self._runs(applied, rules)[before[below]]
            codes[below[(size <= back[below]) & is_seen]] = _DUPLICATE
        return codes

    def _inside(self, links: Ints, applied: Ints, before: Ints, rules: Rules) -> Flags:
        """Return which of these links lie inside a range that was still retained when they arrived:
        they are duplicates.

        `applied` are the links that were appended, and `before` is the index of the last of them
        before each link.
        """
        chain, span = self.chain, 4 * min(rules.sequences, _FAR)
        previous = chain.segment[applied] * span + chain.first[applied]
        own = chain.segment[links] * span + chain.first[links]
        near = np.maximum(np.searchsorted(previous, own, side="right") - 1, 0)
        place = applied[near]
        is_inside: Flags = (
            (near > before - rules.ranges_max)
            & (near <= before)
            & (chain.segment[place] == chain.segment[links])
            & (chain.first[place] <= chain.first[links])
            & (chain.last[place] >= chain.last[links])
        )
        return is_inside

    def _ends(self, applied: Ints) -> Ints:
        return self.chain.last[applied] + 1

    def _runs(self, applied: Ints, rules: Rules) -> Ints:
        """Return, for each applied link, the number of consecutive sequences without a hole that
        end with it."""
        first, ends = self.chain.first[applied], self._ends(applied)
        is_break = self.chain.is_start[applied]
        is_break = is_break | self.chain.is_kept[applied]
        is_break[1:] |= first[1:] != ends[:-1]
        start = np.where(self.chain.is_kept[applied], ends - self.run[applied], first)
        latest = np.maximum.accumulate(np.where(is_break, np.arange(len(applied)), 0))
        return np.minimum(ends - start[latest], rules.sequences // 2)

    def states(self, old: States, final: Ints, rules: Rules) -> States:
        """Return the new state of each group (one producer on one partition). `final` is the
        segment of the group's last row."""
        applied = np.flatnonzero(self.is_applied)
        segment = self.chain.segment[applied]
        ends = np.searchsorted(segment, final, side="right")
        counts = ends - np.searchsorted(segment, final, side="left")
        is_new = counts > 0
        counts = np.minimum(counts, rules.ranges_max)
        offsets = np.cumsum(counts) - counts
        flat = np.repeat(ends - counts - offsets, counts) + np.arange(counts.sum())
        newest = applied[np.maximum(ends - 1, 0)] if len(applied) else np.zeros(0, np.int64)
        runs = self._runs(applied, rules)

        def chosen(fresh: Ints, stale: Ints) -> Ints:
            return np.where(is_new, fresh, stale) if len(applied) else stale

        return States(
            is_known=old.is_known | is_new,
            epoch=chosen(self.epoch[newest], old.epoch),
            counts=counts,
            first=self.first[applied][flat],
            last=self.last[applied][flat],
            run=chosen(runs[np.maximum(ends - 1, 0)] if len(applied) else runs, old.run),
            at_ms=chosen(self.at_ms[newest], old.at_ms),
        )


def _one_by_one(
    groups: Ints, rows: Events, old: States, codes: npt.NDArray[np.int8], rules: Rules
) -> Mapping[int, ProducerState]:
    """Decide the rows of these groups one after another, and return the states after them. The
    vectorised comparisons may be wrong for their sequences, because they jump too far."""
    found: dict[int, ProducerState] = {}
    ranges_end = np.cumsum(old.counts)
    for group in groups.tolist():
        state = old.of(group, int(ranges_end[group]))
        end = int(rows.group_ends[group])
        for at in range(end - int(rows.group_sizes[group]), end):
            event = SequenceEvent(*(int(column[at]) for column in rows.fields))
            verdict = decide(state, event, rules)
            codes[at] = VERDICTS.index(verdict)
            state = after(state, event, verdict, rules)
        if state is not None:
            found[group] = state
    return found
