"""Verdicts on the records of one chunk, and the producers' states after it.

A chunk is the rows of one partition that a task validates together. Most producers are continuing:
each of their records has the next sequence number. Under any rules the verdict of these records is
`appended`. So this module decides them at once and updates the states in place. `producers.batch`
decides the records of all other producers. For continuing producers it would return the same
verdicts, but take several times as long.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from eos.arrow import array_of, longs
from eos.dedup.partition_states import PartitionStates
from eos.dedup.verdict_rows import Codes
from eos.producers.batch import decide_all
from eos.producers.sequences import Flags, Ints
from eos.producers.state import VERDICTS, Rules


class Sent(NamedTuple):
    """Producer, epoch and sequence number of each record of a chunk, in order.

    `who` is the index of each record's producer. Each producer has at least one record."""

    who: Ints
    epoch: Ints
    sequence: Ints


class ChunkVerdicts(NamedTuple):
    """Verdicts on the records of a chunk, as codes.

    `has_moved` marks the producers whose state changed. `before` has the previous states of the
    producers that skipped or repeated a number, with row numbers instead of producer ids."""

    codes: Codes
    has_moved: Flags
    before: pa.Table


def decide(
    known: PartitionStates, rows: Ints, sent: Sent, now_ms: int, rules: Rules
) -> ChunkVerdicts:
    """Return the verdicts of a chunk and update the states `known`.

    `rows` has the row of each producer in `known`."""
    has_moved = advance_continuing(known, rows, sent, now_ms, rules)
    codes = np.zeros(len(sent.who), np.int8)
    at = np.flatnonzero(~has_moved[sent.who])
    before = known.states(rows[~has_moved])
    if len(at):
        columns = {
            "producer": array_of(rows[sent.who[at]], pa.int32()),
            "epoch": longs(sent.epoch[at]),
            "first": longs(sent.sequence[at]),
            "last": longs(sent.sequence[at]),
            "at_ms": longs(np.full(len(at), now_ms)),
        }
        found = decide_all(pa.table(columns), before, rules)
        known.put(found.states)
        codes[at] = found.codes
        writes = [code for code, each in enumerate(VERDICTS) if rules.writes(each)]
        has_moved[sent.who[at[np.isin(found.codes, writes)]]] = True
    return ChunkVerdicts(codes, has_moved, before)


def advance_continuing(
    known: PartitionStates, rows: Ints, sent: Sent, now_ms: int, rules: Rules
) -> Flags:
    """Return a mask of the producers whose records all have the next sequence number.

    Advance the states of these producers in `known`."""
    producer, epoch, sequence = sent
    is_once = len(producer) == len(rows)
    if not is_once:
        order = np.argsort(producer.astype(np.min_scalar_type(len(rows))), kind="stable")
        producer, epoch, sequence = (each[order] for each in sent)
    sizes = np.bincount(producer, minlength=len(rows))
    ends = np.cumsum(sizes) - 1
    starts = ends - sizes + 1
    # A number that wraps to 0 does not match here, so `producers.batch` decides its producer.
    last = known.last[rows]
    found: Flags = sequence[starts] == last + 1
    # An unknown producer (last is -1) must begin at 0, in any epoch.
    found &= (last < 0) | (known.epoch[rows] == epoch[starts])
    if not is_once:
        follows = (np.diff(sequence) == 1) & (np.diff(epoch) == 0)
        follows[starts[1:] - 1] = True
        found[producer[1:][~follows]] = False
    ends = ends[found]
    most = rules.sequences // 2
    known.advance(rows[found], sizes[found], epoch[ends], sequence[ends], now_ms, most)
    return found
