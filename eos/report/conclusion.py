"""The report's verdict: was exactly-once kept, on what evidence, and what was not checked?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from eos.inspect.audit_live import ClusterState
from eos.report.content import PageContent
from eos.report.units import counted, time


class Level(Enum):
    KEPT = "kept"
    LOOK = "look"  # the audit table is consistent, but the cluster disagrees with it
    BROKEN = "broken"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Conclusion:
    level: Level
    word: str
    sentence: str


def verdict(content: PageContent, cluster: ClusterState | None) -> Conclusion:
    committed = content.sums.committed
    batches = counted(committed, "micro-batch", "micro-batches")
    count = content.findings_count
    live = cluster.findings if cluster else ()
    if count:
        found = counted(count, "contradiction")
        first = content.findings[0].with_ledger_offset()
        sentence = f"{found} among {counted(content.transactions, 'transaction')}. "
        return Conclusion(Level.BROKEN, "Broken", f"{sentence}The first: {first}.")
    if live:
        sentence = (
            f"{batches} in the audit table are consistent, but the cluster contradicts the table: "
            f"{live[0].with_ledger_offset()}."
        )
        return Conclusion(Level.LOOK, "Look here", sentence)
    if not committed:
        problem = "no micro-batch committed" if content.transactions else "there is no transaction"
        return Conclusion(
            Level.NOTHING, "Nothing to check", f"According to the audit table, {problem}."
        )
    return Conclusion(
        Level.KEPT,
        "Kept",
        f"According to the audit table, {batches} committed once each: no source range was "
        "skipped, read again or written twice.",
    )


def evidence(content: PageContent, cluster: ClusterState | None) -> Iterator[str]:
    if content.is_empty:
        return
    first, last = time(content.first_at), time(content.last_at)
    yield (
        f"{counted(content.transactions, 'transaction')} in the audit table, which repeats the "
        f"pipeline's ledger, from {first} to {last}."
    )
    yield (
        "For each committed transaction: in every source partition it begins where the previous "
        "one ended; neither its identity, its micro-batch nor a newer epoch committed before."
    )
    yield (
        "For each target partition that it wrote: records, sequence numbers and offsets of the "
        "receipt agree, and are above those that were written before."
    )
    if cluster is not None and not cluster.problem:
        same = sum(each.is_same for each in cluster.fields)
        yield (
            f"The cluster at {time(cluster.at)}: {same} of {len(cluster.fields)} values that both "
            "have are the same, and no other client's transaction is open on a target."
            if not cluster.findings
            else f"The cluster at {time(cluster.at)}, which contradicts the table: see below."
        )


def not_checked(cluster: ClusterState | None, since: str) -> Iterator[str]:
    yield "The records themselves: this page reads no records of source or targets."
    if since:
        yield f"Earlier transactions: the page begins at {since}."
    if cluster is None:
        yield "The cluster: it was not queried (--offline), so the lag is unknown."
    elif cluster.problem:
        yield f"The cluster: it did not respond. {cluster.problem}"
    else:
        yield "Side effects of the pipeline outside of Kafka, which are never exactly-once."
