"""The group's offsets beside the ledger's ends: a mirror that others may move.

Every attempt commits the offsets of all partitions inside its transaction, so they are equal unless
somebody else wrote: a plain OffsetCommit (a reset by an operator, a stray consumer) wins over ours
if it comes between ours and the end of the transaction; offsets expire; a group can be deleted.
"""

from __future__ import annotations

from collections.abc import Mapping

from eos.transaction.ledger_record import Ends
from eos.transaction.port import TopicPartition

_TOLD_MAX = 3

# The group's offset (None: it has none) and the ledger's end.
Differing = Mapping[TopicPartition, tuple[int | None, int]]


def differing(ends: Ends, found: Ends) -> Differing:
    return {tp: (found.get(tp), end) for tp, end in ends.items() if found.get(tp) != end}


def ahead(of: Differing) -> Differing:
    """Where the group is further than the ledger: somebody moved it there on purpose."""
    return {tp: (offset, end) for tp, (offset, end) in of.items() if (offset or 0) > end}


def told(of: Differing) -> str:
    """One sentence with the first few values; empty if nothing differs."""
    if not of:
        return ""
    shown = [
        f"{topic}-{partition} is at {'nothing' if at is None else at}, the ledger at {end}"
        for (topic, partition), (at, end) in sorted(of.items())[:_TOLD_MAX]
    ]
    more = f", and {len(of) - _TOLD_MAX} more" if len(of) > _TOLD_MAX else ""
    return f"the group's offsets differ from the ledger: {'; '.join(shown)}{more}"
