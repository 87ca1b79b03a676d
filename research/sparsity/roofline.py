"""The Sparsity Roofline of a layer as table, sentences, CSV and pictures, with a user's accuracies (a CSV file)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import pandas as pd

from gnnperf.core import InputError
from gnnperf.hardware import DeviceSpec
from gnnperf.report.roofline.chart import Axis, Chart
from gnnperf.report.roofline.sheet import NUM_COLORS, Sheet
from gnnperf.report.text import share_text, time_text
from research.sparsity.patterns import (
    BLOCK,
    UNSTRUCTURED,
    Blocks,
    Dense,
    Layer,
    Pattern,
    SparsityPoint,
    TwoFour,
    sparsity_points,
)

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
NUM_TICKS = 6  # at most, about
KEY = "lines: at the roof; dots: predicted"


@dataclass(frozen=True)
class EvenAxis(Axis):
    """Not logarithmic; ticks at multiples of 1, 2 or 5 times a power of ten."""

    def at(self, value: float) -> float:
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)

    def ticks(self) -> list[float]:
        least = (self.high - self.low) / NUM_TICKS
        decade = 10.0 ** math.floor(math.log10(least))
        step = next(nice * decade for nice in (1, 2, 5, 10) if nice * decade >= least * (1 - 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [step * number for number in range(first, last + 1)]


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
    chart = Chart(EvenAxis(0.0, 1.0, "sparsity"), EvenAxis(0.0, 1.1 * top, "speed-up over the dense layer"))
    chart.line([(0.0, 1.0), (1.0, 1.0)], "peak")
    for name, number in _colors(result).items():
        own = [p for p in result.points if p.pattern == name]
        chart.line([(p.sparsity, p.roof_speedup) for p in own], f"c{number}")
        for p in own:
            if p.model_speedup is not None:
                at = f"{name}, {share_text(p.sparsity)}"
                text = f"{at}: {p.model_speedup:.2f} predicted, {p.roof_speedup:.2f} at the roof"
                chart.dot(p.sparsity, p.model_speedup, f"filled c{number}", text)
    names = ", ".join(f'<b class="colored c{number}">{escape(name)}</b>' for name, number in _colors(result).items())
    return chart.svg("speed-up against sparsity; the table has its numbers") + f'<p class="note">{names}; {KEY}</p>'


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
    speedups = EvenAxis(0.0, 1.2 * max(top, 1.0), f"speed-up, {kind}")
    chart = Chart(speedups, EvenAxis(low - margin, high + margin, "accuracy"))
    for p in result.points:
        accuracy = stated.get((p.pattern, p.sparsity))
        speedup = p.model_speedup if kind == "predicted" else p.roof_speedup
        if accuracy is not None and speedup is not None:
            number = _colors(result)[p.pattern]
            name = p.pattern if p.pattern == Dense.name else f"{p.pattern}, {share_text(p.sparsity)}"
            chart.dot(
                speedup, accuracy, f"filled c{number}", f"{name}: {speedup:.2f} times as fast, accuracy {accuracy:g}"
            )
            chart.words(speedup, accuracy, name, f"colored c{number}")
    return chart.svg("accuracy against speed-up; the table has its numbers")
