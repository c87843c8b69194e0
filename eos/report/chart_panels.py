"""The timeline of the report: its charts, and the table with the same figures."""

from __future__ import annotations

from dataclasses import dataclass

from eos.inspect.audit_live import ClusterState
from eos.report import charts
from eos.report.charts import (
    Chart,
    Lane,
    Series,
    bars,
    highest,
    highest_sum,
    nice,
    placed,
    stacked,
    ticks,
)
from eos.report.content import PageContent
from eos.report.lag import Lag, intervals_each, lags
from eos.report.tables import Table, rows_of
from eos.report.timeline import ABORTED, FENCED, KINDS, REDONE, STEPS, Interval
from eos.report.units import duration, number, time

_SHADES = ("committed", "aborted", "written", "redone", "fenced", "half", "other")
_STEP_SHADES = dict(zip(STEPS, _SHADES, strict=True))


@dataclass(frozen=True, slots=True)
class TimelineSection:
    """The section "Timeline".

    Its charts have room for `slots` intervals of the length `width`. `times` are labels of their x
    axis.
    """

    begin: str
    width: str
    slots: int
    times: list[str]
    attempts: Chart
    lanes: list[Lane]
    charts: list[Chart]
    table: Table


def peak(content: PageContent) -> float:
    """Return the highest number of records written per second in any interval."""
    found = (each.records_written for each in content.timeline.intervals.values())
    return max(found, default=0) * 1000 / content.timeline.width_ms


def timeline(content: PageContent, cluster: ClusterState | None) -> TimelineSection:
    line = content.timeline
    lag = lags(content, cluster)
    return TimelineSection(
        begin=time(line.start_of(line.first)),
        width=duration(line.width_ms),
        slots=charts.slots(line),
        times=charts.times_axis(line),
        attempts=_attempts(content),
        lanes=_lanes(content),
        charts=[
            _redo(content),
            _throughput(content),
            _times(content),
            _steps(content),
            _lag(content, cluster, lag),
            _lag_time(content),
        ],
        table=_as_table(content, lag),
    )


def _attempts(content: PageContent) -> Chart:
    found = placed(content.timeline)
    series = [
        Series(kind, kind, [(slot, float(each.counts[kind])) for slot, each in found])
        for kind in KINDS
    ]
    top = nice(highest_sum(series))
    totals = ", ".join(f"{number(content.kinds[kind])} {kind}" for kind in KINDS)
    width = duration(content.timeline.width_ms)
    about = f"Attempts in each interval of {width}, at most {number(top)}: {totals}."
    return Chart("Attempts", about, stacked(series, top), _axis(top), series)


def _lanes(content: PageContent) -> list[Lane]:
    found = placed(content.timeline)
    rare = [(kind.capitalize(), kind, kind) for kind in (REDONE, ABORTED, FENCED)]
    rare += [("Started", "start", "other"), ("Moved", "recovery", "other")]
    lanes = []
    for name, kind, shade in rare:
        values = [(slot, float(each.counts[kind])) for slot, each in found]
        total = int(sum(value for _, value in values))
        if total or kind in KINDS:
            lanes.append(charts.lane(Series(name, shade, values), number(total)))
    return lanes


def _redo(content: PageContent) -> Chart:
    series = Series(
        "aborted and fenced",
        ABORTED,
        [(slot, each.failed / max(1, each.committed)) for slot, each in placed(content.timeline)],
    )
    most = highest([series])
    top = nice(most)
    about = (
        f"Failed attempts for each committed micro-batch: at most {most:.3g} in an interval."
        if most
        else "No attempt failed."
    )
    axis = (f"{top:g}", f"{top / 2:g}", "0")
    return Chart("Failed attempts per micro-batch", about, bars(series, top), axis, [series])


def _throughput(content: PageContent) -> Chart:
    seconds = content.timeline.width_ms / 1000
    found = placed(content.timeline)
    rates = [(slot, each.records_written / seconds) for slot, each in found]
    written = Series("records written", "written", rates)
    read = Series(
        "offsets read", "read", [(slot, each.offsets_read / seconds) for slot, each in found]
    )
    top = nice(highest([written, read]))
    about = (
        f"Records written and offsets read a second. At most {number(peak(content))} records "
        "were written a second."
    )
    shapes = [*bars(written, top), *ticks(read, top)]
    return Chart("Throughput", about, shapes, _axis(top, "/s"), [written, read])


def _times(content: PageContent) -> Chart:
    found = [(slot, each) for slot, each in placed(content.timeline) if each.times]
    half = Series("median", "half", [(slot, each.times.at(0.5)) for slot, each in found])
    most = Series("95%", "most", [(slot, each.times.at(0.95)) for slot, each in found])
    top = nice(highest([most]))
    times = content.times
    about = (
        f"Duration of committed attempts: median {duration(times.at(0.5))}, 95% at most "
        f"{duration(times.at(0.95))}, longest {duration(times.longest_ms)}."
        if times
        else "No attempt was committed, or its begin is unknown."
    )
    shapes = [*bars(most, top), *bars(half, top)]
    return Chart("Duration of an attempt", about, shapes, _duration_axis(top), [half, most])


def _steps(content: PageContent) -> Chart:
    found = [(slot, each.step_averages_ms()) for slot, each in placed(content.timeline)]
    series = [
        Series(step, _STEP_SHADES[step], [(slot, ms[step]) for slot, ms in found]) for step in STEPS
    ]
    most = highest_sum(series)
    top = nice(most)
    about = f"Average time for each micro-batch, by step: at most {duration(most)} in all."
    shapes = stacked(series, top)
    return Chart("Time per micro-batch, by step", about, shapes, _duration_axis(top), series)


def _lag(content: PageContent, cluster: ClusterState | None, found: list[Lag]) -> Chart:
    known = [(each.slot, float(each.offsets)) for each in found if each.offsets is not None]
    name = f"offsets, known at {len(known)} of {len(found)} moments"
    series = Series(name, "half", known, intervals_each(content))
    top = nice(highest([series]))
    return Chart("Lag", _lag_about(cluster, known), bars(series, top), _axis(top), [series])


def _lag_time(content: PageContent) -> Chart:
    known = [
        (slot, float(each.lag_ms))
        for slot, each in placed(content.timeline)
        if each.lag_ms is not None
    ]
    series = Series("longest in each interval", "half", known)
    most = highest([series])
    top = nice(most)
    about = (
        "How long the oldest source records after a micro-batch had waited when it was written, "
        f"since the run saw them: at most {duration(most)}."
        if known
        else "The runs of this period did not record it."
    )
    return Chart("Lag in time", about, bars(series, top), _duration_axis(top), [series])


def _lag_about(cluster: ClusterState | None, known: list[tuple[int, float]]) -> str:
    if cluster is None:
        return "Not known: the cluster was not queried."
    if cluster.problem:
        return "Not known: the cluster did not respond."
    if not known:
        return (
            "Not known: the source's records of that time were deleted, or the brokers did not "
            "answer in time."
        )
    most, last = max(value for _, value in known), known[-1][1]
    return (
        f"Source offsets that were not committed at {len(known)} moments, by the timestamps of the "
        f"records: at most {number(most)}, last {number(last)}."
    )


def _as_table(content: PageContent, found: list[Lag]) -> Table:
    line, width = content.timeline, intervals_each(content)
    rows = rows_of(
        (time(line.start_of(line.first + slot)), *_cells(each, line.width_ms, found[slot // width]))
        for slot, each in placed(line)
    )
    heads = ("from", *KINDS, "read", "written", "median", "95%", *STEPS, "lag", "lag in time")
    return Table("Timeline", heads, rows)


def _cells(each: Interval, width_ms: int, lag: Lag) -> list[str]:
    times, seconds = each.times, width_ms / 1000
    return [
        *(number(each.counts[kind]) for kind in KINDS),
        f"{number(each.offsets_read / seconds)}/s",
        f"{number(each.records_written / seconds)}/s",
        duration(times.at(0.5)) if times else "",
        duration(times.at(0.95)) if times else "",
        *(duration(ms) for ms in each.step_averages_ms().values()),
        "" if lag.offsets is None else number(lag.offsets),
        "" if each.lag_ms is None else duration(each.lag_ms),
    ]


def _axis(top: float, unit: str = "") -> tuple[str, str, str]:
    return f"{number(top)}{unit}", f"{number(top / 2)}{unit}", "0"


def _duration_axis(top: float) -> tuple[str, str, str]:
    return duration(top), duration(top / 2), "0"
