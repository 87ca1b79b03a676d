"""The roofline of a device as table, words and log-log picture: on the terminal, as an HTML page, and as CSV."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gnnperf.analytic import Roof
from gnnperf.core import csv_text, untrusted, write_text
from gnnperf.report.console import show
from gnnperf.report.page import markup
from gnnperf.report.roofline.chart import Axis, Chart, decades, number_text
from gnnperf.report.roofline.points import MEASURED, PREDICTED, DevicePicture, Point
from gnnperf.report.text import share_text, time_text

SUFFIXES = (".html", ".csv")
NUM_COLORS = 8  # classes c0, c1, ... of report.css
HEADS = ("family, rate", "", "nodes", "time, all ranks", "FLOP/byte", "bound", "FLOP/s", "byte/s", "of sustained",
         "of peak")  # fmt: skip
DRAWN = '<p class="note">filled: predicted; hollow: measured; solid: sustained roofs; dashed: peaks</p>'
NOTHING = "no op's node has FLOPs, bytes and a latency: record with shapes (record_shapes=True)"
ABOVE = "Above 100 %: the bytes came from caches, of which these roofs know nothing."
LESS_INTENSE, MORE_INTENSE = 0.1, 10.0  # of the ridges: how far the picture reaches at least


def print_pictures(title: str, pictures: Sequence[DevicePicture], written: Path | None) -> None:
    """On the terminal, with the file that was written. Names come from others, so nothing is read as markup."""
    parts = list[RenderableType]([Text(title, style="dim")])
    for picture in pictures:
        table = Table(box=None, pad_edge=False)
        for place, head in enumerate(HEADS):
            table.add_column(head, justify="right" if place else "left", no_wrap=place > 0)
        for row in _rows(picture):
            table.add_row(*map(Text, row))
        sentences = (Text(f"  {line}", style="dim") for line in _lines(picture))
        parts += [Text(picture.roofs.device.name, style="bold"), *sentences, table]
    if written is not None:
        parts.append(Text(f"wrote {written}", style="green"))
    show(Group(*parts))


def write(path: Path, title: str, pictures: Sequence[DevicePicture]) -> None:
    """HTML (one file without scripts or references, light and dark) or CSV by the suffix, whole or not at all."""
    is_page = path.suffix == ".html"
    content = markup.page(title, *map(_section, enumerate(pictures))) if is_page else csv_text(table_of(pictures))
    with untrusted.reading(path, "cannot be written"):
        write_text(path, content)


def _section(numbered: tuple[int, DevicePicture]) -> markup.Markup:
    number, picture = numbered
    name, rows = picture.roofs.device.name, [tuple(map(markup.Td, row)) for row in _rows(picture)]
    table = markup.table(name, [head or "\N{NO-BREAK SPACE}" for head in HEADS], rows)
    return markup.section(f"sheet-{number}", name, *map(markup.note, _lines(picture)), _drawn(picture), table)


def table_of(pictures: Sequence[DevicePicture]) -> pd.DataFrame:
    """One row per point, all quantities in the units that their names end with; a peak that is not known is empty."""
    return pd.DataFrame(
        [_record(one, kind, point) for one in pictures for kind, points in one.points.items() for point in points]
    )


def _lines(picture: DevicePicture) -> tuple[str, ...]:
    roofs = picture.roofs
    used = dict.fromkeys(point.rate for points in picture.points.values() for point in points)
    sentences = [f"memory: {_roof_text(roofs.bandwidth, 'byte/s')}"]
    sentences += [f"{key}: {_roof_text(roofs.flops[key], 'FLOP/s')}; limits from {roofs.ridge(key):.3g} FLOP/byte on"
             for key in used]  # fmt: skip
    sentences += [f"{kind}: {count:,} ops' nodes without FLOPs, bytes or latency are in no row"
             for kind, count in picture.num_left_out.items() if count]  # fmt: skip
    sentences += [] if used else [NOTHING]
    above = any(point.share_of_sustained > 1 for points in picture.points.values() for point in points)
    return (*sentences, ABOVE) if above else tuple(sentences)


def _roof_text(roof: Roof, unit: str) -> str:
    peak = "peak not known (calibrated)" if roof.peak is None else f"peak {number_text(roof.peak)}{unit}"
    return f"sustained {number_text(roof.sustained)}{unit}, {peak}"


def _rows(picture: DevicePicture) -> list[tuple[str, ...]]:
    return [
        (f"{point.family}, {point.rate}", kind, f"{point.num_nodes:,}", time_text(point.time_us),
         f"{point.intensity:.3g}", point.bound, number_text(point.flops_per_s), number_text(point.bytes_per_s),
         share_text(point.share_of_sustained), "unknown" if (peak := point.share_of_peak) is None else share_text(peak))
        for kind, points in picture.points.items() for point in points
    ]  # fmt: skip


def _record(picture: DevicePicture, kind: str, point: Point) -> dict[str, object]:
    rate, bandwidth = picture.roofs.flops[point.rate], picture.roofs.bandwidth
    return {
        "device": picture.roofs.device.name, "latencies": kind, "family": point.family, "rate": point.rate,
        "num_nodes": point.num_nodes, "flops": point.flops, "bytes": point.moved_bytes, "latency_us": point.time_us,
        "flops_per_byte": point.intensity, "flops_per_s": point.flops_per_s, "bytes_per_s": point.bytes_per_s,
        "bound": point.bound, "share_of_sustained_roof": point.share_of_sustained,
        "share_of_peak_roof": point.share_of_peak, "sustained_flops_per_s": rate.sustained,
        "peak_flops_per_s": rate.peak, "sustained_bytes_per_s": bandwidth.sustained,
        "peak_bytes_per_s": bandwidth.peak,
    }  # fmt: skip


def _drawn(picture: DevicePicture) -> str:
    """Log-log; families that compute nothing have no place on it and are in the table only."""
    drawn = {kind: [p for p in points if p.flops > 0] for kind, points in picture.points.items()}
    every = [point for points in drawn.values() for point in points]
    if not every:
        return ""
    roofs, rates = picture.roofs, list(dict.fromkeys(point.rate for point in every))
    ridges = [roofs.ridge(key) for key in rates]
    x = decades([*(p.intensity for p in every), LESS_INTENSE * min(ridges), MORE_INTENSE * max(ridges)])
    tops = [roofs.flops[key].peak or roofs.flops[key].sustained for key in rates]
    y = decades([*(p.flops_per_s for p in every), roofs.bandwidth.sustained * min(p.intensity for p in every), *tops])
    chart = Chart(Axis(*x, "FLOP per byte"), Axis(*y, "FLOP/s"))
    for key in rates:
        rate, bandwidth = roofs.flops[key], roofs.bandwidth
        if rate.peak is not None and bandwidth.peak is not None:
            _draw_roof(chart, rate.peak, bandwidth.peak, "peak")
        _draw_roof(chart, rate.sustained, bandwidth.sustained, "sustained")
        chart.words(chart.x.high, rate.sustained, key, below=True)
    _draw_points(chart, drawn, list(dict.fromkeys(point.family for point in every)))
    return chart.svg(f"roofline of {roofs.device.name}; the table has its numbers") + DRAWN


def _draw_roof(chart: Chart, rate: float, bandwidth: float, css: str) -> None:
    """From where the slope enters the picture, over the ridge, to the right."""
    enters = max(chart.x.low, chart.y.low / bandwidth)
    chart.line([(enters, enters * bandwidth), (rate / bandwidth, rate), (chart.x.high, rate)], css)


def _draw_points(chart: Chart, drawn: dict[str, list[Point]], families: Sequence[str]) -> None:
    """Predicted filled, measured hollow, a line between the two of a pair; a family is named once."""
    color = {family: place % NUM_COLORS for place, family in enumerate(families)}
    places = {
        kind: {(p.family, p.rate): (p.intensity, p.flops_per_s) for p in points} for kind, points in drawn.items()
    }
    for pair in places.get(MEASURED, {}).keys() & places.get(PREDICTED, {}).keys():
        chart.line([places[MEASURED][pair], places[PREDICTED][pair]], "pair")
    named = set[str]()
    for kind, shape in ((PREDICTED, "filled"), (MEASURED, "hollow")):
        for point in drawn.get(kind, []):
            title = f"{point.family}, {point.rate}, {kind}: {number_text(point.flops_per_s)}FLOP/s"
            number = color[point.family]
            chart.dot(point.intensity, point.flops_per_s, f"{shape} c{number}", title)
            if point.family not in named:
                chart.words(point.intensity, point.flops_per_s, point.family, f"colored c{number}")
            named.add(point.family)
