"""Exponents of the ratio by which measurements of a trace move to a change: latency = measured x ratio ^ exponent.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.fitting.trace_exponents [--rows N] [--keep DIR]

The ratio is that of closed forms, after / before. Two kinds of change: hardware (the same call on another GPU) and
shapes (twice the FLOPs of a call of the same op on the same GPU). Every generation of public op tables is left out
once: the forms are fitted without it. An exponent is fitted per change, family and dtype (least absolute log error) on
the pairs of the other generations, and evaluated on those of the generation left out. Predictions would use it where
it is proven: the mean error over generations falls by a twentieth or more, and that of no generation rises.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from research.benchmarks._generations import DTYPES, FAMILIES, GEMM, KIND, OPS, closed_forms, tables
from research.pretraining.rows import GENERATION, sampled

CALL = ["table", "op", "shapes", "dtype"]
GRID = np.round(np.linspace(0.0, 1.5, 31), 2)  # exponents that are tried
SLACK = 1e-3  # relative: less is no difference between two errors
GAIN = 0.05  # relative: less does not hold for other calls of the same tables


def pairs(rows: pd.DataFrame, num_rows: int, keep: Path) -> pd.DataFrame:
    """Calls before and after a change.

    Args:
        rows: of `_generations.tables`.
        num_rows: of each GPU and kind of op, to fit closed forms; as many calls are compared.
        keep: folder of fitted forms.

    Returns:
        Columns change, generation (of the target), source, source_generation, device, kind; log ratios measured, model.
    """
    result = []
    for left in sorted(rows[GENERATION].unique()):
        out = (rows[GENERATION] == left).to_numpy()
        targets, others = rows[out].reset_index(drop=True), rows[~out].reset_index(drop=True)
        log_us = closed_forms(
            others.iloc[sampled(others, num_rows, ["device", KIND], seed=0)].reset_index(drop=True), keep
        )
        known = others.merge(targets[CALL].drop_duplicates(), on=CALL)[CALL].drop_duplicates()
        calls = targets.merge(known, on=CALL)[[*CALL, KIND]].drop_duplicates(CALL)
        calls = calls.iloc[sampled(calls, num_rows, [KIND], seed=1)][CALL]
        sides = [_predicted(part.merge(calls, on=CALL), log_us) for part in (others, targets)]
        result.append(_ratios("hardware", sides[0].merge(sides[1], on=[*CALL, KIND], suffixes=("_source", ""))))
        doubled = _doubled(targets, num_rows)
        sides = [_predicted(part.reset_index(drop=True), log_us) for part in doubled]
        result.append(_ratios("shapes", _beside(*sides)))
    return pd.concat(result, ignore_index=True)


def _beside(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """Row i of both; columns of the first with suffix _source."""
    return before.add_suffix("_source").join(after)


def _predicted(rows: pd.DataFrame, log_us: Callable[[pd.DataFrame], np.ndarray]) -> pd.DataFrame:
    """The rows with column model: log us by closed forms."""
    columns = [*CALL, KIND, GENERATION, "device", "latency_us"]
    return rows[columns].assign(model=log_us(rows))


def _doubled(rows: pd.DataFrame, num_rows: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(calls, calls of the same op on the same GPU with twice the FLOPs and at most twice the bytes) [n]."""
    keys = ["device", "table", "op", "dtype"]
    first = rows.iloc[sampled(rows, 4 * num_rows, ["device", KIND], seed=2)]
    both = first.reset_index().assign(flops=2 * first["flops"].to_numpy()).merge(
        rows.reset_index(), on=[*keys, "flops"], suffixes=("", "_after")
    )  # fmt: skip
    share = both["moved_bytes_after"] / both["moved_bytes"]
    both = both[(share > 1.0) & (share <= 2.0)].drop_duplicates("index")
    both = both.iloc[sampled(both, num_rows, ["device", KIND], seed=3)]
    return rows.loc[both["index"]], rows.loc[both["index_after"]]


def _ratios(change: str, both: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({
        "change": change, GENERATION: both[GENERATION], "source": both["device_source"],
        "source_generation": both[f"{GENERATION}_source"], "device": both["device"], KIND: both[KIND],
        "measured": np.log(both["latency_us"] / both["latency_us_source"]),
        "model": both["model"] - both["model_source"],
    })  # fmt: skip


def errors(given: pd.DataFrame, exponent: float) -> np.ndarray:
    """[num_pairs] |log error| of calls moved with an exponent."""
    return np.abs((given["measured"] - exponent * given["model"]).to_numpy())


def balanced(given: pd.DataFrame, exponent: float) -> float:
    """Mean over pairs of GPUs of the median |log error|: no pair of GPUs counts for more than another."""
    by_pair = pd.Series(errors(given, exponent)).groupby([given["source"].to_numpy(), given["device"].to_numpy()])
    return float(by_pair.median().mean())


def fitted(given: pd.DataFrame) -> float:
    """The exponent with the least error; of equal ones the nearest to 1."""
    return min(GRID.tolist(), key=lambda one: (round(balanced(given, one), 4), abs(one - 1.0)))


def left_out(given: pd.DataFrame) -> Iterator[tuple[str, float, float, float]]:
    """(generation, exponent of the others, its error, error of exponent 1) for every generation left out."""
    for left in sorted(given[GENERATION].unique()):
        apart = (given[[GENERATION, "source_generation"]] != left).all(axis=1)
        test = given[given[GENERATION] == left]
        if apart.any():
            exponent = fitted(given[apart])
            yield str(left), exponent, balanced(test, exponent), balanced(test, 1.0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the evaluation."""
    parser = argparse.ArgumentParser(prog="python -m research.fitting.trace_exponents", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--rows", type=int, default=150, help="of each GPU and kind of op")
    parser.add_argument("--keep", type=Path, default=Path("outputs/trace_exponents"), help="folder of fitted forms")
    options = parser.parse_args(arguments)
    print("| change, family, dtype | generation left out | exponent of the others | error | error of exponent 1 |")
    print("|---|---|---|---|---|")
    for campaign in (GEMM, OPS):
        given = pairs(tables()[campaign], options.rows, options.keep)
        given = given.assign(family=given[KIND].map(FAMILIES))
        for (change, family), own in given.groupby(["change", "family"]):
            print("\n".join(judged(f"{change}, {family}, {DTYPES[campaign]}", own)), flush=True)
    return 0


def judged(name: str, own: pd.DataFrame) -> list[str]:
    """Lines of the evaluation; in the last the exponent of all generations and whether it is proven."""
    folds = list(left_out(own))
    if not folds:
        return [f"| {name} | fewer than three generations | | | |"]
    error, plain = (float(np.mean([fold[column] for fold in folds])) for column in (2, 3))
    gains = error < plain * (1 - GAIN) and all(e <= p * (1 + SLACK) for _, _, e, p in folds)
    lines = [f"| {name} | {left} | {exponent:g} | {_text(e)} | {_text(p)} |" for left, exponent, e, p in folds]
    verdict = f"{fitted(own):g} of all, {'proven' if gains else 'not proven: 1'}"
    return [*lines, f"| {name} | mean | {verdict} | {_text(error)} | {_text(plain)} |"]


def _text(error: float) -> str:
    return f"{100 * np.expm1(error):.1f} %"


if __name__ == "__main__":
    sys.exit(main())
