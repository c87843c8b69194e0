"""Which key figures does a page show first, each with its unit and context?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from eos.inspect.audit_live import ClusterState
from eos.report.chart_panels import peak
from eos.report.content import PageContent
from eos.report.markup import Markup, tag
from eos.report.timeline import ABORTED, COMMITTED, FENCED, REDONE
from eos.report.units import counted, duration, ms_between, number, time


@dataclass(frozen=True, slots=True)
class Card:
    name: str
    value: str
    beside: str
    class_: str = ""


def cards(gathered: PageContent, cluster: ClusterState | None, now: datetime) -> Markup:
    shown = [*_attempts(gathered), *_amounts(gathered), _lag(gathered, cluster)]
    shown += _when(gathered, now)
    return tag(
        "dl",
        [
            tag(
                "div",
                tag("dt", each.name),
                tag("dd", each.value, class_="value"),
                tag("dd", each.beside, class_="soft"),
                class_=f"card {each.class_}".strip(),
            )
            for each in shown
        ],
        class_="cards",
    )


def _attempts(gathered: PageContent) -> Iterator[Card]:
    sums, kinds = gathered.sums, gathered.kinds
    others = counted(len(sums.takeovers), "takeover", "takeovers")
    others += f", {counted(len(sums.restarts), 'restart', 'restarts')}"
    redone = f"{number(kinds[REDONE])} of them redone"
    yield Card("Committed", number(sums.committed), redone, COMMITTED)
    ratio = f"{sums.redo_ratio:.4f} for each committed"
    yield Card("Aborted", number(kinds[ABORTED]), ratio, ABORTED)
    yield Card("Fenced", number(kinds[FENCED]), others, FENCED)


def _amounts(gathered: PageContent) -> Iterator[Card]:
    times = gathered.times
    sums, offsets = gathered.sums, f"{number(gathered.sums.offsets_in)} offsets, with markers"
    if sums.records_in is None:
        yield Card("Read", number(sums.offsets_in), "offsets, with markers")
    else:
        yield Card("Read", number(sums.records_in), f"records, in {offsets}")
    yield Card("Written", number(gathered.sums.records_out), "records")
    over = f"records written, within {duration(gathered.timeline.width_ms)}"
    yield Card("Peak rate", f"{number(peak(gathered))}/s", over)
    most, longest = duration(times.at(0.99)), duration(times.longest_ms)
    beside = f"median; 99%: {most}; longest: {longest}"
    yield Card("Duration of an attempt", duration(times.at(0.5)), beside)


def _lag(gathered: PageContent, cluster: ClusterState | None) -> Card:
    if cluster is None:
        return Card("Lag", "not known", "the cluster was not queried")
    if cluster.problem:
        return Card("Lag", "not known", "the cluster did not respond")
    ends = cluster.ends
    lags = (max(0, ends[tp] - at) for tp, at in gathered.position.items() if tp in ends)
    return Card("Lag", number(sum(lags)), f"offsets, in {counted(len(ends), 'partition')}")


def _when(gathered: PageContent, now: datetime) -> Iterator[Card]:
    last = gathered.committed_at
    if last is None:
        yield Card("Last commit", "none", "")
    else:
        yield Card("Last commit", f"{duration(ms_between(last, now))} ago", time(last))
    shown = ms_between(gathered.first_at, gathered.last_at)
    yield Card("Time shown", duration(shown), f"from {time(gathered.first_at)}")
