"""Small charts as SVG text: they take their colours and fonts from the style sheet of the page that they stand in.

A drawing library would fix both, so its charts would be unreadable on a dark page, and each would bring a hundred times
more text.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

_WIDTH, _HEIGHT = 380.0, 270.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 22.0, 12.0, 44.0


@dataclass(frozen=True)
class Axis:
    """One axis of a chart.

    Parameters
    ----------
    label : str
    low, high : float
        The range that is shown.
    ticks : sequence of pairs
        Values with their texts.
    is_log : bool
        Whether the scale is logarithmic.
    """

    label: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    is_log: bool = False

    def share(self, value: float) -> float:
        """Return where a value lies: 0 at the low end, 1 at the high one. Values outside are moved to the end."""
        low, high = self.low, self.high
        value = min(max(value, low), high)
        if self.is_log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return (value - low) / (high - low)


@dataclass
class Chart:
    """A chart that is built up line by line.

    Parameters
    ----------
    x, y : Axis
    title, description : str
        The text alternative: what the chart is, and what it shows.
    """

    x: Axis
    y: Axis
    title: str
    description: str
    _parts: list[str] = field(default_factory=list)

    def line(self, xs: Iterable[float], ys: Iterable[float], kind: str = "main") -> None:
        """Draw a line through points. ``kind`` is ``main``, ``other`` or ``guess``, which the style sheet colours."""
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in map(self._place, xs, ys))
        self._parts.append(f'<polyline class="line-{kind}" points="{points}"/>')

    def area(self, xs: Sequence[float], low: Sequence[float], high: Sequence[float]) -> None:
        """Fill the area between two lines."""
        places = [*map(self._place, xs, high), *map(self._place, reversed(xs), reversed(low))]
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
        self._parts.append(f'<polygon class="area" points="{points}"/>')

    def point(self, x: float, y: float) -> None:
        """Mark a point."""
        a, b = self._place(x, y)
        self._parts.append(f'<circle class="point" cx="{a:.1f}" cy="{b:.1f}" r="4"/>')

    def text(self, x: float, y: float, text: str, *, anchor: str = "start", dx: float = 0, dy: float = 0) -> None:
        """Write a text at a point, moved by ``dx`` and ``dy``."""
        a, b = self._place(x, y)
        place = f'x="{a + dx:.1f}" y="{b + dy:.1f}" text-anchor="{anchor}"'
        self._parts.append(f'<text class="note" {place}>{escape(text)}</text>')

    def svg(self) -> str:
        """Return the chart as an SVG element."""
        name = "-".join(re.findall(r"[a-z0-9]+", self.title.lower()))  # No two charts of a page have the same title.
        box = f"{_LEFT:g} {_TOP:g} {_WIDTH - _RIGHT:g} {_HEIGHT - _BOTTOM:g}"
        head = (
            f'<svg class="chart" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" data-box="{box}" role="img" '
            f'aria-labelledby="{name}-t {name}-d">'
            f'<title id="{name}-t">{escape(self.title)}</title><desc id="{name}-d">{escape(self.description)}</desc>'
        )
        return head + "".join([*self._grid(), *self._parts]) + "</svg>"

    def _place(self, x: float, y: float) -> tuple[float, float]:
        across = _LEFT + self.x.share(x) * (_WIDTH - _LEFT - _RIGHT)
        return across, _HEIGHT - _BOTTOM - self.y.share(y) * (_HEIGHT - _TOP - _BOTTOM)

    def _grid(self) -> Iterable[str]:
        right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
        for value, text in self.x.ticks:
            a, _ = self._place(value, self.y.low)
            yield f'<line class="grid" x1="{a:.1f}" y1="{_TOP:g}" x2="{a:.1f}" y2="{bottom:g}"/>'
            yield f'<text class="tick" x="{a:.1f}" y="{bottom + 16:g}" text-anchor="middle">{escape(text)}</text>'
        for value, text in self.y.ticks:
            _, b = self._place(self.x.low, value)
            yield f'<line class="grid" x1="{_LEFT:g}" y1="{b:.1f}" x2="{right:g}" y2="{b:.1f}"/>'
            yield f'<text class="tick" x="{_LEFT - 6:g}" y="{b + 4:.1f}" text-anchor="end">{escape(text)}</text>'
        middle, centre = (_LEFT + right) / 2, (_TOP + bottom) / 2
        below = f'x="{middle:g}" y="{_HEIGHT - 8:g}" text-anchor="middle"'
        yield f'<text class="axis" {below}>{escape(self.x.label)}</text>'
        turned = f'transform="rotate(-90 13 {centre:g})" text-anchor="middle"'
        yield f'<text class="axis" x="13" y="{centre:g}" {turned}>{escape(self.y.label)}</text>'


def round_ticks(low: float, high: float, most: int = 6) -> list[tuple[float, str]]:
    """Return ticks at round numbers in a range."""
    rough = (high - low) / most or 1.0
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * k for k in (1, 2, 2.5, 5, 10) if size * k >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    ticks = [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]
    return [(tick, f"{tick:.6g}") for tick in ticks]


def power_ticks(low: float, high: float, most: int = 6) -> list[tuple[float, str]]:
    """Return ticks at powers of ten in a range, as 10⁻⁶."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    step = max(1, math.ceil((last - first + 1) / most))
    return [(10.0**k, "1" if k == 0 else f"10{superscript(k)}") for k in range(first, last + 1, step)]


def superscript(number: int) -> str:
    """Return a whole number as superscript digits."""
    return str(number).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
