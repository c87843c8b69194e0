"""How are charts drawn as SVG that stretches to the available width?

Each x is an interval of the timeline, so all charts of a page align. Text in the SVG would be
stretched, too, so axes and legends are HTML.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eos.report.markup import Content, Markup, tag
from eos.report.timeline import Interval, Timeline
from eos.report.units import moment

_HEIGHT = 100
_SLOTS_MIN = 12  # wider bars would fill a short run's chart
_WIDE = 0.86


@dataclass(frozen=True, slots=True)
class Series:
    """Values by the interval's place in the chart. `class_` sets the colour."""

    name: str
    class_: str
    values: Sequence[tuple[int, float]]


def slots(timeline: Timeline) -> int:
    return max(timeline.length, _SLOTS_MIN)


def placed(timeline: Timeline) -> list[tuple[int, Interval]]:
    first = timeline.first
    return [(place - first, each) for place, each in sorted(timeline.intervals.items())]


def nice(value: float) -> float:
    """Return the end of an axis: the next of 1, 2, 2.5, 5 or 10 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value * 0.999)


def stacked(series: Sequence[Series], top: float) -> list[Markup]:
    """Return stacked bars; the first series is at the bottom."""
    base: dict[int, float] = {}
    shapes = []
    for each in series:
        steps = []
        for slot, value in each.values:
            if value > 0:
                low = base.get(slot, 0.0)
                steps.append(_bar(slot, low / top, (low + value) / top))
                base[slot] = low + value
        shapes.append(_path(steps, each.class_))
    return shapes


def bars(each: Series, top: float) -> Markup:
    steps = [_bar(slot, 0, value / top) for slot, value in each.values if value > 0]
    return _path(steps, each.class_)


def ticks(each: Series, top: float) -> Markup:
    """Return a line across each interval, at its value."""
    steps = [f"M{slot} {_y(value / top)}h{_WIDE}" for slot, value in each.values if value > 0]
    return _path(steps, f"{each.class_} tick")


def figure(
    title: str,
    about: str,
    timeline: Timeline,
    shapes: Iterable[Markup],
    axis: tuple[str, str, str],
    legend: Sequence[Series] = (),
) -> Markup:
    """Return a chart. `axis` has its top, middle and bottom label; `about` describes the chart."""
    lines = (tag("path", d=f"M0 {y}H{slots(timeline)}", class_="grid") for y in (0.5, 50, 99.5))
    return tag(
        "figure",
        tag(
            "figcaption",
            tag("strong", title),
            [tag("span", each.name, class_=f"key {each.class_}") for each in legend],
        ),
        tag(
            "div",
            tag("div", [tag("span", label) for label in axis], class_="y", aria_hidden="true"),
            picture(about, timeline, [*lines, *shapes], _HEIGHT),
            class_="plot",
        ),
        class_="chart",
    )


def lane(name: str, each: Series, timeline: Timeline, total: str) -> Markup:
    """Return a row of marks for rare events, which a bar among thousands would hide."""
    most = max((value for _, value in each.values), default=0)
    steps = [_mark(slot, value / most) for slot, value in each.values if value > 0]
    about = f"{name}: {total}"
    return tag(
        "div",
        tag("span", name, class_="name"),
        picture(about, timeline, [_path(steps, f"{each.class_} mark")], 10),
        tag("span", total, class_="total"),
        class_="lane",
    )


def picture(about: str, timeline: Timeline, shapes: Content, height: int) -> Markup:
    width = slots(timeline)
    cursor = tag("rect", class_="cursor", x=0, y=0, width=1, height=height, visibility="hidden")
    return tag(
        "svg",
        tag("title", about),
        shapes,
        cursor,
        viewBox=f"0 0 {width} {height}",
        preserveAspectRatio="none",
        role="img",
    )


def times_axis(timeline: Timeline) -> Markup:
    count = slots(timeline)
    labels = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        at = timeline.start_of(timeline.first + round(count * share))
        labels.append(tag("span", moment(at, timeline.width_ms * (1 if count < 60 else 10))))
    return tag("div", labels, class_="x", aria_hidden="true")


def _bar(slot: int, low: float, high: float) -> str:
    return f"M{slot} {_y(low)}h{_WIDE}V{_y(high)}h-{_WIDE}z"


def _mark(slot: int, share: float) -> str:
    """Return a mark whose height shows the count, with a visible minimum."""
    height = round(3 + 6 * share, 1)
    return f"M{slot} {9.5 - height:g}h{_WIDE}v{height:g}h-{_WIDE}z"


def _path(steps: Sequence[str], class_: str) -> Markup:
    return tag("path", d="".join(steps), class_=class_) if steps else Markup("")


def _y(share: float) -> str:
    """Return the y of a share, at least slightly above the bottom so that 1 in thousands shows."""
    return f"{_HEIGHT * (1 - max(share, 0.008 if share else 0)):.2f}".rstrip("0").rstrip(".")
