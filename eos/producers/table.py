"""Convert producers' states between an Arrow table, in which they are stored, and the arrays that
`batch` computes with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eos.arrow import array_of, ints_of, longs, values_of
from eos.producers.sequences import Flags, Ints
from eos.producers.state import ProducerState, Range

# A producer on one partition has a number, which the caller chooses.
SCHEMA = pa.schema(
    [
        ("producer", pa.int32()),
        ("epoch", pa.int64()),
        ("first", pa.list_(pa.int64())),
        ("last", pa.list_(pa.int64())),
        ("run", pa.int64()),
        ("at_ms", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Events:
    """The rows of a table of events, sorted by group; in a group, by arrival.

    A group is one producer on one partition. `place` has the index in this order for each row of
    the table.
    """

    group: Ints
    epoch: Ints
    first: Ints
    last: Ints
    at_ms: Ints
    place: Ints
    group_sizes: Ints
    group_ends: Ints

    @property
    def fields(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Return the columns in the order of SequenceEvent's fields."""
        return self.epoch, self.first, self.last, self.at_ms


@dataclass(frozen=True, slots=True)
class States:
    """The states of all groups; a group is one producer on one partition.

    `first` and `last` hold the sequence ranges of all groups, one group after the other. `counts`
    is the number of ranges per group. The other columns have one entry per group.
    """

    is_known: Flags
    epoch: Ints
    counts: Ints
    first: Ints
    last: Ints
    run: Ints
    at_ms: Ints

    def of(self, group: int, end: int) -> ProducerState | None:
        """Return the state of a group. `end` is the end of its ranges."""
        if not self.is_known[group]:
            return None
        spans = range(end - int(self.counts[group]), end)
        ranges = tuple(Range(int(self.first[at]), int(self.last[at])) for at in spans)
        return ProducerState(
            int(self.epoch[group]), ranges, int(self.run[group]), int(self.at_ms[group])
        )

    def replaced(self, states: Mapping[int, ProducerState]) -> States:
        """Return the states with these as the states of their groups."""
        at = np.fromiter(states, np.int64, len(states))
        of_range = np.repeat(np.arange(len(self.counts)), self.counts)
        is_kept = ~np.isin(of_range, at)
        added = [(group, *each) for group, state in states.items() for each in state.ranges]
        group, first, last = np.array(added, np.int64).reshape(-1, 3).T
        order = np.argsort(np.concatenate((of_range[is_kept], group)), kind="stable")

        def changed(column: npt.NDArray[Any], values: Iterable[int]) -> Any:
            found = column.copy()
            found[at] = list(values)
            return found

        return States(
            is_known=changed(self.is_known, (1 for _ in states)),
            epoch=changed(self.epoch, (each.epoch for each in states.values())),
            counts=changed(self.counts, (len(each.ranges) for each in states.values())),
            first=np.concatenate((self.first[is_kept], first))[order],
            last=np.concatenate((self.last[is_kept], last))[order],
            run=changed(self.run, (each.run for each in states.values())),
            at_ms=changed(self.at_ms, (each.at_ms for each in states.values())),
        )


def opened(events: pa.Table, states: pa.Table) -> tuple[Events, States, Ints, pa.Table]:
    """Group the events by producer. Return these four:

    - the events, sorted by group
    - the previous states of these groups
    - the groups' producers
    - the states of all producers without events
    """
    of_state, of_row = _numbers(states, "producer"), _numbers(events, "producer")
    order = np.argsort(of_row, kind="stable")
    is_first = np.diff(of_row[order], prepend=-1) != 0
    starts = np.flatnonzero(is_first)
    found, sizes = of_row[order[starts]], np.diff(starts, append=len(order))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    epoch, first, last, at_ms = (
        _numbers(events, name)[order] for name in ("epoch", "first", "last", "at_ms")
    )
    group, ends = np.cumsum(is_first) - 1, np.cumsum(sizes)
    rows = Events(group, epoch, first, last, at_ms, place, sizes, ends)
    spot = np.minimum(np.searchsorted(found, of_state), len(found) - 1)
    is_found = found[spot] == of_state
    others = states.filter(array_of(~is_found, pa.bool_()))
    return (
        rows,
        _arrays(states.filter(array_of(is_found, pa.bool_())), spot[is_found], len(found)),
        found,
        others,
    )


def closed(states: States, producers: Ints, others: pa.Table) -> pa.Table:
    """Return the table of all states. `states` are those of the groups, `producers` and `others`
    are as `opened` returned them."""
    offsets = array_of(np.concatenate(([0], np.cumsum(states.counts))), pa.int32())
    columns = [
        array_of(producers, pa.int32()),
        longs(states.epoch),
        pa.ListArray.from_arrays(offsets, longs(states.first)),
        pa.ListArray.from_arrays(offsets, longs(states.last)),
        longs(states.run),
        longs(states.at_ms),
    ]
    result = pa.table(columns, schema=SCHEMA).filter(array_of(states.is_known, pa.bool_()))
    return pa.concat_tables([others, result]).combine_chunks()


def _arrays(states: pa.Table, group: Ints, groups: int) -> States:
    order = np.argsort(group)
    states, group = states.take(longs(order)), group[order]
    lists = states.column("first").combine_chunks()
    counts = np.zeros(groups, np.int64)
    counts[group] = values_of(lists.value_lengths())
    known = np.zeros(groups, np.bool_)
    known[group] = True

    def spread(name: str) -> Ints:
        found = np.zeros(groups, np.int64)
        found[group] = _numbers(states, name)
        return found

    return States(
        is_known=known,
        epoch=spread("epoch"),
        counts=counts,
        first=ints_of(lists.flatten()),
        last=ints_of(states.column("last").combine_chunks().flatten()),
        run=spread("run"),
        at_ms=spread("at_ms"),
    )


def _numbers(table: pa.Table, name: str) -> Ints:
    column = table.column(name)
    if column.null_count:
        raise ValueError(f"{name} is null in {column.null_count} rows")
    return ints_of(column)
