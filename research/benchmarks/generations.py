"""Closed forms on a GPU generation that no fit used: errors of one GPU or of the ratio of two, and intervals.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks.generations [PART] [--out DIR] [--write]

Op tables of several GPUs, one generation left out of every fit. Bounds come from the errors on the other generations.

products    score = log(measured / predicted) of bfloat16 products. --write: conf/analytic/unseen_gpu.yaml.
ops         the same of single ops in float32.
ratios      A prediction for other hardware scales measured latencies by the ratio of two predictions. A step holds tens
            of calls of a family, so a score is of PROGRAM calls together, from a GPU of another generation to one of
            the generation that is left out: log(measured there, summed / (measured here x predicted ratio), summed).
            Group `unmodeled` holds the ratio of memory bandwidths instead, over all calls: it judges kernels without a
            closed form. --write: conf/analytic/gpu_ratio.yaml.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.gnn import LEVEL
from gnnperf.gnn.intervals.devices import FILE, fit_device_intervals, save_device_intervals
from gnnperf.hardware import conf_dir
from gnnperf.predict.ratios import FILE as RATIO_FILE
from gnnperf.predict.ratios import UNMODELED
from research.benchmarks._frame import parser_of, print_head, print_row, run_main
from research.benchmarks._public_runs import mirror
from research.fitting.forms import base_us, retained_forms
from research.fitting.observation import fit_observation
from research.fitting.rows import GENERATION, sampled, spec_of, usable
from research.tables import read_aiconfigurator, read_neusight

OUT = Path("outputs/generations")
GEMM, OPS = "bfloat16 products", "single ops in float32"
KIND = "kind"
KINDS = {"gemm": "product", "linear": "linear", "bmm": "bmm", "conv": "convolution", "softmax": "softmax",
         "ln": "layer norm", "add": "elementwise", "gelu": "elementwise"}  # fmt: skip
FAMILIES = {"product": "gemm", "linear": "gemm", "bmm": "gemm", "convolution": "conv", "softmax": "softmax",
            "layer norm": "norm", "elementwise": "elementwise"}  # fmt: skip
DTYPES = {GEMM: "bfloat16", OPS: "float32"}
TRAIN_ROWS, OTHER_ROWS, JUDGED_ROWS = {GEMM: 1000, OPS: 300}, 200, 600  # of each device and kind
FITTED_ROWS, JUDGED_CALLS = 300, 400  # of ratios: of each device and kind; of each kind
PROGRAM = 20  # calls that are summed
CALL = [KIND, "table", "op", "shapes", "dtype", "tf32", "stride", "padding", "calls_before"]
TABLES = "rows of public op tables (aiconfigurator, Apache-2.0; NeuSight, MIT)"
BY = "by research/benchmarks/generations.py on {devices}"
PROVENANCE = (
    f"what closed forms missed on {TABLES}, each generation predicted by constants that were fitted without it; {BY}"
)
RATIO_PROVENANCE = (
    f"log of measured over predicted ratio of 20 calls on two GPUs, on {TABLES}; the generation of the second GPU is "
    f"left out of the constants; {BY}"
)


def main(arguments: Sequence[str]) -> None:
    """Print errors, coverage and width per generation; write the bounds if requested."""
    parser = parser_of(__doc__)
    parser.add_argument("part", nargs="?", choices=("products", "ops", "ratios"), default="products")
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help="folder of the fitted constants")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(arguments)
    if given.part == "ops" and given.write:
        parser.error("--write ships bounds of products and of ratios")
    given.out.mkdir(parents=True, exist_ok=True)
    parts = {
        "products": lambda: scores_of(GEMM, given.out), "ops": lambda: scores_of(OPS, given.out),
        "ratios": lambda: (scores for name in (GEMM, OPS) for scores in ratio_scores_of(name, given.out)),
    }  # fmt: skip
    scores = pd.concat(parts[given.part](), ignore_index=True)
    print_head("group", "generation left out", "scores", "median error", "within the bounds of the others", "high/low")
    for row in judged(scores):
        print_row(*row)
    if given.write:
        provenance, file = (RATIO_PROVENANCE, RATIO_FILE) if given.part == "ratios" else (PROVENANCE, FILE)
        text = provenance.format(devices=", ".join(sorted(set(scores["device"]))))
        save_device_intervals(fit_device_intervals(scores, LEVEL), text, conf_dir("analytic") / file)


@cache
def tables() -> Mapping[str, pd.DataFrame]:
    """Rows with a kind, by campaign."""
    read = {GEMM: usable(read_aiconfigurator(mirror())).rows, OPS: usable(read_neusight(mirror())).rows}
    return {name: rows.assign(**{KIND: rows["table"].map(KINDS)}).dropna(subset=[KIND]) for name, rows in read.items()}


def scores_of(campaign: str, keep: Path) -> Iterator[pd.DataFrame]:
    """Columns generation, device, family, dtype, score; one table per generation."""
    rows, train_rows = tables()[campaign], TRAIN_ROWS[campaign]
    for generation in sorted(rows[GENERATION].unique()):
        out = (rows[GENERATION] == generation).to_numpy()
        others, own = rows[~out].reset_index(drop=True), rows[out].reset_index(drop=True)
        known = others.iloc[sampled(others, train_rows + OTHER_ROWS, ["device", KIND], seed=0)]
        train = np.random.default_rng(0).random(len(known)) >= OTHER_ROWS / (train_rows + OTHER_ROWS)  # [n]
        chosen = own.iloc[sampled(own, JUDGED_ROWS, ["device", KIND], seed=1)].reset_index(drop=True)
        fitted_on = known[train].reset_index(drop=True)
        constants = retained_forms(fitted_on, keep)
        read_us = fit_observation(fitted_on, constants).of(chosen).read_us(base_us(chosen, constants))
        yield pd.DataFrame({
            GENERATION: generation, "device": chosen["device"].astype(str), "family": chosen[KIND].map(FAMILIES),
            "dtype": DTYPES[campaign], "score": np.log(chosen["latency_us"] / read_us),
        })  # fmt: skip


def ratio_scores_of(campaign: str, keep: Path) -> Iterator[pd.DataFrame]:
    """The same columns; the generation is that of the second GPU."""
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
    """Each generation by the bounds that the other generations give."""
    for (family, dtype), rows in scores.groupby(["family", "dtype"]):
        for generation, own in rows.groupby(GENERATION):
            others = fit_device_intervals(rows[rows[GENERATION] != generation], LEVEL)
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
