"""The key figures at the top of the report, each with its unit and a note."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from eos.inspect.audit_live import ClusterState
from eos.report.chart_panels import peak
from eos.report.content import PageContent
from eos.report.timeline import ABORTED, COMMITTED, FENCED, REDONE
from eos.report.units import counted, duration, ms_between, number, time


@dataclass(frozen=True, slots=True)
class Card:
    name: str
    value: str
    note: str
    shade: str = ""


def cards(content: PageContent, cluster: ClusterState | None, now: datetime) -> list[Card]:
    counts = (*_attempts(content), *_amounts(content))
    return [*counts, _lag(content, cluster), *_times(content, now)]


def _attempts(content: PageContent) -> Iterator[Card]:
    sums, kinds = content.sums, content.kinds
    others = counted(len(sums.takeovers), "takeover", "takeovers")
    others += f", {counted(len(sums.restarts), 'restart', 'restarts')}"
    redone = f"{number(kinds[REDONE])} of them redone"
    yield Card("Committed", number(sums.committed), redone, COMMITTED)
    ratio = f"{sums.redo_ratio:.4f} for each committed"
    yield Card("Aborted", number(kinds[ABORTED]), ratio, ABORTED)
    yield Card("Fenced", number(kinds[FENCED]), others, FENCED)


def _amounts(content: PageContent) -> Iterator[Card]:
    times = content.times
    sums, offsets = content.sums, f"{number(content.sums.offsets_in)} offsets, with markers"
    if sums.records_in is None:
        yield Card("Read", number(sums.offsets_in), "offsets, with markers")
    else:
        yield Card("Read", number(sums.records_in), f"records, in {offsets}")
    yield Card("Written", number(content.sums.records_out), "records")
    over = f"records written, within {duration(content.timeline.width_ms)}"
    yield Card("Peak rate", f"{number(peak(content))}/s", over)
    most, longest = duration(times.at(0.99)), duration(times.longest_ms)
    note = f"median; 99%: {most}; longest: {longest}"
    yield Card("Duration of an attempt", duration(times.at(0.5)), note)


def _lag(content: PageContent, cluster: ClusterState | None) -> Card:
    if cluster is None:
        return Card("Lag", "not known", "the cluster was not queried")
    if cluster.problem:
        return Card("Lag", "not known", "the cluster did not respond")
    ends = cluster.ends
    lags = (max(0, ends[tp] - at) for tp, at in content.position.items() if tp in ends)
    return Card("Lag", number(sum(lags)), f"offsets, in {counted(len(ends), 'partition')}")


def _times(content: PageContent, now: datetime) -> Iterator[Card]:
    last = content.committed_at
    if last is None:
        yield Card("Last commit", "none", "")
    else:
        yield Card("Last commit", f"{duration(ms_between(last, now))} ago", time(last))
    shown = ms_between(content.first_at, content.last_at)
    yield Card("Time shown", duration(shown), f"from {time(content.first_at)}")
