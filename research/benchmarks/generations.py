"""Closed forms on a GPU generation that nothing was fitted on: errors, and whether intervals hold.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks.generations [--ops | --ratios] [--write]

Op tables of several GPUs (bfloat16 products; --ops: single ops in float32), one generation left out of every fit.
Bounds come from the errors on the other generations. --write: bounds that ship (conf/analytic/unseen_gpu.yaml), of the
products.

--ratios: the predicted ratio of one op on two GPUs, for a prediction that scales measured latencies. A step holds tens
of calls of a family, so a score is of PROGRAM calls together, from a GPU of another generation to one of the generation
that is left out: log(measured there, summed / (measured here x predicted ratio), summed). Group `unmodeled` holds the
ratio of memory bandwidths instead, over all calls: it judges kernels without a closed form. --write: bounds that ship
(conf/analytic/gpu_ratio.yaml).
Before it, single calls predicted by the closed form, by the ratio, and by the share of the first GPU's residual that
other generations choose: mean |log(measured / predicted)|, over pairs of GPUs, then generations.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.gnn import LEVEL
from gnnperf.gnn.intervals.devices import FILE
from gnnperf.hardware import conf_dir
from gnnperf.predict.ratios import RATIO_FILE, UNMODELED, retained, siblings
from research.benchmarks._frame import parser_of, print_head, print_row, run_main
from research.benchmarks._public_runs import mirror
from research.fitting.device_intervals import fit_device_intervals, pooled_deviation, save_device_intervals
from research.fitting.forms import GENERATION, base_us, retained_forms, sampled, usable
from research.fitting.observation import fit_observation
from research.tables import read_aiconfigurator, read_neusight, spec_of

GEMM, OPS = "bfloat16 products", "single ops in float32"
KIND = "kind"
KINDS = {"gemm": "product", "linear": "linear", "bmm": "bmm", "conv": "convolution", "softmax": "softmax",
         "ln": "layer norm", "add": "elementwise", "gelu": "elementwise"}  # fmt: skip
FAMILIES = {"product": "gemm", "linear": "gemm", "bmm": "gemm", "convolution": "conv", "softmax": "softmax",
            "layer norm": "norm", "elementwise": "elementwise"}  # fmt: skip
DTYPES = {GEMM: "bfloat16", OPS: "float32"}
OUT = Path("outputs/generations")  # fitted constants
TRAIN_ROWS, OTHER_ROWS, JUDGED_ROWS = {GEMM: 1000, OPS: 300}, 200, 600  # of each device and kind
FITTED_ROWS, JUDGED_CALLS = 300, 400  # of each device and kind; of each kind
PROGRAM = 20  # calls that are summed
SHARES = tuple(round(0.1 * place, 1) for place in range(11))  # of a residual; 0: closed form, 1: ratio
CALL = [KIND, "table", "op", "shapes", "dtype", "tf32", "stride", "padding", "calls_before"]
PAIR = ["family", GENERATION, f"{GENERATION}_from", "device", "device_from"]
HEAD = ("group", "generation left out", "scores", "median error", "within the bounds of the others", "high/low")
PROVENANCE = (
    "what closed forms missed on rows of public op tables (aiconfigurator, Apache-2.0; NeuSight, MIT), each generation "
    "predicted by constants that were fitted without it; by research/benchmarks/generations.py on {devices}"
)
RATIO_PROVENANCE = (
    "log of measured over predicted ratio of 20 calls on two GPUs, on rows of public op tables (aiconfigurator, "
    "Apache-2.0; NeuSight, MIT); the generation of the second GPU is left out of the constants; by "
    "research/benchmarks/generations.py --ratios on {devices}"
)


@cache
def tables() -> Mapping[str, pd.DataFrame]:
    """Rows with a kind, by campaign."""
    read = {GEMM: usable(read_aiconfigurator(mirror())).rows, OPS: usable(read_neusight(mirror())).rows}
    return {name: rows.assign(**{KIND: rows["table"].map(KINDS)}).dropna(subset=[KIND]) for name, rows in read.items()}


def main(arguments: Sequence[str]) -> None:
    parser = parser_of(__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--ops", action="store_true", help="single ops in float32 in place of products")
    which.add_argument("--ratios", action="store_true", help="ratios of two GPUs, of products and single ops")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(arguments)
    if given.ops and given.write:
        parser.error("--write ships bounds of products: leave out --ops")
    OUT.mkdir(parents=True, exist_ok=True)
    if given.ratios:
        print_head("family", "share of the residual", "closed form", "ratio", "with the share")
        for row in judged_shares(share_errors()):
            print_row(*row)
        parts = [part for name in (GEMM, OPS) for part in ratio_scores(name)]
    else:
        parts = list(scores_of(OPS if given.ops else GEMM))
    scores = pd.concat(parts, ignore_index=True)
    print_head(*HEAD)
    for row in judged(scores, pools=given.ratios):
        print_row(*row)
    if given.write:
        devices = ", ".join(sorted(set(scores["device"])))
        provenance, file = (RATIO_PROVENANCE, RATIO_FILE) if given.ratios else (PROVENANCE, FILE)
        fitted = fit_device_intervals(scores, LEVEL, pooled_deviation(scores, LEVEL) if given.ratios else None)
        save_device_intervals(
            replace(fitted, provenance=provenance.format(devices=devices)), conf_dir("analytic") / file
        )


def scores_of(campaign: str) -> Iterator[pd.DataFrame]:
    """Columns generation, device, family, dtype, score (log(measured / predicted)); one table per generation."""
    for generation, chosen in left_out(campaign, JUDGED_ROWS):
        yield pd.DataFrame({
            GENERATION: generation, "device": chosen["device"].astype(str), "family": chosen[KIND].map(FAMILIES),
            "dtype": DTYPES[campaign], "score": np.log(chosen["latency_us"] / chosen["read_us"]),
        })  # fmt: skip


def left_out(campaign: str, judged_rows: int) -> Iterator[tuple[str, pd.DataFrame]]:
    """Each generation, and rows of it per device and kind; by constants without it `base_us`, and `read_us` as read."""
    rows, train_rows = tables()[campaign], TRAIN_ROWS[campaign]
    for generation in sorted(rows[GENERATION].unique()):
        out = (rows[GENERATION] == generation).to_numpy()
        others, own = rows[~out].reset_index(drop=True), rows[out].reset_index(drop=True)
        known = others.iloc[sampled(others, train_rows + OTHER_ROWS, ["device", KIND], seed=0)]
        train = np.random.default_rng(0).random(len(known)) >= OTHER_ROWS / (train_rows + OTHER_ROWS)  # [n]
        chosen = own.iloc[sampled(own, judged_rows, ["device", KIND], seed=1)].reset_index(drop=True)
        fitted_on = known[train].reset_index(drop=True)
        constants = retained_forms(fitted_on, OUT)
        isolated_us = base_us(chosen, constants)
        read_us = fit_observation(fitted_on, constants).of(chosen).read_us(isolated_us)
        yield str(generation), chosen.assign(base_us=isolated_us, read_us=read_us)


def ratio_calls(campaign: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """(generation left out, calls on its GPUs and the same calls on others), predicted for the device and as read."""
    rows = tables()[campaign]
    for generation in sorted(rows[GENERATION].unique()):
        out = (rows[GENERATION] == generation).to_numpy()
        others = rows[~out].reset_index(drop=True)
        train = others.iloc[sampled(others, FITTED_ROWS, ["device", KIND], seed=0)].reset_index(drop=True)
        constants = retained_forms(train, OUT)
        calls = rows[out].drop_duplicates(CALL)
        calls = calls.iloc[sampled(calls, JUDGED_CALLS, [KIND], seed=1)][CALL]
        chosen = rows.merge(calls, on=CALL).drop_duplicates([*CALL, "device"]).reset_index(drop=True)
        predicted_us = base_us(chosen.assign(calls_before=np.nan), constants)
        read_us = fit_observation(train, constants).of(chosen).read_us(base_us(chosen, constants))
        yield generation, chosen.assign(predicted=predicted_us, residual=np.log(chosen["latency_us"] / read_us))


def ratio_scores(campaign: str) -> Iterator[pd.DataFrame]:
    """Columns generation (of the second GPU), device, family, dtype, score; one table per generation left out."""
    for generation, calls in ratio_calls(campaign):
        bandwidth = calls["device"].map(lambda name: spec_of(str(name)).memory_bandwidth_bytes_per_s)
        yield _pairs(calls.assign(bound=1.0 / bandwidth), generation, DTYPES[campaign])


def share_errors() -> pd.DataFrame:
    """Mean |log(measured / predicted)| of calls, a column per share; by PAIR, of one generation siblings only."""
    parts = []
    for campaign in (GEMM, OPS):
        for generation, calls in ratio_calls(campaign):
            own = calls[GENERATION] == generation
            both = calls[own].merge(calls, on=CALL, suffixes=("", "_from"))
            pairs = list(zip(both["device"].astype(str), both["device_from"].astype(str), strict=True))
            alike = {(a, b): a != b and siblings(spec_of(a), spec_of(b)) for a, b in set(pairs)}
            twins = np.array([alike[pair] for pair in pairs])
            both = both[twins | (both[GENERATION] != both[f"{GENERATION}_from"])].reset_index(drop=True)
            both["family"] = both[KIND].map(FAMILIES) + ", " + DTYPES[campaign]
            here, there = (both[name].to_numpy() for name in ("residual_from", "residual"))
            off = {share: np.abs(retained(here, share) - there) for share in SHARES}
            parts.append(pd.DataFrame(off).groupby([both[name] for name in PAIR]).mean())
    return pd.concat(parts)


def judged_shares(errors: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Each family by its closed form, by the ratio, and the share that other pairs choose (of siblings: 1)."""
    alike = errors.index.get_level_values(GENERATION) == errors.index.get_level_values(f"{GENERATION}_from")
    twins, errors = errors[alike], errors[~alike]
    rows = errors.groupby(["family", GENERATION]).mean()
    shared = {}
    for generation in rows.index.unique(GENERATION):
        others = errors.drop(generation, level=GENERATION).drop(generation, level=f"{GENERATION}_from")
        of_family = others.groupby(["family", GENERATION]).mean().groupby("family").mean()
        shared[generation] = of_family.div(of_family[SHARES[0]], axis=0).mean().idxmin()
    for family, of_family in rows.groupby("family"):
        given = {generation: shared[generation] for generation in of_family.index.unique(GENERATION)}
        own = np.mean([of_family.loc[(family, generation), share] for generation, share in given.items()])
        errors_of = (of_family[SHARES[0]].mean(), of_family[SHARES[-1]].mean(), own)
        chosen = ", ".join(f"{generation} {share}" for generation, share in given.items())
        yield str(family), chosen, *(f"{100 * error:.1f} %" for error in errors_of)
    for family, of_family in twins.groupby("family"):
        closed, ratio = (f"{100 * of_family[share].mean():.1f} %" for share in (SHARES[0], SHARES[-1]))
        yield f"{family}, siblings", "1", closed, ratio, ratio


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


def judged(scores: pd.DataFrame, pools: bool) -> Iterator[tuple[str, ...]]:
    """Each generation by the bounds that the other generations give; no group holds rows of it.

    `pools`: ratios have three or four generations per group, too few to show how far one more may be off.
    """
    for (family, dtype), rows in scores.groupby(["family", "dtype"]):
        for generation, own in rows.groupby(GENERATION):
            moderated = pooled_deviation(scores[scores[GENERATION] != generation], LEVEL) if pools else None
            others = fit_device_intervals(rows[rows[GENERATION] != generation], LEVEL, moderated)
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
