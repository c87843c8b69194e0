"""Numbers of producer ids: a hash table that maps each id to a dense number.

The native library keeps one hash table as long as the index. Without it, Arrow builds a new table
for each call, with all known ids.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.arrow import binaries, ints_of, longs, one_array
from eos.kafka.records.native_rows import SourceColumn
from eos.native import library
from eos.native.structs import Numbering, address
from eos.producers.sequences import Ints

_SLOTS_MIN = 1 << 8
_SEED = int.from_bytes(os.urandom(8), "little") | 1


class ProducerIndex:
    """Producer ids by number. An id's number is its place in `ids`, so numbers never change.

    The native hash table takes 16 to 32 bytes per id, in addition to `ids`."""

    def __init__(self, seed: int = _SEED) -> None:
        self.ids: Any = binaries([])
        self._seed = seed
        self._slots: Ints = np.zeros(_SLOTS_MIN, np.uint64)
        self._indexed = 0  # how many ids are in the table

    def extend(self, ids: Any) -> None:
        """Add ids, which must not have a number yet. They get the next numbers in their order."""
        self.ids = pa.concat_arrays([self.ids, ids])

    def add(self, ids: Any) -> Ints:
        """Return the number of each id. New ids get the next numbers, in their order."""
        return self._numbers(ids, is_adding=True)

    def find(self, ids: Any) -> Ints:
        """Return the number of each id, or -1 if it has none."""
        return self._numbers(ids, is_adding=False)

    def _numbers(self, ids: Any, *, is_adding: bool) -> Ints:
        ids = (one_array(ids) if isinstance(ids, pa.ChunkedArray) else ids).cast(pa.binary())
        native = library.load()
        if native is None:
            return self._by_arrow(ids, is_adding)
        return self._by_hash(native, ids, is_adding)

    def _by_hash(self, native: Any, ids: Any, is_adding: bool) -> Ints:
        most = len(self.ids) + len(ids) + 1
        if len(self._slots) < 2 * most:
            self._slots = np.zeros(1 << (2 * most - 1).bit_length(), np.uint64)
            self._indexed = 0
        known, wanted = SourceColumn(self.ids, "producer"), SourceColumn(ids, "producer")
        numbers, firsts = np.empty((2, len(ids)), np.int64)
        numbering = Numbering(
            slots=address(self._slots),
            slot_count=len(self._slots),
            seed=self._seed,
            known=known.struct,
            indexed=self._indexed,
            ids=wanted.struct,
            is_adding=is_adding,
            numbers=address(numbers),
            firsts=address(firsts),
        )
        if native.eos_number(ctypes.byref(numbering)):
            raise ValueError("the producer ids are no valid Arrow column")
        if numbering.added:
            is_all_new = numbering.added == len(ids)
            self.extend(ids if is_all_new else ids.take(longs(firsts[: numbering.added])))
        self._indexed = len(self.ids)
        return numbers

    def _by_arrow(self, ids: Any, is_adding: bool) -> Ints:
        encoded = ids.dictionary_encode()
        distinct = encoded.dictionary
        # Search the known ids for the given ones. The other way, Arrow would hash all known ids.
        place = ints_of(pc.index_in(self.ids, value_set=distinct), null=len(distinct))
        found = np.full(len(distinct) + 1, -1)  # the last element collects all other ids
        found[place] = np.arange(len(place))
        found[-1] = -1  # of nulls
        new = np.flatnonzero(found[:-1] < 0)
        if is_adding and len(new):
            found[new] = len(self.ids) + np.arange(len(new))
            self.extend(distinct.take(longs(new)))
        return found[ints_of(encoded.indices, null=len(distinct))]
