"""The Sparsity Roofline of a layer as table, words, CSV and pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gnnperf.analytic import BLOCK, UNSTRUCTURED, Blocks, Dense, Layer, Pattern, SparsityPoint, TwoFour, sparsity_points
from gnnperf.core import InputError, csv_text, html_page, write_bytes
from gnnperf.hardware import DeviceSpec
from gnnperf.report.roofline.chart import Axis, Chart
from gnnperf.report.text import share_text, time_text

# A table and words around it, shown on the terminal or in a page; and files.

SUFFIXES = (".html", ".csv")
NUM_COLORS = 8
STYLE = """
:root { color-scheme: light dark; --line: #8886; --soft: #667; --c0: #2f6fbb; --c1: #b5561c; --c2: #2e8b57;
  --c3: #8a4fb0; --c4: #b03060; --c5: #7a6a00; --c6: #00808a; --c7: #555 }
@media (prefers-color-scheme: dark) { :root { --soft: #aab; --c0: #7db3f0; --c1: #f0a35e; --c2: #7bd3a0; --c3: #c9a0ea;
  --c4: #f08bb0; --c5: #d9c75a; --c6: #6fd6df; --c7: #bbb } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin: 2rem 0 .4rem } .dim { color: var(--soft); margin: .15rem 0 }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100% }
td, th { padding: .2rem .5rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap }
td:first-child, th:first-child { text-align: left }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif } svg text { fill: currentColor }
.grid { stroke: var(--line); stroke-width: .5 } polyline { fill: none; stroke-width: 1.8 }
.sustained { stroke: currentColor } .peak { stroke: var(--soft); stroke-dasharray: 6 4 } .pair { stroke: var(--line) }
circle { stroke-width: 2 } .hollow { fill: none }
""" + "\n".join(
    f".s{n} {{ stroke: var(--c{n}) }} circle.f{n} {{ stroke: var(--c{n}); fill: var(--c{n}) }} "
    f"circle.h{n} {{ stroke: var(--c{n}); fill: none }} text.t{n} {{ fill: var(--c{n}) }} "
    f".k{n} {{ color: var(--c{n}) }}"
    for n in range(NUM_COLORS)
)


@dataclass(frozen=True)
class Sheet:
    """Attributes: title; lines: sentences above; heads: of the columns; rows: texts; picture: SVG, "" none."""

    title: str
    lines: tuple[str, ...]
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    picture: str = ""


def rendered(sheets: Sequence[Sheet]) -> RenderableType:
    """On the terminal. Names come from others, so nothing is read as markup."""
    parts = list[RenderableType]()
    for sheet in sheets:
        parts += [*_sentences(sheet), _table(sheet)]
    return Group(*parts)


def page(title: str, sheets: Sequence[Sheet]) -> bytes:
    """One HTML file without scripts or references, light and dark."""
    body = "\n".join(_section(sheet) for sheet in sheets)
    return html_page(title, STYLE, f"<h1>{escape(title)}</h1>\n{body}").encode()


def write(path: Path, table: pd.DataFrame, title: str, sheets: Sequence[Sheet]) -> None:
    """By its suffix, whole or not at all."""
    content = page(title, sheets) if path.suffix == ".html" else csv_text(table).encode()
    try:
        write_bytes(path, content)
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror})", where=str(path)) from error


def _sentences(sheet: Sheet) -> list[Text]:
    return [Text(sheet.title, style="bold"), *(Text(f"  {line}", style="dim") for line in sheet.lines)]


def _table(sheet: Sheet) -> Table:
    table = Table(box=None, pad_edge=False)
    for place, head in enumerate(sheet.heads):
        table.add_column(head, justify="right" if place else "left", no_wrap=place > 0)
    for row in sheet.rows:
        table.add_row(*map(Text, row))
    return table


def _section(sheet: Sheet) -> str:
    lines = "\n".join(f'<p class="dim">{escape(line)}</p>' for line in sheet.lines)
    heads = "".join(f"<th>{escape(head)}</th>" for head in sheet.heads)
    rows = "\n".join("<tr>" + "".join(f"<td>{escape(td)}</td>" for td in row) + "</tr>" for row in sheet.rows)
    table = f'<div class="scroll"><table><tr>{heads}</tr>\n{rows}</table></div>'
    return f"<h2>{escape(sheet.title)}</h2>\n{lines}\n{sheet.picture}\n{table}"


# A user's accuracies: a CSV file with the columns pattern, sparsity and accuracy.

COLUMNS = ("pattern", "sparsity", "accuracy")
PATTERNS = f"{UNSTRUCTURED}, {TwoFour().name}, {BLOCK}N (N the edge, e.g. {BLOCK}32)"
Requested = tuple[str, float]  # pattern, sparsity


def pattern_of(name: str, where: str) -> Pattern:
    """A pattern by name."""
    edge = name.removeprefix(BLOCK)
    if name == UNSTRUCTURED:
        return Blocks()
    if name == TwoFour().name:
        return TwoFour()
    if name.startswith(BLOCK) and edge.isascii() and edge.isdigit() and int(edge[:9]) >= 2:
        return Blocks(int(edge[:9]))
    raise InputError(f"no pattern {name!r}", where=where, allowed=PATTERNS)


def read_accuracies(path: Path) -> dict[Requested, float]:
    """(pattern, sparsity) -> accuracy; the dense network is "dense", 0."""
    if not path.is_file():
        raise InputError("no such file", where=str(path), allowed=f"CSV with the columns {', '.join(COLUMNS)}")
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:  # pandas' errors are ValueErrors
        raise InputError(f"cannot be read ({str(error).splitlines()[0]})", where=str(path)) from None
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise InputError(f"column {missing[0]!r} is missing", where=str(path), allowed=", ".join(COLUMNS))
    result: dict[Requested, float] = {}
    for place, (name, sparsity, accuracy) in enumerate(table[list(COLUMNS)].itertuples(index=False, name=None)):
        where = f"{path}, line {place + 2}"
        requested = (name.strip(), _number(sparsity, f"{where}, sparsity"))
        check_sparsity(*requested, where)
        if requested in result:
            raise InputError(f"{name}, {sparsity} is there twice", where=where)
        result[requested] = _number(accuracy, f"{where}, accuracy")
    return result


def check_sparsity(name: str, sparsity: float, where: str) -> None:
    """Refuse a sparsity that a pattern does not have."""
    only = Dense.only_sparsity if name == Dense.name else pattern_of(name, where).only_sparsity
    if only is not None and sparsity != only:
        raise InputError(f"sparsity {sparsity:g} of {name}", where=where, allowed=f"{only:g}")
    if only is None and not 0 < sparsity < 1:
        raise InputError(
            f"sparsity {sparsity:g}", where=where, allowed="above 0, below 1: the share that is not stored"
        )


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{text!r} is no number", where=where) from None
    if not math.isfinite(value):
        raise InputError(f"{text!r} is no number", where=where)
    return value


HEADS = ("pattern", "sparsity", "FLOPs", "bytes", "bound", "at the roof", "speed-up", "predicted", "speed-up")
UNKNOWN = "unknown"
MODEL = (
    "the analytical model, sustained rates and the launch floor; faster than at the roof against the dense layer where "
    "that one is farther from its own roof"
)
KEY = "lines: at the roof; dots: predicted"


@dataclass(frozen=True)
class SparsityRoofline:
    """One layer on one device.

    Attributes:
        layer, device: requested.
        points: the dense layer first.
        refused: pattern -> why it is not among them.
        accuracy: of the user's network, (pattern, sparsity) -> accuracy; {} not given.
    """

    layer: Layer
    device: DeviceSpec
    points: tuple[SparsityPoint, ...]
    refused: dict[str, str]
    accuracy: dict[Requested, float]


def sparsity_roofline(
    layer: Layer, device: DeviceSpec, patterns: Sequence[Pattern], sparsities: Sequence[float],
    accuracy: dict[Requested, float],
) -> SparsityRoofline:  # fmt: skip
    """Every pattern at every sparsity that it has, and wherever an accuracy was given for it."""
    refused = {p.name: reason for p in patterns if (reason := p.refusal(layer, device)) is not None}
    requested = []
    for pattern in patterns:
        if pattern.name not in refused:
            own = sparsities if pattern.only_sparsity is None else (pattern.only_sparsity,)
            given = (sparsity for name, sparsity in accuracy if name == pattern.name)
            requested += [(pattern, sparsity) for sparsity in sorted({*own, *given})]
    return SparsityRoofline(layer, device, sparsity_points(layer, device, requested), refused, accuracy)


def title_of(result: SparsityRoofline) -> str:
    """The layer and the device in one line."""
    layer = result.layer
    dtype = f"{layer.dtype} (TF32)" if layer.tf32 else layer.dtype
    return f"[{layer.m}, {layer.k}] x [{layer.k}, {layer.n}], {dtype}, on {result.device.name}"


def sheet_of(result: SparsityRoofline) -> Sheet:
    """Everything that is shown."""
    heads = (*HEADS, "accuracy") if result.accuracy else HEADS
    rows = tuple(_row(result, point) for point in result.points)
    return Sheet(
        "Speed-up over the dense layer", _lines(result), heads, rows, _by_sparsity(result) + _by_accuracy(result)
    )


def table_of(result: SparsityRoofline) -> pd.DataFrame:
    """One row per point; what is not known is empty."""
    layer = result.layer
    return pd.DataFrame([
        {
            "device": result.device.name, "m": layer.m, "n": layer.n, "k": layer.k, "dtype": layer.dtype,
            "tf32": layer.tf32, "pattern": p.pattern, "sparsity": p.sparsity, "flops": p.cost.flops,
            "bytes": p.cost.moved_bytes, "peak_flops_per_s": p.cost.flops_per_s, "bound": p.bound, "roof_us": p.roof_us,
            "roof_speedup": p.roof_speedup, "predicted_us": p.model_us, "predicted_speedup": p.model_speedup,
            "accuracy": result.accuracy.get((p.pattern, p.sparsity)),
        }
        for p in result.points
    ])  # fmt: skip


def _lines(result: SparsityRoofline) -> tuple[str, ...]:
    rates = "measured rates" if result.device.measured else "the vendor's peaks"
    sentences = [f"at the roof: max(FLOPs / rate, bytes / bandwidth) at {rates}; predicted: {MODEL}"]
    sentences += [f"{name}: {reason}" for name, reason in result.refused.items()]
    if result.points[0].model_us is None:
        sentences.append(f"the analytical model prices no products with sparse operands on {result.device.name}")
    names = {p.pattern for p in result.points} | result.refused.keys()
    strangers = sorted({name for name, _ in result.accuracy} - names)
    return (*sentences, *(f"accuracies of {name} are not used: --patterns leaves it out" for name in strangers))


def _row(result: SparsityRoofline, point: SparsityPoint) -> tuple[str, ...]:
    model = point.model_speedup
    stated = (
        point.pattern, share_text(point.sparsity), f"{point.cost.flops:.4g}", f"{point.cost.moved_bytes:.4g}",
        point.bound, time_text(point.roof_us), f"{point.roof_speedup:.2f}", time_text(point.model_us),
        UNKNOWN if model is None else f"{model:.2f}",
    )  # fmt: skip
    if not result.accuracy:
        return stated
    accuracy = result.accuracy.get((point.pattern, point.sparsity))
    return (*stated, UNKNOWN if accuracy is None else f"{accuracy:g}")


def _colors(result: SparsityRoofline) -> dict[str, int]:
    return {name: place % NUM_COLORS for place, name in enumerate(dict.fromkeys(p.pattern for p in result.points))}


def _by_sparsity(result: SparsityRoofline) -> str:
    top = max(max(p.roof_speedup, p.model_speedup or 0.0) for p in result.points)
    chart = Chart(Axis(0.0, 1.0, "sparsity", False), Axis(0.0, 1.1 * top, "speed-up over the dense layer", False))
    chart.line([(0.0, 1.0), (1.0, 1.0)], "peak")
    for name, number in _colors(result).items():
        own = [p for p in result.points if p.pattern == name]
        chart.line([(p.sparsity, p.roof_speedup) for p in own], f"s{number}")
        for p in own:
            if p.model_speedup is not None:
                at = f"{name}, {share_text(p.sparsity)}"
                text = f"{at}: {p.model_speedup:.2f} predicted, {p.roof_speedup:.2f} at the roof"
                chart.dot(p.sparsity, p.model_speedup, f"f{number}", text)
    names = ", ".join(f'<b class="k{number}">{escape(name)}</b>' for name, number in _colors(result).items())
    return chart.svg("speed-up against sparsity; the table has its numbers") + f'<p class="dim">{names}; {KEY}</p>'


def _by_accuracy(result: SparsityRoofline) -> str:
    """Accuracy against speed-up, where accuracies were given: what lies to the right and above is better."""
    stated = {
        key: value for key, value in result.accuracy.items() if key in {(p.pattern, p.sparsity) for p in result.points}
    }
    if not stated:
        return ""
    low, high = min(stated.values()), max(stated.values())
    margin = 0.1 * (high - low) or 1.0
    top = max(p.model_speedup or p.roof_speedup for p in result.points if (p.pattern, p.sparsity) in stated)
    kind = "predicted" if result.points[0].model_us is not None else "at the roof"
    chart = Chart(
        Axis(0.0, 1.2 * max(top, 1.0), f"speed-up, {kind}", False), Axis(low - margin, high + margin, "accuracy", False)
    )
    for p in result.points:
        accuracy = stated.get((p.pattern, p.sparsity))
        speedup = p.model_speedup if kind == "predicted" else p.roof_speedup
        if accuracy is not None and speedup is not None:
            number = _colors(result)[p.pattern]
            name = p.pattern if p.pattern == Dense.name else f"{p.pattern}, {share_text(p.sparsity)}"
            chart.dot(speedup, accuracy, f"f{number}", f"{name}: {speedup:.2f} times as fast, accuracy {accuracy:g}")
            chart.words(speedup, accuracy, name, f"t{number}")
    return chart.svg("accuracy against speed-up; the table has its numbers")
