"""Fit CdnaConstants on public recordings of AMD GPUs, and print what they are worth on recordings left out.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.fitting.cdna [OUT.yaml]

writes conf/analytic/cdna.yaml. Per kind of op: the roofline alone (before), the constants in sample, and each program
predicted by constants that were fitted on the other programs (the kinds that only one program has cannot be judged).
Other kinds are expected to reach what gemms reach of the peak rate and copies of the bandwidth. How strongly (PRIOR)
was chosen by programs left out.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import astuple, replace

import numpy as np
import pandas as pd

from gnnperf.analytic import default_constants
from gnnperf.analytic.kernels.dispatch import cdna_bytes, has_forms, roofline_us
from gnnperf.analytic.kernels.nodes import distinct_calls
from gnnperf.analytic.roofline import CDNA_FILE, OTHERS, CdnaConstants, FamilyShares, cdna_kind, rate_key_of, shares_us
from gnnperf.core import NodeType, OpFamily
from gnnperf.generate.transformer.items import Op
from gnnperf.hardware import DeviceSpec, match_device
from research.benchmarks._public_runs import imported, mirror
from research.benchmarks.trace_kernels import gpu_recordings
from research.benchmarks.whole_models import names
from research.benchmarks.whole_models import rows as listed_rows
from research.fitting.files import requested_file, write_constants
from research.fitting.logs import fit_logs, softened
from research.fitting.recorded import calls_of
from research.listed import Part
from research.tables.model_labels import node_times

PROVENANCE = (
    "fitted by research/fitting/cdna.py on kernels and nodes of {runs} programs of {projects} (MIT) on {devices}. "
    "Do not judge the model on those recordings with these constants: the fitter prints what it is worth on programs "
    "left out."
)
POWER = {str(OpFamily.CONV): 1.0, OTHERS: 4.0}  # of CdnaConstants; not fitted
START = FamilyShares(compute_share=0.5, bandwidth_share=0.6, start_us=4.0)
PRIOR, DISTURBED, DIGITS = 0.3, 0.3, 3
NEUSIGHT, NODE_KINDS = "sitar-lab/NeuSight", ("gemm_float32", "bmm_float32", "softmax", "norm")
LEAST_NODE_US = 200.0  # what events add to shorter nodes counts
LEAST_US = 2500.0  # in all: kinds that have constants of their own
VARIANT = re.compile(r"(prefill)?decode|-[0-9a-f]{8}$")  # in a recording's name: the program's is the rest


def measured() -> Iterator[pd.DataFrame]:
    """Per recording, a row for each distinct call: its mean time and how often it was made."""
    for recording in gpu_recordings():
        if "AMD" not in "".join(str(entry.gpu) for entry in recording.entries):
            continue
        _, graph = imported(recording)
        device = match_device(graph.device_names[0])
        if device is not None and device.kind == "gpu" and not has_forms(device):
            calls = calls_of(graph)
            source = {"project": recording.entries[0].repo, "run": recording.name}
            yield call_rows(calls, device).assign(program=VARIANT.sub("", recording.name), **source)


def measured_nodes() -> Iterator[pd.DataFrame]:
    """The same of forward passes in float32 of models of NeuSight: nodes that are one long call."""
    for row in listed_rows(mirror())[0]:
        times = node_times(mirror(), row.label)
        if has_forms(row.device) or times is None or row.label.run.variant:
            continue
        graph = row.graph(Part.FORWARD)
        owner = pd.Series([each.node for each in row.program(Part.FORWARD) if isinstance(each.item, Op)])
        nodes = graph.nodes[(graph.nodes["node_type"] == NodeType.COMPUTE).to_numpy()].reset_index(drop=True)
        repeats = {name: section.repeats for section in row.sections for name in names(section)}
        whole = (owner.map(owner.value_counts()) == owner.map(repeats)) & ~owner.duplicated()
        us = owner.map(times["forward_us"]).where(whole)
        calls, code = distinct_calls(nodes)
        own = pd.DataFrame({"call": [calls[at] for at in code], "kernels": 1, "us": us, "number": 1.0})
        result = call_rows(own[us > LEAST_NODE_US], row.device).assign(project=NEUSIGHT, run=row.label.run.name)
        yield result[result["kind"].isin(NODE_KINDS)].assign(program=f"{NEUSIGHT}, {row.device.architecture}")


def call_rows(measured: pd.DataFrame, device: DeviceSpec) -> pd.DataFrame:
    """What a fit reads of calls (`recorded.calls_of`) on one device."""
    calls, kernels = measured["call"].tolist(), measured["kernels"].to_numpy(float)
    roofline = roofline_us(calls, device, default_constants().roofline_power)
    return pd.DataFrame({
        "device": device.name, "kind": [cdna_kind(call.op_name, call.family, call.dtype) for call in calls],
        "flops": [call.flops for call in calls], "bytes": cdna_bytes(calls),
        "rate": [device.flops_per_s[rate_key_of(device, call.family, call.dtype)] for call in calls],
        "bandwidth": device.memory_bandwidth_bytes_per_s, "kernels": kernels,
        "measured_us": measured["us"].to_numpy(), "number": measured["number"].to_numpy(),
        "roofline_us": roofline + (kernels - 1) * device.launch_floor_us,
    })  # fmt: skip


def answered_us(rows: pd.DataFrame, shares: FamilyShares) -> np.ndarray:
    """[n] us of calls of one kind."""
    flops, moved, rate, kernels = (rows[name].to_numpy(float) for name in ("flops", "bytes", "rate", "kernels"))
    power = POWER.get(str(rows["kind"].iloc[0]), POWER[OTHERS])
    return shares_us(flops, moved, rate, kernels, shares, rows["bandwidth"].to_numpy(float), power)


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
    own = time.groupby(rows["kind"]).transform("sum") >= LEAST_US
    parts = {str(kind): part for kind, part in rows[own].groupby("kind")}
    first = {str(kind): fit_shares(parts[kind], START) for kind in (OpFamily.GEMM, OpFamily.COPY) if kind in parts}
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
    out = requested_file(CDNA_FILE)
    rows = pd.concat([*measured(), *measured_nodes()], ignore_index=True)
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
    for name, part in [*rows.groupby("kind"), *rows.groupby("program"), *rows.groupby("device")]:
        ms = (part["measured_us"] * part["number"]).sum() / 1e3
        texts = [total_and_error(part[f"{way}_us"].to_numpy(float), part) for way in ("roofline", "own", "left_out")]
        print(f"{str(name)[-40:]:40s} {len(part):5d} {part['program'].nunique():5d} {ms:8.1f}  {'  '.join(texts)}")
    write_constants(out, constants, DIGITS)
    print(out.read_text())


if __name__ == "__main__":
    main()
