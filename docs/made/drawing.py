"""A timeline as plain SVG: lanes of boxes, arrows between boxes, a legend. No script, no font of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

LEFT, RIGHT, TOP = 132.0, 16.0, 34.0  # px around the lanes
LANE, BOX = 44.0, 26.0  # px from lane to lane, of a box
WIDTH, LETTER, LEGEND = 960.0, 6.3, 22.0  # px of the picture, of a letter of its text, of a line of the legend
LEAST = 3.0  # px of the shortest box
INK, PALE, PAPER = "#263238", "#90a4ae", "#ffffff"


@dataclass(frozen=True)
class Box:
    """Something that takes time.

    Attributes:
        lane: name of its lane.
        start_us, end_us: when.
        color: of its inside.
        label: written into it where it fits.
        about: what a pointer on it is given.
        strong: drawn with a thick rim.
        slack_us: how much later it may start, drawn as a pale strip behind its end.
    """

    lane: str
    start_us: float
    end_us: float
    color: str
    label: str = ""
    about: str = ""
    strong: bool = False
    slack_us: float = 0.0


@dataclass(frozen=True)
class Arrow:
    """A constraint between two boxes, by their places in the drawing; `from_start`: it leaves the box's start."""

    source: int
    target: int
    color: str
    from_start: bool = False


@dataclass(frozen=True)
class Drawing:
    """A picture.

    Attributes:
        title: what it shows, for readers who do not see it.
        lanes: names from top to bottom; "" leaves a gap.
        boxes, arrows: what is drawn, in this order.
        legend: (color, meaning) in lines below; "" for words only.
    """

    title: str
    lanes: tuple[str, ...]
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...] = ()
    legend: tuple[tuple[tuple[str, str], ...], ...] = ()

    def svg(self) -> str:
        """The picture as text."""
        height = TOP + LANE * len(self.lanes) + LEGEND * len(self.legend) + 8
        heads = _heads(sorted({arrow.color for arrow in self.arrows}))
        return picture(self.title, height, [
            *heads, *self._ruler(), *self._lane_names(), *self._boxes(), *self._arrows(), *self._legend(),
        ])  # fmt: skip

    def _x(self, us: float) -> float:
        return LEFT + us / self._last_us() * (WIDTH - LEFT - RIGHT)

    def _last_us(self) -> float:
        return max(box.end_us + box.slack_us for box in self.boxes)

    def _y(self, lane: str) -> float:
        return TOP + LANE * self.lanes.index(lane)

    def _ruler(self) -> Iterator[str]:
        last = self._last_us()
        every = 10.0 ** (len(str(int(last))) - 1)
        every = every / 2 if last / every < 4 else every
        bottom = TOP + LANE * len(self.lanes)
        for tick in range(int(last / every) + 1):
            x = self._x(tick * every)
            yield f'<line x1="{x:.1f}" y1="{TOP - 8:g}" x2="{x:.1f}" y2="{bottom:g}" stroke="#eceff1"/>'
            yield text(x, TOP - 14, f"{tick * every:g} us", color=PALE, anchor="middle")

    def _lane_names(self) -> Iterator[str]:
        for lane in filter(None, self.lanes):
            y = self._y(lane) + BOX / 2
            yield text(LEFT - 10, y + 4, lane, anchor="end")
            yield f'<line x1="{LEFT:g}" y1="{y:.1f}" x2="{WIDTH - RIGHT:g}" y2="{y:.1f}" stroke="#cfd8dc"/>'

    def _boxes(self) -> Iterator[str]:
        for box in self.boxes:
            x, y, end = self._x(box.start_us), self._y(box.lane), self._x(box.end_us)
            if box.slack_us > 0:
                late = self._x(box.end_us + box.slack_us)
                yield rectangle(end, y + BOX / 2 - 3, late - end, 6, box.color, opacity=0.35)
            rim = 'stroke="#b71c1c" stroke-width="2.5"' if box.strong else f'stroke="{INK}" stroke-width="0.5"'
            wide = max(end - x, LEAST)
            yield rectangle(x, y, wide, BOX, box.color, rim=rim, about=box.about)
            if len(box.label) * LETTER < wide - 4:
                yield text(x + wide / 2, y + BOX / 2 + 4, box.label, anchor="middle")

    def _arrows(self) -> Iterator[str]:
        for arrow in self.arrows:
            source, target = self.boxes[arrow.source], self.boxes[arrow.target]
            x1, x2 = self._x(source.start_us if arrow.from_start else source.end_us), self._x(target.start_us)
            down = self._y(target.lane) > self._y(source.lane)
            y1, y2 = self._y(source.lane) + (BOX if down else 0), self._y(target.lane) + (0 if down else BOX)
            if source.lane == target.lane:
                y1 = y2 = self._y(source.lane) + BOX / 2
            yield (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{arrow.color}" '
                   f'stroke-width="1.3" marker-end="url(#{_head(arrow.color)})"/>')  # fmt: skip

    def _legend(self) -> Iterator[str]:
        y = TOP + LANE * len(self.lanes)
        for line in self.legend:
            x = LEFT
            for color, meaning in line:
                if color:
                    yield rectangle(x, y, 12, 12, color, rim=f'stroke="{INK}" stroke-width="0.5"')
                    x += 18
                yield text(x, y + 10, meaning)
                x += LETTER * len(meaning) + 22
            y += LEGEND


def picture(title: str, height: float, parts: Sequence[str]) -> str:
    """An SVG file of these parts on paper; `title` is for readers who do not see it."""
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height:g}" role="img" '
            f'font-family="sans-serif" font-size="11">')  # fmt: skip
    return "\n".join(
        [head, f"<title>{escape(title)}</title>", rectangle(0, 0, WIDTH, height, PAPER), *parts, "</svg>", ""]
    )


def _heads(colors: Sequence[str]) -> Iterator[str]:
    for color in colors:
        yield (f'<marker id="{_head(color)}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="6" markerHeight="6" '
               f'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{color}"/></marker>')  # fmt: skip


def _head(color: str) -> str:
    return f"head-{color.lstrip('#')}"


def rectangle(
    x: float, y: float, width: float, height: float, color: str, *, rim: str = "", opacity: float = 1.0, about: str = ""
) -> str:
    """A filled one, with what a pointer on it is given."""
    sentences = f"<title>{escape(about)}</title>" if about else ""
    return (f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{color}" '
            f'fill-opacity="{opacity:g}" {rim}>{sentences}</rect>')  # fmt: skip


def text(x: float, y: float, words: str, *, color: str = INK, anchor: str = "start") -> str:
    """One line of words."""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}" text-anchor="{anchor}">{escape(words)}</text>'
