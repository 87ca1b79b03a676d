"""How far the predicted ratio of one op on two GPUs is off, with the generation of the second GPU left out.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks.gpu_ratios [--out DIR] [--write]

A prediction for other hardware scales measured latencies by the ratio of two predictions. Op tables of several GPUs
hold the same calls on each. For each generation, the closed forms are fitted on rows of the other generations. A step
holds tens of calls of a family, so a score is of PROGRAM calls together, from a GPU of another generation to one of the
generation that is left out: log(measured there, summed / (measured here x predicted ratio), summed). Group `unmodeled`
holds the ratio of memory bandwidths instead, over all calls: it judges kernels without a closed form. --write: bounds
that ship (conf/analytic/gpu_ratio.yaml).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.gnn import LEVEL
from gnnperf.gnn.intervals.devices import fit_device_intervals, pooled_deviation, save_device_intervals
from gnnperf.hardware import conf_dir
from gnnperf.predict.ratios import FILE, UNMODELED
from research.benchmarks._frame import parser_of, print_head, print_row, run_main
from research.benchmarks._generations import DTYPES, FAMILIES, GEMM, KIND, OPS, tables
from research.fitting.forms import base_us, retained_forms
from research.fitting.rows import GENERATION, sampled, spec_of

OUT = Path("outputs/gpu_ratios")
FITTED_ROWS, JUDGED_CALLS = 300, 400  # of each device and kind; of each kind
PROGRAM = 20  # calls that are summed
CALL = [KIND, "table", "op", "shapes", "dtype", "tf32", "stride", "padding", "calls_before"]
HEAD = ("group", "generation left out", "scores", "median error", "within the bounds of the others", "high/low")
PROVENANCE = (
    "log of measured over predicted ratio of 20 calls on two GPUs, on rows of public op tables (aiconfigurator, "
    "Apache-2.0; NeuSight, MIT); the generation of the second GPU is left out of the constants; by "
    "research/benchmarks/gpu_ratios.py on {devices}"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print coverage and width per generation; write the bounds if requested."""
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help="folder of the fitted constants")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(arguments)
    scores = pd.concat([each for name in (GEMM, OPS) for each in scores_of(name, given.out)], ignore_index=True)
    print_head(*HEAD)
    for row in judged(scores):
        print_row(*row)
    if given.write:
        devices = ", ".join(sorted(set(scores["device"])))
        result = fit_device_intervals(scores, LEVEL, pooled_deviation(scores, LEVEL))
        save_device_intervals(result, PROVENANCE.format(devices=devices), conf_dir("analytic") / FILE)
    return 0


def scores_of(campaign: str, keep: Path) -> Iterator[pd.DataFrame]:
    """Columns generation (of the second GPU), device, family, dtype, score; one table per generation left out."""
    rows = tables()[campaign]
    rows = rows.fillna(dict.fromkeys(("stride", "padding", "calls_before"), -1.0))
    for generation in sorted(rows[GENERATION].unique()):
        out = (rows[GENERATION] == generation).to_numpy()
        others = rows[~out].reset_index(drop=True)
        train = others.iloc[sampled(others, FITTED_ROWS, ["device", KIND], seed=0)].reset_index(drop=True)
        constants = retained_forms(train, keep)
        calls = rows[out].drop_duplicates(CALL)
        calls = calls.iloc[sampled(calls, JUDGED_CALLS, [KIND], seed=1)][CALL]
        chosen = rows.merge(calls, on=CALL).drop_duplicates([*CALL, "device"]).reset_index(drop=True)
        bandwidth = chosen["device"].map(lambda name: spec_of(str(name)).memory_bandwidth_bytes_per_s)
        predicted_us = base_us(chosen.assign(calls_before=np.nan), constants)
        yield _pairs(chosen.assign(predicted=predicted_us, bound=1.0 / bandwidth), generation, DTYPES[campaign])


def _pairs(rows: pd.DataFrame, generation: str, dtype: str) -> pd.DataFrame:
    """Every call from each GPU of another generation to each GPU of this one."""
    target, source = rows[rows[GENERATION] == generation], rows[rows[GENERATION] != generation]
    both = target.merge(source, on=CALL, suffixes=("", "_from"))
    both = both.iloc[np.random.default_rng(2).permutation(len(both))].reset_index(drop=True)
    pair = both.groupby(["device", "device_from", KIND])
    both["program"] = pair.cumcount() // PROGRAM
    keys = ["device", "device_from", KIND, "program"]
    parts = []
    for column, family in (("predicted", None), ("bound", UNMODELED)):
        moved_us = both["latency_us_from"] * both[column] / both[f"{column}_from"]
        groups = both.assign(moved_us=moved_us, size=1).groupby(keys)
        sums = groups[["latency_us", "moved_us", "size"]].sum().reset_index()
        sums = sums[sums["size"] == PROGRAM]
        families = sums[KIND].map(FAMILIES) if family is None else family
        named = {GENERATION: generation, "device": sums["device"].astype(str), "family": families, "dtype": dtype}
        parts.append(pd.DataFrame({**named, "score": np.log(sums["latency_us"] / sums["moved_us"])}))
    return pd.concat(parts, ignore_index=True).replace([np.inf, -np.inf], np.nan).dropna()


def judged(scores: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Each generation by the bounds that the other generations give, in no group with rows of it."""
    for (family, dtype), rows in scores.groupby(["family", "dtype"]):
        for generation, own in rows.groupby(GENERATION):
            pooled = pooled_deviation(scores[scores[GENERATION] != generation], LEVEL)
            others = fit_device_intervals(rows[rows[GENERATION] != generation], LEVEL, pooled)
            families, dtypes = (np.full(len(own), name, dtype=object) for name in (family, dtype))
            low, high = others.bounds_us(families, dtypes, np.ones(len(own)))
            ratio = np.exp(own["score"].to_numpy())
            known = np.isfinite(low).any()
            within = f"{100 * ((low <= ratio) & (ratio <= high)).mean():.0f} %" if known else "too few generations"
            width = f"{np.median(high / low):.2f}" if known else ""
            error = f"{100 * np.median(np.abs(ratio - 1.0)):.1f} %"
            yield f"{family}, {dtype}", str(generation), f"{len(own):,}", error, within, width


if __name__ == "__main__":
    run_main(main)
