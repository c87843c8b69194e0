"""Bars side by side as SVG that stands by itself in a page of docs, in light and in dark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.svg import Shape, picture, shape

from eos.report.charts import nice

_WIDTH, _NAMES, _NUMBERS, _GAP = 860, 170, 56, 24
_TOP, _ROW, _BAR, _FOOT = 74, 30, 18, 20
_EMPHASIS = "two"


@dataclass(frozen=True, slots=True)
class Bar:
    value: float
    least: float
    most: float
    text: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One figure of all rows. A row without it has None."""

    title: str
    bars: Sequence[Bar | None]


@dataclass(frozen=True, slots=True)
class BarChart:
    title: str
    rows: Sequence[str]
    panels: Sequence[Panel]
    own: str  # the row in another colour

    def svg(self) -> str:
        height = _TOP + _ROW * len(self.rows) + _FOOT
        return picture(
            f"{self.title}: {', '.join(panel.title for panel in self.panels)}",
            _WIDTH,
            height,
            [
                shape("text", self.title, class_="title", x=20, y=28),
                *(
                    shape("text", name, x=_NAMES, y=self._middle(at), dy="4", text_anchor="end")
                    for at, name in enumerate(self.rows)
                ),
                *(each for at, panel in enumerate(self.panels) for each in self._panel(panel, at)),
            ],
        )

    @staticmethod
    def _middle(at: int) -> float:
        return _TOP + _ROW * at + _ROW / 2

    def _panel(self, panel: Panel, number: int) -> Iterator[Shape]:
        room = (_WIDTH - _NAMES - 20) / len(self.panels)
        left = _NAMES + 12 + number * room
        width = room - _NUMBERS - _GAP
        yield shape("text", panel.title, x=f"{left:.1f}", y=_TOP - 14)
        most = nice(max((bar.most for bar in panel.bars if bar), default=1.0))
        for at, (name, bar) in enumerate(zip(self.rows, panel.bars, strict=True)):
            if bar is None:
                continue
            y, shade = self._middle(at), _EMPHASIS if name == self.own else "one"
            x, low, high = (left + each / most * width for each in (bar.value, bar.least, bar.most))
            yield shape(
                "rect",
                about=f"{name}, {panel.title}: {bar.text}",
                class_=f"{shade} point",
                x=f"{left:.1f}",
                y=y - _BAR / 2,
                width=f"{x - left:.1f}",
                height=_BAR,
                rx=2,
            )
            yield shape("path", class_="range", d=f"M{low:.1f} {y}H{high:.1f}")
            yield shape("text", bar.text, x=f"{high + 6:.1f}", y=y, dy="4")
