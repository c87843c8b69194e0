"""The shapes of charts, as paths for an SVG that stretches to the available width.

Each interval of the timeline is one unit on the x axis, so all charts of a page align. Text inside
the SVG would be stretched, too, so axes and legends are HTML.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eos.report.timeline import Interval, Timeline
from eos.report.units import moment

HEIGHT = 100
_SLOTS_MIN = 12  # intervals of a chart; with fewer, the bars of a short run would be very wide
_WIDE = 0.86


@dataclass(frozen=True, slots=True)
class Series:
    """The values of one chart line or bar: (number of the interval in the chart, value).

    `shade` is the CSS class that sets the colour. A value is `width` intervals wide."""

    name: str
    shade: str
    values: Sequence[tuple[int, float]]
    width: int = 1


@dataclass(frozen=True, slots=True)
class Shape:
    """A path of an SVG, with its CSS classes."""

    shade: str
    path: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart. `axis` has its top, middle and bottom label.

    `about` describes it. A chart without shapes shows this text alone."""

    title: str
    about: str
    shapes: Sequence[Shape]
    axis: tuple[str, str, str]
    legend: Sequence[Series] = ()


@dataclass(frozen=True, slots=True)
class Lane:
    """A row with a mark in each interval that has an event, for rare events.

    In a bar chart, one event among thousands of attempts could not be seen."""

    name: str
    total: str
    shapes: Sequence[Shape]


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


def highest(series: Iterable[Series]) -> float:
    """Return the largest value, from which `nice` makes the end of an axis."""
    return max((value for each in series for _, value in each.values), default=0.0)


def highest_sum(series: Iterable[Series]) -> float:
    """Return the largest sum of an interval's values, for stacked bars."""
    sums: dict[int, float] = {}
    for each in series:
        for slot, value in each.values:
            sums[slot] = sums.get(slot, 0.0) + value
    return max(sums.values(), default=0.0)


def stacked(series: Sequence[Series], top: float) -> list[Shape]:
    """Return the shapes of stacked bars, the first series at the bottom. `top` is the axis' end."""
    base: dict[int, float] = {}
    shapes: list[Shape] = []
    for each in series:
        steps = []
        for slot, value in each.values:
            if value > 0:
                low = base.get(slot, 0.0)
                steps.append(_bar(slot, low / top, (low + value) / top, each.width))
                base[slot] = low + value
        shapes += _shape(steps, each.shade)
    return shapes


def bars(each: Series, top: float) -> list[Shape]:
    return stacked([each], top)


def ticks(each: Series, top: float) -> list[Shape]:
    """Return the shape of a short horizontal line in each interval, at the height of its value."""
    steps = [f"M{slot} {_y(value / top)}h{_WIDE}" for slot, value in each.values if value > 0]
    return _shape(steps, f"{each.shade} tick")


def lane(each: Series, total: str) -> Lane:
    most = highest([each])
    steps = [_mark(slot, value / most) for slot, value in each.values if value > 0]
    return Lane(each.name, total, _shape(steps, f"{each.shade} mark"))


def times_axis(timeline: Timeline) -> list[str]:
    count = slots(timeline)
    width_ms = timeline.width_ms * (1 if count < 60 else 10)
    places = (timeline.first + round(count * share) for share in (0, 0.25, 0.5, 0.75, 1))
    return [moment(timeline.start_of(place), width_ms) for place in places]


def _bar(slot: int, low: float, high: float, width: int) -> str:
    wide = f"{width - 1 + _WIDE:g}"
    return f"M{slot} {_y(low)}h{wide}V{_y(high)}h-{wide}z"


def _mark(slot: int, share: float) -> str:
    """Return the path of a mark whose height grows with `share`, with a minimum that is visible."""
    height = round(3 + 6 * share, 1)
    return f"M{slot} {9.5 - height:g}h{_WIDE}v{height:g}h-{_WIDE}z"


def _shape(steps: Sequence[str], shade: str) -> list[Shape]:
    return [Shape(shade, "".join(steps))] if steps else []


def _y(share: float) -> str:
    """Return the y coordinate for a share of the axis from 0 to 1.

    A share above 0 is raised to a minimum, so that one of thousands can be seen."""
    return f"{HEIGHT * (1 - max(share, 0.008 if share else 0)):.2f}".rstrip("0").rstrip(".")
