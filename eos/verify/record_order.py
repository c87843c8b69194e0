"""In which order did dedup validate the records of several source partitions?

The order is by micro-batch, then topic, partition and offset. Each record gets one order number
that combines them. With `scope: producer` this order decides which of two records with the same
producer id, epoch and sequence is the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from eos.kafka.api import TopicPartition
from eos.kafka.records.varint import Ints
from eos.verify.proofs import Proofs, TooManyError
from eos.verify.stamps import Stamps

_OFFSET_BITS, _PLACE_BITS, _TURN_BITS = 36, 11, 16
_OFFSETS = (1 << _OFFSET_BITS) - 1
Ranges = Mapping[TopicPartition, tuple[int, int]]


class RecordPosition(NamedTuple):
    at: TopicPartition
    offset: int


class Order:
    """Order numbers of records in several source partitions.

    `attempts` has the ranges that each attempt read. Records that none of them read get order
    numbers between those of the attempts."""

    def __init__(self, attempts: Sequence[Ranges], partitions: Sequence[TopicPartition]) -> None:
        if len(partitions) >> _PLACE_BITS or (2 * len(attempts) + 2) >> _TURN_BITS:
            raise TooManyError(f"{len(partitions):,} partitions, {len(attempts):,} attempts")
        self._partitions = partitions
        self._place = {tp: place for place, tp in enumerate(partitions)}
        self._turns: dict[TopicPartition, tuple[Ints, Ints, Ints]] = {}
        for tp in partitions:
            read = [(*each[tp], turn) for turn, each in enumerate(attempts) if tp in each]
            rows = np.array(read, np.int64).reshape(-1, 3)
            self._turns[tp] = rows[:, 0], rows[:, 1], rows[:, 2]

    def placed(self, at: TopicPartition, stamps: Stamps) -> Stamps:
        """Return the stamps with order numbers in place of offsets.

        A record between the ranges of two attempts is ordered after all records of the former one.
        """
        starts, ends, turns = self._turns[at]
        if len(stamps) and (int(stamps.offset[-1]) > _OFFSETS):
            raise TooManyError(f"offsets above {_OFFSETS:,}")
        after = np.searchsorted(ends, stamps.offset, side="right")
        before = np.append(-1, turns)[after]  # the last attempt that ended at or below the offset
        inside = np.append(starts, _OFFSETS + 1)[after] <= stamps.offset
        turn = np.where(inside, 2 * np.append(turns, 0)[after] + 1, 2 * before + 2)
        numbers = (turn << (_OFFSET_BITS + _PLACE_BITS)) | (self._place[at] << _OFFSET_BITS)
        return replace(stamps, offset=numbers | stamps.offset)

    def within(self, found: Proofs, turn: int, at: TopicPartition, span: tuple[int, int]) -> Proofs:
        """Return the proofs of the records that attempt `turn` read from one partition.

        In the result, `offset` has Kafka offsets; `before` and `newer` still have order numbers.
        """
        first = ((2 * turn + 1) << (_OFFSET_BITS + _PLACE_BITS)) | (self._place[at] << _OFFSET_BITS)
        cut = found.between(first | span[0], first | span[1])
        return replace(cut, offset=cut.offset & _OFFSETS)

    def where(self, number: int) -> RecordPosition:
        place = (number >> _OFFSET_BITS) & ((1 << _PLACE_BITS) - 1)
        return RecordPosition(self._partitions[place], number & _OFFSETS)
