"""How are the states of `scope: producer` converted between files and numpy arrays?

A state has the accepted sequence numbers of one producer and epoch. A Parquet file of states is
read as an Arrow table. `producer_scope` computes with numpy arrays of numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.arrow import array_of, ints_of, longs, one_array
from eos.dedup.buckets import SCOPE_STATES
from eos.dedup.number_ranges import NumberRanges
from eos.dedup.producer_index import ProducerIndex
from eos.dedup.producer_scope import Epochs
from eos.producers.sequences import Ints


@dataclass(frozen=True, slots=True)
class ProducerNumbers:
    """Mapping of producers and partitions to numbers and back, shared by records and states.

    The number of a producer or partition is its index in `producers` or `places`. A partition is
    the text `TOPIC-PARTITION`."""

    index: ProducerIndex
    places: pa.Array

    @classmethod
    def of(cls, producers: pa.Array, places: pa.Array) -> tuple[ProducerNumbers, Ints]:
        """Return the mapping for these rows, and the producer's number of each row.

        `places` has the partitions of the rows, sorted. States may name further partitions."""
        index = ProducerIndex()
        numbers = index.add(producers)
        return cls(index, places), numbers

    @property
    def producers(self) -> pa.Array:
        return self.index.ids

    def numbers_of(self, states: pa.Table) -> Ints:
        """Return the number of each state's producer, or -1 if no row has this producer."""
        return self.index.find(states.column("producer"))

    def known(self, own: pa.Table, producers: Ints) -> tuple[Epochs, ProducerNumbers]:
        """Return the states `own` as arrays, and a mapping that also has the states' partitions.

        `producers` has the number of each state's producer."""
        lists = one_array(own.column("partitions"))
        fences = lists.flatten()
        every = pa.concat_arrays([self.places, fences]).unique()
        epoch = ints_of(own.column("epoch"))
        order = np.lexsort((epoch, producers))
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        first = one_array(own.column("first"))
        owner = back[_owners(first)]
        run_order = np.lexsort((ints_of(first.flatten()), owner))
        last = ints_of(one_array(own.column("last")).flatten())
        runs = NumberRanges(owner[run_order], ints_of(first.flatten())[run_order], last[run_order])
        begin, base, forgotten = (
            ints_of(own.column(name))[order] for name in ("begin", "base", "forgotten")
        )
        epochs = Epochs(
            producers[order],
            epoch[order],
            begin,
            base,
            forgotten,
            runs,
            back[_owners(lists)],
            ints_of(pc.index_in(fences, value_set=every)),
        )
        return epochs, ProducerNumbers(self.index, every)

    def states(self, epochs: Epochs, now_ms: Ints) -> pa.Table:
        """Return the states as a table. `now_ms` has the time of the last change by producer."""
        order = np.argsort(epochs.fence_owner, kind="stable")
        places = self.places.take(longs(epochs.fence_place[order]))
        columns = {
            "producer": self.producers.take(longs(epochs.producer)),
            "epoch": longs(epochs.epoch),
            "begin": longs(epochs.begin),
            "base": longs(epochs.base),
            "first": _lists(epochs.runs.owner, longs(epochs.runs.first), len(epochs.epoch)),
            "last": _lists(epochs.runs.owner, longs(epochs.runs.last), len(epochs.epoch)),
            "forgotten": longs(epochs.forgotten),
            "partitions": _lists(epochs.fence_owner[order], places, len(epochs.epoch)),
            "at_ms": longs(now_ms[epochs.producer]),
        }
        return pa.table(columns, schema=SCOPE_STATES)


def newest_ms(states: pa.Table) -> Ints:
    """Return, for each state, when any state of the same producer changed last, in ms."""
    producers = ints_of(one_array(states.column("producer")).dictionary_encode().indices)
    newest = np.zeros(int(producers.max(initial=-1)) + 1, np.int64)
    np.maximum.at(newest, producers, ints_of(states.column("at_ms")))
    return newest[producers]


def _owners(lists: Any) -> Ints:
    """Return, for each element of all lists, the index of its list."""
    return np.repeat(np.arange(len(lists)), ints_of(lists.value_lengths()))


def _lists(owner: Ints, values: pa.Array, count: int) -> pa.Array:
    """Return a list of values per owner. `values` must be in the order of their owners."""
    offsets = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=count))))
    return pa.ListArray.from_arrays(array_of(offsets, pa.int32()), values)
