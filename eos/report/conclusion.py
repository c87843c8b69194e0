"""Was the guarantee kept? One sentence, its evidence, and the checks that were not made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from eos.audit.history import AuditFinding
from eos.inspect.cluster_state import ClusterState
from eos.report.content import PageContent
from eos.report.units import counted, time


class Level(Enum):
    KEPT = "kept"
    LOOK = "look"  # the table is consistent; something else needs an operator
    BROKEN = "broken"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Conclusion:
    level: Level
    word: str
    sentence: str


def verdict(gathered: PageContent, asked: ClusterState | None) -> Conclusion:
    committed = gathered.sums.committed
    batches = counted(committed, "micro-batch", "micro-batches")
    told = gathered.findings_count
    live = asked.live.findings if asked and asked.live else ()
    if told:
        words = counted(told, "contradiction")
        first = gathered.findings[0]
        sentence = f"{words} among {counted(gathered.transactions, 'transaction')}. "
        return Conclusion(Level.BROKEN, "Broken", f"{sentence}The first: {_named(first)}.")
    if live:
        sentence = (
            f"{batches} in the audit table fit together, but the cluster does not fit to them: "
            f"{_named(live[0])}."
        )
        return Conclusion(Level.LOOK, "Look here", sentence)
    if not committed:
        what = "no micro-batch committed" if gathered.transactions else "there is no transaction"
        return Conclusion(
            Level.NOTHING, "Nothing to judge", f"As far as the audit table goes, {what}."
        )
    return Conclusion(
        Level.KEPT,
        "Kept",
        f"As far as the audit table tells, {batches} committed once each: "
        "nothing left out, nothing read again, nothing twice.",
    )


def rests_on(gathered: PageContent, asked: ClusterState | None) -> Iterator[str]:
    if gathered.is_empty:
        return
    first, last = time(gathered.first_at), time(gathered.last_at)
    yield (
        f"{counted(gathered.transactions, 'transaction')} in the audit table, which repeats the "
        f"pipeline's ledger, from {first} to {last}."
    )
    yield (
        "Of each that committed: does it begin where the one before it ended, in every source "
        "partition; did its identity, its micro-batch or a newer epoch commit before."
    )
    yield (
        "Of each target partition that it wrote: do records, sequences and offsets of the receipt "
        "agree, and do they lie above what was written before."
    )
    if asked is not None and asked.live is not None:
        same = sum(each.is_same for each in asked.live.fields)
        yield (
            f"The cluster, asked at {time(asked.at)}: {same} of {len(asked.live.fields)} values "
            "that both know are the same, and nobody else's transaction is open on a target."
            if not asked.live.findings
            else f"The cluster, asked at {time(asked.at)}, which does not fit: see below."
        )


def not_checked(asked: ClusterState | None, since: str) -> Iterator[str]:
    yield "The records themselves: this page read none of them, neither in source nor in targets."
    if since:
        yield f"What came before: the page begins at {since}."
    if asked is None:
        yield "The cluster: it was not asked (--offline), so lag is unknown."
    elif asked.live is None:
        yield f"The cluster: it did not answer. {asked.problem}"
    else:
        yield "What a pipeline did to systems outside of Kafka, which is never part of the promise."


def _named(finding: AuditFinding) -> str:
    where = f" (ledger offset {finding.offset})" if finding.offset >= 0 else ""
    return f"{finding.message}{where}"
