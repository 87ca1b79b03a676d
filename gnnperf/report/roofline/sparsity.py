"""The Sparsity Roofline of a layer as table, words, CSV and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import pandas as pd

from gnnperf.analytic import Dense, Layer, Pattern, SparsityPoint, sparsity_points
from gnnperf.hardware import DeviceSpec
from gnnperf.report.roofline.accuracy import Asked
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
    accuracy: dict[Asked, float]


def sparsity_roofline(
    layer: Layer, device: DeviceSpec, patterns: Sequence[Pattern], sparsities: Sequence[float],
    accuracy: dict[Asked, float],
) -> SparsityRoofline:  # fmt: skip
    """Every pattern at every sparsity that it has, and wherever an accuracy was given for it."""
    refused = {p.name: reason for p in patterns if (reason := p.refusal(layer, device)) is not None}
    asked = []
    for pattern in patterns:
        if pattern.name not in refused:
            own = sparsities if pattern.only_sparsity is None else (pattern.only_sparsity,)
            given = (sparsity for name, sparsity in accuracy if name == pattern.name)
            asked += [(pattern, sparsity) for sparsity in sorted({*own, *given})]
    return SparsityRoofline(layer, device, sparsity_points(layer, device, asked), refused, accuracy)


def title_of(found: SparsityRoofline) -> str:
    """The layer and the device in one line."""
    layer = found.layer
    dtype = f"{layer.dtype} (TF32)" if layer.tf32 else layer.dtype
    return f"[{layer.m}, {layer.k}] x [{layer.k}, {layer.n}], {dtype}, on {found.device.name}"


def sheet_of(found: SparsityRoofline) -> Sheet:
    """Everything that is shown."""
    heads = (*HEADS, "accuracy") if found.accuracy else HEADS
    rows = tuple(_row(found, point) for point in found.points)
    return Sheet("Speed-up over the dense layer", _lines(found), heads, rows, _by_sparsity(found) + _by_accuracy(found))


def table_of(found: SparsityRoofline) -> pd.DataFrame:
    """One row per point; what is not known is empty."""
    layer = found.layer
    return pd.DataFrame([
        {
            "device": found.device.name, "m": layer.m, "n": layer.n, "k": layer.k, "dtype": layer.dtype,
            "tf32": layer.tf32, "pattern": p.pattern, "sparsity": p.sparsity, "flops": p.cost.flops,
            "bytes": p.cost.moved_bytes, "peak_flops_per_s": p.cost.flops_per_s, "bound": p.bound, "roof_us": p.roof_us,
            "roof_speedup": p.roof_speedup, "predicted_us": p.model_us, "predicted_speedup": p.model_speedup,
            "accuracy": found.accuracy.get((p.pattern, p.sparsity)),
        }
        for p in found.points
    ])  # fmt: skip


def _lines(found: SparsityRoofline) -> tuple[str, ...]:
    rates = "measured rates" if found.device.measured else "the vendor's peaks"
    said = [f"at the roof: max(FLOPs / rate, bytes / bandwidth) at {rates}; predicted: {MODEL}"]
    said += [f"{name}: {reason}" for name, reason in found.refused.items()]
    if found.points[0].model_us is None:
        said.append(f"the analytical model prices no products with sparse operands on {found.device.name}")
    names = {p.pattern for p in found.points} | found.refused.keys()
    strangers = sorted({name for name, _ in found.accuracy} - names)
    return (*said, *(f"accuracies of {name} are not used: --patterns leaves it out" for name in strangers))


def _row(found: SparsityRoofline, point: SparsityPoint) -> tuple[str, ...]:
    model = point.model_speedup
    told = (
        point.pattern, share_text(point.sparsity), f"{point.cost.flops:.4g}", f"{point.cost.moved_bytes:.4g}",
        point.bound, time_text(point.roof_us), f"{point.roof_speedup:.2f}", time_text(point.model_us),
        UNKNOWN if model is None else f"{model:.2f}",
    )  # fmt: skip
    if not found.accuracy:
        return told
    accuracy = found.accuracy.get((point.pattern, point.sparsity))
    return (*told, UNKNOWN if accuracy is None else f"{accuracy:g}")


def _colors(found: SparsityRoofline) -> dict[str, int]:
    return {name: place % NUM_COLORS for place, name in enumerate(dict.fromkeys(p.pattern for p in found.points))}


def _by_sparsity(found: SparsityRoofline) -> str:
    """Speed-up against sparsity, a line per pattern."""
    top = max(max(p.roof_speedup, p.model_speedup or 0.0) for p in found.points)
    chart = Chart(Axis(0.0, 1.0, "sparsity", False), Axis(0.0, 1.1 * top, "speed-up over the dense layer", False))
    chart.line([(0.0, 1.0), (1.0, 1.0)], "peak")
    for name, number in _colors(found).items():
        own = [p for p in found.points if p.pattern == name]
        chart.line([(p.sparsity, p.roof_speedup) for p in own], f"s{number}")
        for p in own:
            if p.model_speedup is not None:
                at = f"{name}, {share_text(p.sparsity)}"
                text = f"{at}: {p.model_speedup:.2f} predicted, {p.roof_speedup:.2f} at the roof"
                chart.dot(p.sparsity, p.model_speedup, f"f{number}", text)
    names = ", ".join(f'<b class="k{number}">{escape(name)}</b>' for name, number in _colors(found).items())
    return chart.svg("speed-up against sparsity; the table has its numbers") + f'<p class="dim">{names}; {KEY}</p>'


def _by_accuracy(found: SparsityRoofline) -> str:
    """Accuracy against speed-up, where accuracies were given: what lies to the right and above is better."""
    told = {
        key: value for key, value in found.accuracy.items() if key in {(p.pattern, p.sparsity) for p in found.points}
    }
    if not told:
        return ""
    low, high = min(told.values()), max(told.values())
    room = 0.1 * (high - low) or 1.0
    top = max(p.model_speedup or p.roof_speedup for p in found.points if (p.pattern, p.sparsity) in told)
    kind = "predicted" if found.points[0].model_us is not None else "at the roof"
    chart = Chart(
        Axis(0.0, 1.2 * max(top, 1.0), f"speed-up, {kind}", False), Axis(low - room, high + room, "accuracy", False)
    )
    for p in found.points:
        accuracy = told.get((p.pattern, p.sparsity))
        speedup = p.model_speedup if kind == "predicted" else p.roof_speedup
        if accuracy is not None and speedup is not None:
            number = _colors(found)[p.pattern]
            name = p.pattern if p.pattern == Dense.name else f"{p.pattern}, {share_text(p.sparsity)}"
            chart.dot(speedup, accuracy, f"f{number}", f"{name}: {speedup:.2f} times as fast, accuracy {accuracy:g}")
            chart.words(speedup, accuracy, name, f"t{number}")
    return chart.svg("accuracy against speed-up; the table has its numbers")
