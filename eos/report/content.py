"""The data of a report, gathered from the audit table's transactions in one pass.

Sums and intervals are kept, and of single transactions only the newest and the unusual ones, so
memory is bounded.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice

from eos.audit.history import Summary, Sums, Transaction, advance, findings
from eos.finding import Finding
from eos.kafka.api import TopicPartition
from eos.report.timeline import COMMITTED, Spans, Timeline, Times, is_try, join, kind_of

# How many unusual transactions the page lists: the newest ones.
NOTABLE_MAX = 2000
FINDINGS_MAX = 200
RECENT_MAX = 1000  # newest transactions to keep: to compare with the cluster, and to list some


@dataclass(slots=True)
class PageContent:
    timeline: Timeline = field(default_factory=Timeline)
    sums: Summary = field(default_factory=lambda: Sums().so_far)
    kinds: Counter[str] = field(default_factory=Counter)  # number of attempts by timeline.KINDS
    transactions: int = 0
    times: Times = field(default_factory=Times)
    sources: Spans = field(default_factory=dict)
    targets: Spans = field(default_factory=dict)
    began: dict[TopicPartition, int] = field(default_factory=dict)  # first positions
    position: dict[TopicPartition, int] = field(default_factory=dict)
    first_at: datetime | None = None
    last_at: datetime | None = None
    committed_at: datetime | None = None  # time of the last commit
    # Unusual transactions, each with the time at which the timeline has it (`Timeline.add`).
    notable: deque[tuple[Transaction, datetime]] = field(
        default_factory=lambda: deque(maxlen=NOTABLE_MAX)
    )
    notable_count: int = 0
    recent: deque[Transaction] = field(default_factory=lambda: deque(maxlen=RECENT_MAX))
    findings: Sequence[Finding] = ()
    findings_count: int = 0

    @property
    def is_empty(self) -> bool:
        return not self.transactions


def gather(found: Iterable[Transaction]) -> PageContent:
    """Return the data of a report about these transactions, which must be in order, oldest first.

    Contradictions between them are in `findings`."""
    content, sums = PageContent(), Sums()
    problems = findings(_count_while_reading(found, content, sums))
    content.findings = list(islice(problems, FINDINGS_MAX))
    content.findings_count = len(content.findings) + sum(1 for _ in problems)
    content.sums = sums.so_far
    for interval in content.timeline.intervals.values():
        content.times.join(interval.times)
        join(content.sources, interval.sources)
        join(content.targets, interval.targets)
    return content


def _count_while_reading(
    found: Iterable[Transaction], content: PageContent, sums: Sums
) -> Iterator[Transaction]:
    writer = None
    for each in found:
        sums.add(each)
        content.transactions += 1
        shown_at = content.timeline.add(each)
        content.recent.append(each)
        if each.is_committed:
            for tp, (start, _) in each.sources.items():
                content.began.setdefault(tp, start)
            advance(content.position, each)
        if is_try(each):
            content.kinds[kind_of(each)] += 1
        at = each.ended_at
        if at is not None:
            content.first_at = min(at, content.first_at or at)
            content.last_at = max(at, content.last_at or at)
            if each.is_attempt and each.is_committed:
                content.committed_at = at
        is_other = each.is_committed and writer not in {None, each.writer}
        if each.is_committed:
            writer = each.writer
        if is_other or is_notable(each):
            content.notable.append((each, shown_at))
            content.notable_count += 1
        yield each


def is_notable(each: Transaction) -> bool:
    """Return whether a transaction is unusual on its own.

    The first transaction of another process is unusual, too. That needs the previous transaction,
    so the caller checks it.
    """
    if is_try(each):
        return kind_of(each) != COMMITTED
    return each.is_reset or each.kind == "recovery"
