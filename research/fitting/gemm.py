"""Fit the constants of the GEMM model to measured gemms: robust least squares of log latency, from fixed starts.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.fitting.gemm [gemm] [bmm] [linear]

writes conf/analytic/gemm.yaml, fitted on all GPUs that have public tables. Families of tables that are not named keep
their constants. `python -m research.benchmarks.gemm` judges such constants on GPUs that they were not fitted on; do not
judge them on these tables. No row of a whole model or of its nodes is among them.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from gnnperf.analytic.gemm import constants as gemms
from gnnperf.analytic.gemm import model
from gnnperf.hardware import conf_dir, device_names, load_device, match_device, read_yaml
from research.benchmarks._op_tables import TABLES, product_rows, sample
from research.benchmarks._public_runs import mirror
from research.fitting.files import save_gemm_constants
from research.fitting.logs import robust_least_squares
from research.tables import spec_of

Array = npt.NDArray[np.float64]

FITTED_BY = "Fitted by research/fitting/gemm.py."
FIT_ROWS = {"gemm": 300, "bmm": 500, "linear": 500, "gemm float8": 600, "gemm float8_block": 600,
            "gemm float4": 600}  # of each GPU  # fmt: skip
GENERATION_ROWS = 600  # of each GPU, for the constants of its own generation
FAMILY = {"gemm": "matrix", "bmm": "vector_batched", "linear": "vector", "gemm float8": "float8",
          "gemm float8_block": "float8_block", "gemm float4": "float4"}  # fmt: skip
LOSS_SCALE = 0.15  # of log latency: beyond it, errors count linearly
# Weight of the expectations below against one measurement: of a fit that predicts the GPUs it saw, and of one that
# predictions for others, which has less to go by. The second was chosen by leaving one
# more generation out of the training rows.
OWN_CONFIDENCE, OTHERS_CONFIDENCE = 0.02, 0.06
OWN_BOOST, OTHERS_BOOST = {"boost_power": 0.0}, {"boost_power": 0.5}  # of GemmConstants
OWN_OFFSET_SPREAD = 0.05  # between boards of one generation
OFFSET_SPREAD = 0.3  # of one device's log latency against what its numbers say: boards, clocks and campaigns differ
STEPS = 25
# Constant -> where the search starts, and by which factor (e^spread) it may be off before that counts. These are orders
# of magnitude, set by hand while looking at fits to single GPUs of all generations; a wide spread leaves the data to
# decide; docs/benchmarks/closed-forms.md has the errors of other starts. flops_per_joule lies between what
# a board does at its base clock, which it keeps, and at its boost clock: the mean over the catalog's data sheets of
# float32 rate / power limit * sqrt(base / boost clock).
EXPECTED: Mapping[str, tuple[float, float]] = {
    "compute_share": (0.92, 0.1), "flops_per_joule": (6.5e10, 0.7), "throttle_us": (300.0, 1.0),
    "load_bytes_per_flop": (0.4, 0.7), "quantization": (0.5, 0.7), "wave_clocks": (1000.0, 0.7),
    "least_elements": (256.0, 0.7), "lone_tile_share": (0.5, 0.5), "l2_rate": (32.0, 0.7),
    "split_us": (1.5, 1.0), "l2_share": (1.0, 0.5), "l2_sharpness": (4.0, 0.5), "memory_share": (0.8, 0.15),
    "overlap_power": (2.0, 0.4), "reread_share": (0.3, 1.0), "far_share": (48.0, 0.7), "far_slowdown": (0.3, 1.5),
    "floor_clocks": (4000.0, 0.4), "launch_us": (40.0, 1.0), "launch_power": (1.5, 0.5),
}  # fmt: skip
# Matrix units: what differs by their FLOPs per clock, their energy per FLOP, the unit of l2_rate, and the
# constants of fits on single generations. Lanes keep a split_us of 1.5: with 3, A100's fit divides no batched product.
MATRIX = {"flops_per_joule": 2e12, "load_bytes_per_flop": 0.08, "least_elements": 4096.0, "split_us": 3.0,
          "l2_rate": 3.7, "memory_share": 0.95}  # fmt: skip
# The kernel that quantizes, likewise: an SM's 4 warp schedulers take 32 elements each in some clocks.
QUANTIZE: Mapping[str, tuple[float, float]] = {
    "start_clocks": (4000.0, 0.7), "element_clocks": (0.05, 1.0), "rows_in_flight": (8.0, 0.7),
}  # fmt: skip
AT_MOST_ONE = ("quantization",)
AT_LEAST_ONE = ("overlap_power", "launch_power")
LAUNCH_ONLY = ("launch_us", "launch_power")
TILES = {"vector": ("any", "narrow"), "vector_batched": ("128x128", "64x128", "narrow"), "matrix": ("any",),
         "float8": ("any",), "float8_block": ("any",), "float4": ("any",)}  # fmt: skip
BY_KERNELS = ("vector", "vector_batched")  # families whose kernels, and so their tiles, differ by generation
QUANTIZED = ("float8", "float8_block", "float4")


@dataclass(frozen=True)
class Measured:
    """Products that were measured, with the numbers of their devices: what a fit and a judgement need."""

    result: model.Products  # [rows] products
    numbers: model.DeviceNumbers  # [rows] of the device
    latency_us: Array  # [rows]
    launch_included: bool  # how all of them were measured
    device: npt.NDArray[np.str_]  # [rows] name
    family: str  # of all rows


def measured(rows: pd.DataFrame) -> Measured:
    """From rows of `research.tables` that share dtype, family and way of measuring."""
    dtype, first = str(rows["dtype"].iloc[0]), rows.iloc[0]
    names = rows["device"].to_numpy(str)
    keys, numbers = {}, {}
    for name in np.unique(names):
        device = spec_of(str(name))
        keys[name], numbers[name] = model.rate_key(device, dtype), model.numbers_of(device, dtype)
    fields = model.DeviceNumbers.__dataclass_fields__
    per_row = model.DeviceNumbers(*(np.array([getattr(numbers[n], f)[0] for n in names]) for f in fields))
    batch = rows["batch"].to_numpy(float)
    return Measured(
        model.products(rows["m"], rows["n"], rows["k"], batch, model.ITEM_BYTES[dtype], rows["turns"]),
        per_row, rows["latency_us"].to_numpy(float), bool(first["launch_included"]), names,
        model.family_of(keys[names[0]], str(first["op"]) == "aten::bmm", dtype),
    )  # fmt: skip


def predicted_us(data: Measured, members: gemms.Members) -> Array:
    """[rows] us as the data were measured, each device by the members that are for it."""
    result = np.full(len(data.latency_us), np.nan)
    key = data.family if data.family in BY_KERNELS else f"{data.family}_matrix"  # of a rate
    for name in np.unique(data.device):
        device, rows = match_device(str(name)), np.flatnonzero(data.device == name)
        own = members if device is None else model.members_on(device, members, key)
        result[rows] = model.tiled_us(data.result.part(rows), data.numbers.part(rows), own, data.launch_included)
    return result


def fit_together(data: Measured) -> gemms.Members:
    """For devices of other generations: one member per tile set, since which tiles they use is not known."""
    begin = starts(data.family) | OTHERS_BOOST
    confidence, spread = OTHERS_CONFIDENCE, OFFSET_SPREAD
    if data.family in QUANTIZED:  # serving kernels and two terms more: the tables have more to tell
        confidence, spread = OWN_CONFIDENCE, OWN_OFFSET_SPREAD
    return tuple(_fit(data, tiles, STEPS, begin, confidence, spread)[0] for tiles in TILES[data.family])


def fit_by_kernels(rows: pd.DataFrame) -> gemms.Members:
    """One member per set of kernels, of the tiles that fit its rows best: which tiles they use shows in the rows."""
    result = []
    for kernels, part in rows.groupby(rows["generation"].map(gemms.kernels_of)):
        data = measured(part)
        begin = starts(data.family) | OWN_BOOST
        fits = [_fit(data, tiles, STEPS, begin, OTHERS_CONFIDENCE) for tiles in TILES[data.family]]
        best = min(fits, key=lambda fit: fit[1])[0]
        result.append(replace(best, kernels=str(kernels)))
    latest = [member for member in result if member.kernels == gemms.LATEST_KERNELS]
    return (*result, *(replace(member, kernels=generation, flops_per_joule=value)
                       for member in latest for generation, value in flops_per_joule().items()))  # fmt: skip


@cache
def flops_per_joule() -> Mapping[str, float]:
    """Generation after those of float32's tables -> what its boards' data sheets say, as EXPECTED: geometric means.

    Those of P4 and T4, whose rates a power limit holds down, say 64 and 70 GFLOP/J; the fit, 58 and 66.
    """
    stated = [(str(d.architecture), d.flops_per_s["float32"] / d.power_limit_w * (d.base_clock_hz / d.clock_hz) ** 0.5)
            for d in map(load_device, device_names()) if d.base_clock_hz and d.power_limit_w]  # fmt: skip
    names, values = zip(*stated, strict=True)
    logs = pd.Series(np.log(values)).groupby(list(names)).mean()
    groups = (gemms.LATEST_KERNELS, *gemms.KERNELS_OF)
    return {str(name): float(np.exp(log)) for name, log in logs.items() if name not in groups}


def fit_for_others(rows: pd.DataFrame) -> gemms.Members:
    """Members for other GPUs than those of the rows: `fit_by_kernels` or `fit_together`, as the family needs."""
    data = measured(rows)
    return fit_by_kernels(rows) if data.family in BY_KERNELS else fit_together(data)


def fit_generations(rows: pd.DataFrame) -> gemms.Members:
    """Of products on matrix units: a member for any generation, and one of each generation for its own boards.

    Libraries ship kernels per generation, so boards of one generation differ by their numbers only.
    """
    other = fit_for_others(sample(rows, FIT_ROWS[str(rows["table"].iloc[0])]))
    result = []
    for generation, part in sample(rows, GENERATION_ROWS).groupby("generation"):
        data = measured(part)
        begin = starts(data.family) | OWN_BOOST
        tiles = TILES[data.family][0]
        best, _ = _fit(data, tiles, STEPS, begin, OWN_CONFIDENCE, OWN_OFFSET_SPREAD)
        result.append(replace(best, kernels=str(generation)))
    return (*other, *result)


def starts(family: str) -> dict[str, float]:
    """Constant -> where the search starts."""
    return {name: value for name, (value, _) in EXPECTED.items()} | ({} if family in BY_KERNELS else MATRIX)


def _fit(
    data: Measured, tiles: str, steps: int, begin_at: Mapping[str, float], confidence: float,
    offset_spread: float = OFFSET_SPREAD,
) -> tuple[gemms.GemmConstants, float]:  # fmt: skip
    quantize = gemms.Quantize(*(value for value, _ in QUANTIZE.values())) if data.family in QUANTIZED else None
    start = gemms.GemmConstants(**begin_at, tiles=tiles, quantize=quantize)  # type: ignore[arg-type]
    names = [n for n in EXPECTED if data.launch_included or n not in LAUNCH_ONLY]
    names += QUANTIZE if quantize is not None else ()
    expected = _coordinates(start, names)
    devices, place = np.unique(data.device, return_inverse=True)
    offsets = len(devices) if len(devices) > 1 else 0  # one device's own offset is in its constants
    spread = np.array([{**EXPECTED, **QUANTIZE}[n][1] for n in names] + [offset_spread] * offsets)
    begin = np.concatenate([expected, np.zeros(offsets)])
    counts = model.candidates(data.result, data.numbers, tiles)
    log_us, weight = np.log(data.latency_us), _weights(data.device)

    def residual(at: Array) -> Array:
        constants = _at(start, names, at[: len(names)])
        kernel = model.kernel_us(data.result, data.numbers, counts, constants)
        if constants.quantize is not None:
            kernel = kernel + model.quantize_us(data.result, data.numbers, constants, constants.quantize)
        kernel = kernel * np.exp(at[len(names) :])[place] if offsets else kernel
        result = model.observed_us(kernel, constants, data.launch_included)
        doubt = confidence * np.sqrt(len(log_us)) * (at - begin) / spread
        return np.concatenate([weight * (np.log(result) - log_us), doubt])

    at, cost = robust_least_squares(residual, begin, LOSS_SCALE, steps)
    return _at(start, names, at[: len(names)]), cost


def _weights(device: npt.NDArray[np.str_]) -> Array:
    """[rows] square roots of weights: every device counts the same, whatever its number of rows."""
    _, place, count = np.unique(device, return_inverse=True, return_counts=True)
    return np.sqrt(len(device) / len(count) / count[place])


def _coordinates(constants: gemms.GemmConstants, names: Sequence[str]) -> Array:
    """Logarithms, so that constants stay positive; of odds up to 1, of the excess from 1."""
    result = []
    for name in names:
        value = float(getattr(constants.quantize if name in QUANTIZE else constants, name))
        inner = value / (1 - value) if name in AT_MOST_ONE else value - 1 if name in AT_LEAST_ONE else value
        result.append(np.log(inner))
    return np.array(result)


def _at(start: gemms.GemmConstants, names: Sequence[str], at: Array) -> gemms.GemmConstants:
    result: dict[str, float] = {}
    for name, value in zip(names, np.exp(np.clip(at, -50.0, 50.0)).tolist(), strict=True):
        result[name] = value / (1 + value) if name in AT_MOST_ONE else 1 + value if name in AT_LEAST_ONE else value
    quantize = None if start.quantize is None else gemms.Quantize(**{name: result.pop(name) for name in QUANTIZE})
    return replace(start, **result, quantize=quantize)  # type: ignore[arg-type]


def main(requested: Sequence[str]) -> int:
    """Fit and write."""
    unknown = sorted(set(requested) - set(TABLES))
    if unknown:
        sys.exit(f"no table {unknown[0]!r}. Allowed: {', '.join(TABLES)}.")
    path = conf_dir("analytic") / "gemm.yaml"
    rows = product_rows(mirror())
    constants, sources = dict(gemms.load_gemm_constants(path)), sources_of(path)
    for table in requested or TABLES:
        every = rows[rows["table"] == table]
        part = sample(every, FIT_ROWS[table])
        lanes = FAMILY[table] in BY_KERNELS
        constants[FAMILY[table]] = fit_for_others(part) if lanes else fit_generations(every)
        devices = ", ".join(part["device"].unique())
        own = "" if lanes else f" (of each generation by itself: {GENERATION_ROWS} rows of each GPU)"
        sources[FAMILY[table]] = f"{part['source'].iloc[0]}, {table}, {len(part)} rows of {devices}{own}"
    sentences = "; ".join(f"{family}: {source}" for family, source in sources.items())
    save_gemm_constants(constants, f"{FITTED_BY} {sentences}.", path)
    return 0


def sources_of(path: Path) -> dict[str, str]:
    """Family -> where its constants come from, as the file states."""
    sentences = str(read_yaml(path)["provenance"]).removeprefix(FITTED_BY).strip().removesuffix(".")
    parts = (part.partition(": ") for part in sentences.split("; "))
    return {family: source for family, _, source in parts}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
