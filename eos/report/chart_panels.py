"""The charts of the report, and the texts that its script shows for one selected interval."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from eos.kafka.api import TopicPartition
from eos.report import charts
from eos.report.charts import Series, bars, figure, lane, nice, placed, stacked, ticks
from eos.report.content import PageContent
from eos.report.markup import Content, Markup, tag
from eos.report.tables import cut, row, table
from eos.report.timeline import ABORTED, FENCED, KINDS, REDONE, Interval, Spans
from eos.report.units import counted, duration, moment, number, time

# How many source and how many target partitions an interval lists: those with the most records.
_PARTITIONS_SHOWN = 24


def peak(content: PageContent) -> float:
    """Return the highest number of records written per second in any interval."""
    found = (each.records_written for each in content.timeline.intervals.values())
    return max(found, default=0) * 1000 / content.timeline.width_ms


def timeline(content: PageContent) -> Content:
    line = content.timeline
    return [
        tag(
            "p",
            f"From {time(line.start_of(line.first))}; each step is {duration(line.width_ms)}. "
            "Times are by the driver's clock.",
            class_="soft",
        ),
        tag(
            "div",
            _attempts(content),
            _lanes(content),
            _throughput(content),
            _times(content),
            charts.times_axis(line),
            tag("div", _chooser(content), class_="x chooser"),
            class_="charts",
            id="charts",
        ),
        tag("div", class_="card detail", id="detail", role="status", hidden=True),
        tag("details", tag("summary", "Show as a table"), _as_table(content)),
    ]


def _attempts(content: PageContent) -> Markup:
    line = content.timeline
    series = [_series(kind, content) for kind in KINDS]
    top = nice(max((sum(each.counts[k] for k in KINDS) for _, each in placed(line)), default=0))
    totals = ", ".join(f"{number(content.kinds[kind])} {kind}" for kind in KINDS)
    about = f"Attempts in each step of {duration(line.width_ms)}, at most {number(top)}: {totals}."
    axis = (number(top), number(top / 2), "0")
    return figure("Attempts", about, line, stacked(series, top), axis, series)


def _lanes(content: PageContent) -> Markup:
    line = content.timeline
    rare = [(kind.capitalize(), kind, kind) for kind in (REDONE, ABORTED, FENCED)]
    rare += [("Started", "start", "other"), ("Moved", "recovery", "other")]
    lanes = []
    for name, kind, class_ in rare:
        values = [(slot, float(each.counts[kind])) for slot, each in placed(line)]
        total = int(sum(value for _, value in values))
        if total or kind in KINDS:
            lanes.append(lane(name, Series(name, class_, values), line, number(total)))
    return tag("div", lanes, class_="lanes")


def _throughput(content: PageContent) -> Markup:
    line = content.timeline
    seconds = line.width_ms / 1000
    found = placed(line)
    written = Series(
        "records written",
        "written",
        [(slot, each.records_written / seconds) for slot, each in found],
    )
    read = Series(
        "offsets read", "read", [(slot, each.offsets_read / seconds) for slot, each in found]
    )
    top = nice(max(value for each in (written, read) for _, value in each.values))
    about = (
        f"Records written and offsets read a second. At most {number(peak(content))} records "
        "were written a second."
    )
    axis = (f"{number(top)}/s", f"{number(top / 2)}/s", "0")
    return figure(
        "Throughput", about, line, [bars(written, top), ticks(read, top)], axis, [written, read]
    )


def _times(content: PageContent) -> Markup:
    line = content.timeline
    found = [(slot, each) for slot, each in placed(line) if each.times]
    half = Series("median", "half", [(slot, each.times.at(0.5)) for slot, each in found])
    most = Series("95%", "most", [(slot, each.times.at(0.95)) for slot, each in found])
    top = nice(max((value for _, value in most.values), default=0))
    times = content.times
    about = (
        f"Duration of committed attempts: median {duration(times.at(0.5))}, 95% at most "
        f"{duration(times.at(0.95))}, longest {duration(times.longest_ms)}."
    )
    axis = (duration(top), duration(top / 2), "0")
    return figure(
        "Duration of an attempt",
        about,
        line,
        [bars(most, top), bars(half, top)],
        axis,
        [half, most],
    )


def _chooser(content: PageContent) -> Markup:
    return tag(
        "label",
        tag("span", "Show one step"),
        tag(
            "input",
            type="range",
            id="chooser",
            min=0,
            max=charts.slots(content.timeline) - 1,
            value=0,
            step=1,
        ),
        class_="script",
        hidden=True,
    )


def _as_table(content: PageContent) -> Markup:
    line = content.timeline
    seconds = line.width_ms / 1000
    rows = [
        row(
            time(line.start_of(line.first + slot)),
            *(number(each.counts[kind]) for kind in KINDS),
            f"{number(each.offsets_read / seconds)}/s",
            f"{number(each.records_written / seconds)}/s",
            duration(each.times.at(0.5)) if each.times else "",
            duration(each.times.at(0.95)) if each.times else "",
        )
        for slot, each in placed(line)
    ]
    heads = ("from", *KINDS, "read", "written", "median", "95%")
    return table("Timeline", heads, rows)


def _series(kind: str, content: PageContent) -> Series:
    found = placed(content.timeline)
    return Series(kind, kind, [(slot, float(each.counts[kind])) for slot, each in found])


def intervals(content: PageContent) -> dict[str, Any]:
    """Return the texts that page.js shows when a reader selects an interval, for each interval."""
    sources, targets = _busiest(content.sources), _busiest(content.targets)
    line = content.timeline
    return {
        "sources": [f"{cut(tp.topic, 260)}-{tp.partition}" for tp in sources],
        "targets": [f"{cut(tp.topic, 260)}-{tp.partition}" for tp in targets],
        "left": [len(content.sources) - len(sources), len(content.targets) - len(targets)],
        "slots": [
            moment(line.start_of(line.first + slot), line.width_ms)
            for slot in range(charts.slots(line) + 1)
        ],
        "found": {
            str(slot): _point_text(each, line.width_ms, sources, targets)
            for slot, each in placed(line)
        },
    }


def _point_text(
    each: Interval, width_ms: int, sources: list[TopicPartition], targets: list[TopicPartition]
) -> list[Any]:
    counts = ", ".join(f"{number(each.counts[kind])} {kind}" for kind in KINDS if each.counts[kind])
    others = ", ".join(
        counted(count, kind)
        for kind, count in sorted(each.counts.items())
        if kind not in KINDS and count
    )
    took = (
        f"took {duration(each.times.at(0.5))} (median), 95% at most "
        f"{duration(each.times.at(0.95))}, longest {duration(each.times.longest_ms)}"
        if each.times
        else ""
    )
    seconds = width_ms / 1000
    moved = (
        f"{number(each.offsets_read)} offsets read, {number(each.records_written)} records written "
        f"({number(each.records_written / seconds)}/s)"
        if each.times
        else ""
    )
    notable = sum(each.counts[kind] for kind in (REDONE, ABORTED, FENCED))
    texts = [text for text in (counts, others, moved, took) if text]
    return [texts, _spans(each.sources, sources), _spans(each.targets, targets), notable]


def _spans(spans: Spans, shown: Iterable[TopicPartition]) -> list[list[int]]:
    return [
        [place, spans[tp].first, spans[tp].last] for place, tp in enumerate(shown) if tp in spans
    ]


def _busiest(spans: Spans) -> list[TopicPartition]:
    most = sorted(spans, key=lambda tp: -spans[tp].count)[:_PARTITIONS_SHOWN]
    return sorted(most)
