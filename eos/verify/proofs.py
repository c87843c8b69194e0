"""Proofs that records of a source partition are duplicates or fenced.

The proofs use only stamps (producer id, epoch, sequence), and no state of dedup. A record is a
duplicate if an earlier record of its partition has the same stamp. It is fenced if an earlier
record of its producer id has a higher epoch. Earlier means a smaller offset. So micro-batches,
crashes and moved positions don't matter.

A key is a producer id with an epoch and a sequence. Memory holds `KEYS_MAX` keys. A partition with
more keys is read several times, each time for another part of the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from eos.kafka.records.varint import Ints
from eos.producers.sequences import Flags
from eos.verify.stamps import Stamps, joined

KEYS_MAX = 2_000_000  # stamps in memory; 160 bytes each during the sort
EPOCHS_MAX = 2_000_000  # pairs of producer and epoch in one partition
_NEVER = 2**62


class TooManyError(ValueError):
    """The proofs would need more memory than the limits of `eos verify` allow."""


@dataclass(frozen=True, slots=True)
class Proofs:
    """Duplicate or fenced records, each with the earlier offset that proves it.

    - `offset`: the offsets of these records, ascending.
    - `producer`: hashes of the producer ids.
    - `before`: the offset of the first record with the same stamp; -1 if this is no duplicate.
    - `newer`: the smallest offset with a higher epoch of the producer; -1 if this is not fenced.
    """

    offset: Ints
    producer: Ints
    before: Ints
    newer: Ints

    def between(self, start: int, end: int) -> Proofs:
        low, high = np.searchsorted(self.offset, [start, end])
        cut = slice(low, high)
        return Proofs(self.offset[cut], self.producer[cut], self.before[cut], self.newer[cut])

    def of(self, producer: int) -> Proofs:
        is_own = self.producer == producer
        return Proofs(
            self.offset[is_own], self.producer[is_own], self.before[is_own], self.newer[is_own]
        )


def proofs(chunks: Callable[[], Iterable[Stamps]], keys_max: int = KEYS_MAX) -> Iterator[Proofs]:
    """Yield the proofs in parts; all records with the same stamp are in one part.

    `chunks` is called once. If there are more than `keys_max` keys, it is called again for each
    part.
    """
    known, kept, count = joined([]), [], 0
    for chunk in chunks():
        known = with_epochs(known, chunk)
        count += len(chunk)
        if count <= keys_max:
            kept.append(chunk)
        else:
            kept.clear()
    epochs, passes = _replaced(known), max(1, -(-count // keys_max))
    for number in range(passes):
        yield _pass(kept if passes == 1 else chunks(), epochs, number, passes)


@dataclass(frozen=True, slots=True)
class _Epochs:
    """For each producer and epoch, sorted by both: the first offset with a higher epoch."""

    producer: Ints
    epoch: Ints
    replaced: Ints

    def of(self, stamps: Stamps) -> Ints:
        """Return the first offset with a higher epoch of each record's producer; -1 if it is not
        before the record."""
        both = np.concatenate([self.producer, stamps.producer])
        epochs = np.concatenate([self.epoch, stamps.epoch])
        order = np.lexsort((epochs, both))
        is_first = _begins(both[order], epochs[order])
        group = np.empty(len(order), np.int64)
        group[order] = np.cumsum(is_first) - 1  # group n is the nth pair of `self`
        from_ = self.replaced[group[len(self.producer) :]]
        return np.where(from_ < stamps.offset, from_, -1)


def with_epochs(known: Stamps, chunk: Stamps) -> Stamps:
    """Return the first record of each producer and epoch, in `known` or `chunk`."""
    both = joined([known, chunk])
    ordered = both.where(np.lexsort((both.offset, both.epoch, both.producer)))
    found = ordered.where(_begins(ordered.producer, ordered.epoch))
    if len(found) > EPOCHS_MAX:
        raise TooManyError(f"more than {EPOCHS_MAX:,} producers and epochs")
    return found


def has_epoch(known: Stamps, stamps: Stamps) -> Flags:
    """Return whether `known` has a record of each stamp's producer and epoch."""
    both = joined([known, stamps])
    order = np.lexsort((np.arange(len(both)), both.epoch, both.producer))
    is_first = _begins(both.producer[order], both.epoch[order])
    heads = order[np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))]
    found = np.empty(len(order), np.bool_)
    found[order] = heads < len(known)
    return found[len(known) :]


def _replaced(known: Stamps) -> _Epochs:
    # From the highest epoch of a producer down, compute the smallest offset of all higher epochs.
    replaced = np.full(len(known), _NEVER, np.int64)
    is_last = np.append(_begins(known.producer)[1:], True)
    for at in range(len(known) - 2, -1, -1) if len(known) else ():
        if not is_last[at]:
            replaced[at] = min(replaced[at + 1], known.offset[at + 1])
    return _Epochs(known.producer, known.epoch, replaced)


def _pass(chunks: Iterable[Stamps], epochs: _Epochs, number: int, passes: int) -> Proofs:
    parts = []
    for chunk in chunks:
        is_mine = _hash_keys(chunk) % np.uint64(passes) == number
        parts.append(chunk.where(is_mine))
    stamps = joined(parts)
    order = np.lexsort((stamps.offset, stamps.sequence, stamps.epoch, stamps.producer))
    ordered = stamps.where(order)
    is_first = _begins(ordered.producer, ordered.epoch, ordered.sequence)
    first = np.maximum.accumulate(np.where(is_first, np.arange(len(ordered)), 0))
    before = np.where(is_first, -1, ordered.offset[first])
    newer = epochs.of(ordered)
    is_proven = (before >= 0) | (newer >= 0)
    rows = np.flatnonzero(is_proven)
    rows = rows[np.argsort(ordered.offset[rows])]
    return Proofs(ordered.offset[rows], ordered.producer[rows], before[rows], newer[rows])


def _begins(*columns: Ints) -> Ints:
    """Return True for each sorted row that differs from the previous row."""
    found = np.zeros(len(columns[0]), np.bool_)
    found[:1] = True
    for column in columns:
        found[1:] |= column[1:] != column[:-1]
    return found


def _hash_keys(stamps: Stamps) -> Ints:
    """Return a hash of each stamp. The sequence is included, to spread one producer over parts."""
    with np.errstate(over="ignore"):
        mixed = stamps.producer.astype(np.uint64) ^ (
            stamps.epoch.astype(np.uint64) << np.uint64(32)
        )
        mixed = (mixed ^ stamps.sequence.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    found: Ints = mixed >> np.uint64(33)
    return found
