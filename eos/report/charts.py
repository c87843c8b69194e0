"""The drawing of charts as SVG that stretches to the available width.

Each interval of the timeline is one unit on the x axis, so all charts of a page align. Text inside
the SVG would be stretched, too, so axes and legends are HTML.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eos.report.markup import Content, Markup, tag
from eos.report.timeline import Interval, Timeline
from eos.report.units import moment

_HEIGHT = 100
_SLOTS_MIN = 12  # intervals of a chart; with fewer, the bars of a short run would be very wide
_WIDE = 0.86


@dataclass(frozen=True, slots=True)
class Series:
    """The values of one chart line or bar: (number of the interval in the chart, value).

    `class_` is the CSS class, which sets the colour."""

    name: str
    class_: str
    values: Sequence[tuple[int, float]]


def slots(timeline: Timeline) -> int:
    return max(timeline.length, _SLOTS_MIN)


def placed(timeline: Timeline) -> list[tuple[int, Interval]]:
    first = timeline.first
    return [(place - first, each) for place, each in sorted(timeline.intervals.items())]


def nice(value: float) -> float:
    """Return a round upper end of an axis for values up to `value`.

    It is the next of 1, 2, 2.5, 5 or 10 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value * 0.999)


def stacked(series: Sequence[Series], top: float) -> list[Markup]:
    """Return the shapes of stacked bars, the first series at the bottom. `top` is the axis' end."""
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
    """Return the shape of a short horizontal line in each interval, at the height of its value."""
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
    """Return a row with a mark in each interval that has an event, for rare events.

    In a bar chart, one event among thousands of attempts could not be seen."""
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
    """Return the path of a mark whose height grows with `share`, with a minimum that is visible."""
    height = round(3 + 6 * share, 1)
    return f"M{slot} {9.5 - height:g}h{_WIDE}v{height:g}h-{_WIDE}z"


def _path(steps: Sequence[str], class_: str) -> Markup:
    return tag("path", d="".join(steps), class_=class_) if steps else Markup("")


def _y(share: float) -> str:
    """Return the y coordinate for a share of the axis from 0 to 1.

    A share above 0 is raised to a minimum, so that one of thousands can be seen."""
    return f"{_HEIGHT * (1 - max(share, 0.008 if share else 0)):.2f}".rstrip("0").rstrip(".")
