"""Curves as SVG that stands by itself in a page of docs, in light and in dark.

A report's charts (`eos/report/charts.py`) are times beside HTML that has the words; here an x is a
size, mostly over decades, and the words are inside. Colours are the report's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.svg import Shape, picture, shape

from eos.report.charts import nice

_WIDTH, _HEIGHT = 720, 360
_LEFT, _RIGHT, _TOP, _FOOT = 72, 24, 62, 54
_BESIDE = 7  # lines that meet at an x stand beside one another, so that each spread is seen
_SHADES = ("one", "two", "three")


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    least: float
    median: float
    most: float


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    points: Sequence[Point]

    def cell(self, x: float) -> str:
        return ", ".join(
            f"{_digits(p.median)} ({_digits(p.least)} to {_digits(p.most)})"
            for p in self.points
            if p.x == x
        )


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    x: str
    y: str
    lines: Sequence[Line]
    is_log: bool = False  # of y; x is always

    def svg(self) -> str:
        return picture(
            f"{self.title}: {self.y} over {self.x}",
            _WIDTH,
            _HEIGHT,
            [
                shape("text", self.title, class_="title", x=_LEFT, y=26),
                *self._legend(),
                *self._axes(),
                *(each for at, line in enumerate(self.lines) for each in self._drawn(line, at)),
            ],
        )

    def table(self) -> str:
        """The same in Markdown: median, least and most."""
        rows = [["", *(line.name for line in self.lines)], ["---"] * (len(self.lines) + 1)]
        rows += ([_size(x), *(line.cell(x) for line in self.lines)] for x in self._sizes())
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)

    def _sizes(self) -> list[float]:
        return sorted({point.x for line in self.lines for point in line.points})

    def _ends(self) -> tuple[float, float]:
        """Of the y axis."""
        points = [point for line in self.lines for point in line.points]
        most = max((point.most for point in points), default=1.0)
        if self.is_log:
            least = min((point.least for point in points), default=1.0)
            return 10.0 ** math.floor(math.log10(least)), 10.0 ** math.ceil(math.log10(most))
        return 0.0, nice(most)

    def _x(self, value: float) -> float:
        sizes = self._sizes()
        low, high = math.log10(sizes[0]), math.log10(sizes[-1])
        share = (math.log10(value) - low) / (high - low) if high > low else 0.5
        room = _WIDTH - _LEFT - _RIGHT - 60  # the first and the last have words below them
        return _LEFT + 30 + share * room

    def _y(self, value: float) -> float:
        low, high = self._ends()
        if self.is_log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return _HEIGHT - _FOOT - (value - low) / (high - low) * (_HEIGHT - _FOOT - _TOP)

    def _axes(self) -> Iterator[Shape]:
        low, high = self._ends()
        if self.is_log:
            steps = [low * 10**power for power in range(round(math.log10(high / low)) + 1)]
        else:
            parts = 4 if f"{high:e}".startswith("2.0") else 5
            steps = [high * part / parts for part in range(parts + 1)]
        for step in steps:
            y = f"{self._y(step):.1f}"
            yield shape("path", class_="grid", d=f"M{_LEFT} {y}H{_WIDTH - _RIGHT}")
            yield shape("text", f"{step:,g}", x=_LEFT - 8, y=y, dy="4", text_anchor="end")
        foot = _HEIGHT - _FOOT
        for x in self._sizes():
            yield shape("text", _size(x), x=f"{self._x(x):.1f}", y=foot + 20, text_anchor="middle")
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        yield shape("text", self.x, x=middle, y=_HEIGHT - 12, text_anchor="middle")
        up = f"translate(14 {(_TOP + foot) / 2}) rotate(-90)"
        yield shape("text", self.y, transform=up, text_anchor="middle")

    def _legend(self) -> Iterator[Shape]:
        x = float(_LEFT)
        for line, shade in zip(self.lines, _SHADES, strict=False):
            yield shape("rect", class_=f"{shade} point", x=x, y=38, width=12, height=12, rx=2)
            yield shape("text", line.name, x=x + 18, y=48)
            x += 18 + 7 * len(line.name) + 22

    def _drawn(self, line: Line, at: int) -> Iterator[Shape]:
        shade, beside = _SHADES[at], (at - (len(self.lines) - 1) / 2) * _BESIDE
        places = [(self._x(point.x) + beside, point) for point in sorted(line.points, key=_by_x)]
        steps = [f"{x:.1f} {self._y(point.median):.1f}" for x, point in places]
        if steps:
            yield shape("path", class_=f"{shade} curve", d=f"M{'L'.join(steps)}")
        for x, point in places:
            ends = f"M{x:.1f} {self._y(point.least):.1f}V{self._y(point.most):.1f}"
            yield shape("path", class_=f"{shade} spread", d=ends)
            median = f"{self._y(point.median):.1f}"
            about = f"{line.name}, {_size(point.x)}: {_digits(point.median)}"
            yield shape(
                "circle",
                about=about,
                class_=f"{shade} point",
                cx=f"{x:.1f}",
                cy=median,
                r=4,
            )


def _by_x(point: Point) -> float:
    return point.x


def _size(value: float) -> str:
    return f"{value / 1e6:g} million" if value >= 1e6 else f"{value:,.0f}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2f}"
