"""The Sparsity Roofline of a layer as table, words, CSV and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import pandas as pd

from gnnperf.analytic import Dense, Layer, Pattern, SparsityPoint, sparsity_points
from gnnperf.hardware import DeviceSpec
from gnnperf.report.roofline.accuracy import Requested
from gnnperf.report.roofline.chart import Axis, Chart
from gnnperf.report.roofline.sheet import NUM_COLORS, Sheet
from gnnperf.report.text import share_text, time_text

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
        layer, device: asked about.
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
    """Speed-up against sparsity, a line per pattern."""
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
