"""Kernels of public GPU traces: closed forms next to the plain roofline and trivial answers.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks trace_kernels

Every op call with device time, all its kernels together. Nothing was fitted on these traces. "form, if TF32" answers
the float32 products once more, as if the program had allowed TF32, which a trace does not say. "op, other runs" is the
trivial answer: the median time of calls of that name in all other recordings; "other projects" leaves out recordings
of the same program as well. Errors are over calls; "total" is what a GPU's device time would be off by. With a
checkpoint of op tables (`train.py experiment=pretrained`), lines of their own show its networks, as held-out sizes
by itself would keep them, and the forms on the same calls.
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from gnnperf.gnn import summarize
from research.benchmarks._kernel_calls import ANSWERS, BY_SIZES, FORM, ROOFLINE, TF32, measured_calls

LEAST_SHARE = 0.003  # of a GPU's device time: families below are in the sums only


def shares(calls: pd.DataFrame) -> pd.Series:
    """[n] each call's share of the device time measured on its GPU."""
    return calls["measured_us"] / calls.groupby("gpu")["measured_us"].transform("sum")


def lines(part: pd.DataFrame) -> list[tuple[str, ...]]:
    """One line per answer: calls answered, then the errors in %."""
    result = []
    for answer in ANSWERS:
        errors = summarize(part[answer].to_numpy(float), part["measured_us"].to_numpy(float))
        if errors.num_nodes:
            shown = (errors.mean_ape, errors.median_ape, errors.p90_ape, errors.max_ape, errors.bias, errors.total_bias)
            result.append((answer, f"{errors.num_nodes:,}", *(f"{100 * x:.0f}" for x in shown)))
    return result


def print_families(calls: pd.DataFrame) -> None:
    """One block per GPU and family."""
    printed = Table("GPU", "family", "device time", "by form", "answer", "calls", "mean %", "median %", "p90 %",
                    "max %", "bias %", "total %")  # fmt: skip
    for (gpu, family), part in calls.groupby(["gpu", "family"]):
        if part["share"].sum() < LEAST_SHARE:
            continue
        formed = part.loc[part["by_form"], "share"].sum() / part["share"].sum()
        head = (str(gpu), str(family), f"{part['share'].sum():.1%}", f"{formed:.0%}")
        for place, line in enumerate(lines(part) or [("none",)]):
            printed.add_row(*(head if place == 0 else ("", "", "", "")), *line)
    Console(width=150).print(printed)


def print_gpus(calls: pd.DataFrame) -> None:
    """One block per GPU over all its families, on the calls that the roofline answers."""
    printed = Table("GPU", "runs", "time by form", "time without answer", "answer", "calls", "mean %", "median %",
                    "p90 %", "max %", "bias %", "total %")  # fmt: skip
    for gpu, part in calls.groupby("gpu"):
        known = part[part[ROOFLINE].notna()]
        head = (str(gpu), str(part["run"].nunique()), f"{part.loc[part['by_form'], 'share'].sum():.0%}",
                f"{part.loc[part[ROOFLINE].isna(), 'share'].sum():.0%}")  # fmt: skip
        for place, line in enumerate(lines(known.assign(**{TF32: np.nan}))):
            printed.add_row(*(head if place == 0 else ("", "", "", "")), *line)
    Console(width=150).print(printed)


def print_network(calls: pd.DataFrame, network: str) -> None:
    """Calls that networks of op tables answer: they and the forms on the same ones, by GPU and family."""
    learned = calls[calls[network].notna()]
    share = learned["measured_us"].sum() / calls["measured_us"].sum()
    print(f"{network}: answers {len(learned):,} of {len(calls):,} calls, {share:.1%} of the device time")
    for (gpu, family), part in learned.groupby(["gpu", "family"]):
        for answer in (FORM, network):
            e = summarize(part[answer].to_numpy(float), part["measured_us"].to_numpy(float))
            print(f"  {gpu}, {family}, {part['run'].nunique()} runs, {e.num_nodes:,} calls, {answer}: mean "
                  f"{e.mean_ape:.1%}, median {e.median_ape:.1%}, p90 {e.p90_ape:.1%}, "
                  f"total {e.total_bias:+.1%}")  # fmt: skip


def print_summary(calls: pd.DataFrame) -> None:
    """Per family, the mean over GPUs of the mean errors, where forms answer."""
    formed = calls[calls["by_form"]]
    known = int(calls[ROOFLINE].notna().sum())
    print(f"{len(calls):,} op calls of {calls['run'].nunique()} recordings on {calls['gpu'].nunique()} GPUs: "
          f"{known:,} answered, {len(formed):,} of them by a closed form")  # fmt: skip
    for family, part in formed.groupby("family"):
        means = {a: [summarize(p[a].to_numpy(float), p["measured_us"].to_numpy(float)) for _, p in part.groupby("gpu")]
                 for a in ANSWERS if a != TF32}  # fmt: skip
        text = ", ".join(f"{a} {100 * np.nanmean([e.mean_ape for e in errors]):.0f} / "
                         f"{100 * np.nanmean([e.median_ape for e in errors]):.0f} %" for a, errors in means.items()
                         if not all(np.isnan(e.mean_ape) for e in errors))  # fmt: skip
        print(f"{family:12s} {len(part):6,} calls, {part['gpu'].nunique()} GPUs; mean / median error: {text}")


def main() -> int:
    """Print the three tables."""
    calls = measured_calls()
    calls["share"] = shares(calls)
    print_families(calls)
    print_gpus(calls)
    print_network(calls, BY_SIZES)
    print_summary(calls)
    return 0


if __name__ == "__main__":
    sys.exit(main())
