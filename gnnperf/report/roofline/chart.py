"""A chart as SVG inside a page: axes, lines, dots, words. Colors are the page's CSS classes, light and dark."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 860, 460
LEFT, RIGHT, TOP, BOTTOM = 78, 16, 14, 46  # margins, for the numbers
CHAR_WIDTH, LINE_HEIGHT = 7.0, 14.0  # of labels of 12 px
PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class Axis:
    """From `low` to `high`, logarithmic; values outside are drawn at its ends."""

    low: float
    high: float
    title: str

    def at(self, value: float) -> float:
        """0 at the low end, 1 at the high one."""
        low, high, position = (math.log10(max(each, self.low)) for each in (self.low, self.high, value))
        return min(max((position - low) / (high - low), 0.0), 1.0)

    def ticks(self) -> list[float]:
        """Decades."""
        decades = range(math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1)
        return [10.0**decade for decade in decades]


@dataclass
class Chart:
    """Marks are drawn in the order they are added."""

    x: Axis
    y: Axis
    marks: list[str] = field(default_factory=list)
    labels: list[tuple[float, float, float]] = field(default_factory=list)  # begin, end, height of texts among marks

    def line(self, points: Sequence[tuple[float, float]], css: str) -> None:
        """Through these points, in the axes' units."""
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in (self._at(*point) for point in points))
        self.marks.append(f'<polyline class="{css}" points="{places}"/>')

    def dot(self, x: float, y: float, css: str, title: str) -> None:
        """A point that states `title` under the mouse."""
        left, top = self._at(x, y)
        self.marks.append(
            f'<circle class="{css}" cx="{left:.1f}" cy="{top:.1f}" r="5"><title>{escape(title)}</title></circle>'
        )

    def words(self, x: float, y: float, text: str, css: str = "", *, below: bool = False) -> None:
        """Text that ends (near the right margin) or begins at a point."""
        left, top = self._at(x, y)
        anchor, shift = ("end", -7) if left > WIDTH - 240 else ("start", 7)
        left, top, width = left + shift, top + (15 if below else -6), CHAR_WIDTH * len(text)
        begin = left - width if anchor == "end" else left
        while any(abs(top - y) < LINE_HEIGHT and begin < b and a < begin + width for a, b, y in self.labels):
            top += LINE_HEIGHT  # below the label that is there
        self.labels.append((begin, begin + width, top))
        self.marks.append(
            f'<text class="{css}" x="{left:.1f}" y="{top:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def svg(self, label: str) -> str:
        """The whole picture; `label` is read aloud instead of it."""
        body = "\n".join([*self._frame(), *self.marks])
        size = f'class="chart" viewBox="0 0 {WIDTH} {HEIGHT}"'
        return f'<svg {size} role="img" aria-label="{escape(label)}">\n{body}\n</svg>'

    def _at(self, x: float, y: float) -> tuple[float, float]:
        return (LEFT + self.x.at(x) * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - self.y.at(y) * (HEIGHT - TOP - BOTTOM))

    def _frame(self) -> list[str]:
        result = []
        for value in self.x.ticks():
            left, low = self._at(value, self.y.low)
            result.append(f'<line class="grid" x1="{left:.1f}" y1="{TOP}" x2="{left:.1f}" y2="{low:.1f}"/>')
            result.append(f'<text x="{left:.1f}" y="{low + 18:.1f}" text-anchor="middle">{number_text(value)}</text>')
        for value in self.y.ticks():
            left, top = self._at(self.x.low, value)
            result.append(f'<line class="grid" x1="{left:.1f}" y1="{top:.1f}" x2="{WIDTH - RIGHT}" y2="{top:.1f}"/>')
            result.append(f'<text x="{left - 8:.1f}" y="{top + 4:.1f}" text-anchor="end">{number_text(value)}</text>')
        center, middle = (LEFT + WIDTH - RIGHT) / 2, TOP + (HEIGHT - TOP - BOTTOM) / 2
        return [
            *result,
            f'<text x="{center}" y="{HEIGHT - 8}" text-anchor="middle">{escape(self.x.title)}</text>',
            f'<text transform="rotate(-90 16 {middle})" x="16" y="{middle}" text-anchor="middle">'
            f"{escape(self.y.title)}</text>",
        ]


def number_text(value: float) -> str:
    """Three digits with a prefix: 1.5e12 as "1.5 T"."""
    scale, prefix = next((pair for pair in PREFIXES if abs(value) >= pair[0]), (1.0, ""))
    return f"{value / scale:.3g}{' ' if prefix else ''}{prefix}"


def decades(values: Sequence[float]) -> tuple[float, float]:
    """The powers of ten around values above 0, a decade at least."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return 10.0**low, 10.0 ** max(high, low + 1)
