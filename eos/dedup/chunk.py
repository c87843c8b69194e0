"""What becomes of a chunk of records, and of the states that they move on.

Most producers do nothing but go on: each record of theirs has the number that is next. All of them
are `appended`, whatever the rules, and decided here at once, in place. All other producers' records
are decided by `producer_batch`, which would say the same of these, at several times the cost.
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
    """Records in their order. `who`: of each the place of its producer, each of which sent some."""

    who: Ints
    epoch: Ints
    sequence: Ints


class ChunkVerdicts(NamedTuple):
    """`has_moved`: which producers' states are others now. `before`: the states as they were, of
    the producers that did not simply go on; a producer's name is its row."""

    codes: Codes
    has_moved: Flags
    before: pa.Table


def decide(
    known: PartitionStates, rows: Ints, sent: Sent, now_ms: int, rules: Rules
) -> ChunkVerdicts:
    """`rows`: of each producer the one that it has in `known`."""
    has_moved = straight(known, rows, sent, now_ms, rules)
    codes = np.zeros(len(sent.who), np.int8)
    at = np.flatnonzero(~has_moved[sent.who])
    before = known.states(rows[~has_moved])
    if len(at):
        columns = {
            "producer": array_of(rows[sent.who[at]], pa.int32()),
            "partition": array_of(np.zeros(len(at)), pa.int32()),
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


def straight(known: PartitionStates, rows: Ints, sent: Sent, now_ms: int, rules: Rules) -> Flags:
    """Which producers go on and do nothing else. In `known` they have."""
    who, epoch, sequence = sent
    is_once = len(who) == len(rows)
    if not is_once:
        order = np.argsort(who.astype(np.min_scalar_type(len(rows))), kind="stable")
        who, epoch, sequence = (each[order] for each in sent)
    sizes = np.bincount(who, minlength=len(rows))
    ends = np.cumsum(sizes) - 1
    starts = ends - sizes + 1
    # Numbers that wrap are none of these: 0 is not one more than the last one.
    last = known.last[rows]
    found: Flags = sequence[starts] == last + 1
    # Who is not known begins at 0, in whatever epoch.
    found &= (last < 0) | (known.epoch[rows] == epoch[starts])
    if not is_once:
        follows = (np.diff(sequence) == 1) & (np.diff(epoch) == 0)
        follows[starts[1:] - 1] = True
        found[who[1:][~follows]] = False
    ends = ends[found]
    most = rules.sequences // 2
    known.go_on(rows[found], sizes[found], epoch[ends], sequence[ends], now_ms, most)
    return found
