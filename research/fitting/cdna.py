"""Fit CdnaConstants on public recordings of AMD GPUs, and print what they are worth on recordings left out.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.fitting.cdna [OUT.yaml]

writes conf/analytic/cdna.yaml. Per kind of op: the roofline alone (before), the constants in sample, and each program
predicted by constants that were fitted on the other programs (the kinds that only one program has cannot be judged).
Other kinds are expected to reach what gemms reach of the peak rate and copies of the bandwidth. How strongly (PRIOR)
was chosen by programs left out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.analytic import default_constants
from gnnperf.analytic.kernels.dispatch import cdna_bytes, has_forms, roofline_us
from gnnperf.analytic.roofline import (
    CDNA_FILE,
    OTHERS,
    CdnaConstants,
    FamilyShares,
    cdna_kind,
    cdna_power,
    rate_key_of,
    shares_us,
)
from gnnperf.core import OpFamily
from gnnperf.hardware import conf_dir, match_device
from research.benchmarks._public_runs import imported
from research.benchmarks.trace_kernels import gpu_recordings
from research.fitting.files import write_constants
from research.fitting.logs import fit_logs, softened
from research.fitting.recorded import calls_of

PROVENANCE = (
    "fitted by research/fitting/cdna.py on the kernels of {runs} recordings of {projects} (MIT) on {devices}. "
    "Do not judge the model on those recordings with these constants: the fitter prints what it is worth on programs "
    "left out."
)
POWER = 4.0
START = FamilyShares(compute_share=0.5, bandwidth_share=0.6, start_us=4.0)
PRIOR, DISTURBED, DIGITS = 0.3, 0.3, 3
LEAST_SHARE = 0.003  # of the time: kinds that have constants of their own
VARIANT = re.compile(r"(prefill)?decode|-[0-9a-f]{8}$")  # in a recording's name: the program's is the rest


def measured() -> Iterator[pd.DataFrame]:
    """Per recording, a row for each distinct call: its mean time and how often it was made."""
    for recording in gpu_recordings():
        if "AMD" not in "".join(str(entry.gpu) for entry in recording.entries):
            continue
        _, graph = imported(recording)
        device = match_device(graph.device_names[0])
        if device is None or device.kind != "gpu" or has_forms(device):
            continue
        rows = calls_of(graph)
        calls, kernels = rows["call"].tolist(), rows["kernels"].to_numpy(float)
        roofline = roofline_us(calls, device, default_constants().roofline_power)
        yield pd.DataFrame({
            "device": device.name, "project": recording.entries[0].repo, "run": recording.name,
            "program": VARIANT.sub("", recording.name),
            "kind": [cdna_kind(call.op_name, call.family) for call in calls],
            "flops": [call.flops for call in calls], "bytes": cdna_bytes(calls),
            "rate": [device.flops_per_s[rate_key_of(device, call.family, call.dtype)] for call in calls],
            "bandwidth": device.memory_bandwidth_bytes_per_s, "kernels": kernels,
            "measured_us": rows["us"], "number": rows["total_us"] / rows["us"],
            "roofline_us": roofline + (kernels - 1) * device.launch_floor_us,
        })  # fmt: skip


def answered_us(rows: pd.DataFrame, shares: FamilyShares) -> np.ndarray:
    """[n] us of calls of one kind."""
    flops, moved, rate, kernels = (rows[name].to_numpy(float) for name in ("flops", "bytes", "rate", "kernels"))
    power = cdna_power(str(rows["kind"].iloc[0]), POWER)
    return shares_us(flops, moved, rate, kernels, shares, float(rows["bandwidth"].iloc[0]), power)


def fit_shares(rows: pd.DataFrame, expected: FamilyShares) -> FamilyShares:
    """Of calls of one kind; a call weighs the root of its share of the time."""
    weight = np.sqrt((rows["measured_us"] * rows["number"]).to_numpy(float))
    weight /= weight.mean()

    def residuals(values: np.ndarray) -> np.ndarray:
        off = np.log(answered_us(rows, FamilyShares(*values)) / rows["measured_us"].to_numpy(float))
        return weight * softened(off, DISTURBED)

    return FamilyShares(*fit_logs(residuals, np.array(astuple(expected)), PRIOR).tolist())


def fitted(rows: pd.DataFrame) -> Mapping[str, FamilyShares]:
    """Per kind that took long enough; the rest together."""
    time = rows["measured_us"] * rows["number"]
    own = time.groupby(rows["kind"]).transform("sum") >= LEAST_SHARE * time.sum()
    parts = {str(kind): part for kind, part in rows[own].groupby("kind")}
    first = {kind: fit_shares(parts[kind], START) for kind in (OpFamily.GEMM, OpFamily.COPY) if kind in parts}
    expected = replace(START, compute_share=first.get(OpFamily.GEMM, START).compute_share,
                       bandwidth_share=first.get(OpFamily.COPY, START).bandwidth_share)  # fmt: skip
    result = {kind: first.get(kind) or fit_shares(part, expected) for kind, part in parts.items()}
    return {**result, OTHERS: fit_shares(rows[~own] if (~own).any() else rows, START)}


def total_and_error(us: np.ndarray, rows: pd.DataFrame) -> str:
    """Predicted over measured of the total time, and the mean error weighted by time."""
    time = (rows["measured_us"] * rows["number"]).to_numpy(float)
    ratio = us / rows["measured_us"].to_numpy(float)
    known = ~np.isnan(ratio)
    if not known.any():
        return f"{'–':>13s}"
    time, ratio = time[known], ratio[known]
    return f"{(ratio * time).sum() / time.sum():5.2f} {100 * (abs(ratio - 1) * time).sum() / time.sum():5.0f} %"


def main() -> None:
    """Judge, fit and write."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else conf_dir("analytic") / CDNA_FILE
    rows = pd.concat(measured(), ignore_index=True)
    rows = rows[(np.nan_to_num(rows["flops"]) > 0) | (np.nan_to_num(rows["bytes"]) > 0)].reset_index(drop=True)
    constants = CdnaConstants(POWER, fitted(rows), PROVENANCE.format(
        runs=rows["run"].nunique(), projects=", ".join(sorted(rows["project"].unique())),
        devices=", ".join(sorted(rows["device"].unique()))))  # fmt: skip
    rows["own_us"] = rows["left_out_us"] = np.nan
    for kind, part in rows.groupby("kind"):
        rows.loc[part.index, "own_us"] = answered_us(part, constants.of(str(kind)))
    for program in rows["program"].unique():
        here = rows[rows["program"] == program]
        others = rows[rows["program"] != program]
        shares = fitted(others)
        for kind, part in here.groupby("kind"):
            if kind in shares or kind not in constants.shares:
                rows.loc[part.index, "left_out_us"] = answered_us(part, shares.get(str(kind), shares[OTHERS]))
    print(f"{'':40s} calls programs   ms    roofline       in sample    program left out (predicted / measured, error)")
    for name, part in [*rows.groupby("kind"), *rows.groupby("program"), ("all", rows)]:
        ms = (part["measured_us"] * part["number"]).sum() / 1e3
        texts = [total_and_error(part[f"{way}_us"].to_numpy(float), part) for way in ("roofline", "own", "left_out")]
        print(f"{str(name)[-40:]:40s} {len(part):5d} {part['program'].nunique():5d} {ms:8.1f}  {'  '.join(texts)}")
    write_constants(out, constants, DIGITS)
    print(out.read_text())


if __name__ == "__main__":
    main()
