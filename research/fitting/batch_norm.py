"""Fit conf/analytic/batch_norm.yaml on recorded H200 and H100 runs and public ResNet-50 traces of a V100.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.fitting.batch_norm [OUT.yaml]

Of recorded runs, programs that train in the split `program` take part. Prints errors by kernel and device, of the
others, too. An SM loads 128 bytes in a clock (CUDA C++ best practices guide): memory bounds cuDNN's kernels before.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.analytic import batch_norm
from gnnperf.core import NodeType
from gnnperf.gnn.data.recordings import read_json
from gnnperf.graph import ExecutionGraph, load_graph
from gnnperf.hardware import load_device
from research.benchmarks.trace_evidence import gpu_recordings
from research.fitting.files import requested_file, write_constants
from research.fitting.logs import fit_logs, softened

RECORDED = {"h200": Path("datasets/h200"), "h100_sxm": Path("datasets/h100")}
PUBLIC, PUBLIC_DEVICE = ("kineto-resnet50",), "v100_dgxs_32gb"
APPLY = "apply"
KERNELS = {"batch_norm_collect_statistics": "aten::native_batch_norm",
           "batch_norm_backward_kernel": "aten::native_batch_norm_backward", "bn_fw_tr": "aten::cudnn_batch_norm",
           "bn_bw": "aten::cudnn_batch_norm_backward", "batch_norm_transform_input": APPLY}  # fmt: skip
LEAST_US = 8.0  # shorter kernels are mostly their floor
DIGITS = 4
DISTURBED = 0.1  # log residuals beyond that count linearly
KEYS = ["trains", "device", "kind", "samples", "channels", "elements", "item_bytes"]


def graphs() -> Iterator[tuple[bool, str, ExecutionGraph]]:
    """(whether it trains, device, graph) of every recording."""
    for device, folder in RECORDED.items():
        train = read_json(folder / "splits.json")["program"]["train"]
        for run in sorted(folder.glob("*/[0-9]*")):
            yield f"{run.parent.name}/{run.name}" in train, device, load_graph(run, None)
    for _, graph in gpu_recordings(PUBLIC):
        yield True, PUBLIC_DEVICE, graph


def measured_kernels(trains: bool, device: str, graph: ExecutionGraph) -> pd.DataFrame:
    """A row per distinct kernel of batch norms: KEYS and the mean of what it took (`latency_us`)."""
    nodes = graph.nodes[(graph.nodes["node_type"] == NodeType.COMPUTE).to_numpy()]
    kind = nodes["event_name"].astype(str).map(lambda name: next((KERNELS[k] for k in KERNELS if k in name), ""))
    nodes = nodes[((kind != "") & nodes["input_dims"].notna()).to_numpy()]
    shapes = [json.loads(text)[0] for text in nodes["input_dims"].astype(str)]
    rows = pd.DataFrame({
        "trains": trains, "device": device, "kind": kind[nodes.index], "samples": [float(s[0]) for s in shapes],
        "channels": [float(s[1]) for s in shapes], "elements": [float(np.prod(s[2:]) * s[0]) for s in shapes],
        "item_bytes": np.where(nodes["dtype"].astype(str) == "float32", 4, 2), "latency_us": nodes["latency_us"],
    })  # fmt: skip
    return rows.groupby(KEYS)["latency_us"].mean().reset_index()


def predicted_us(rows: pd.DataFrame, constants: batch_norm.BatchNormConstants) -> np.ndarray:
    """[n] us of single kernels."""
    result = []
    for row in rows[KEYS].to_dict("records"):
        device = load_device(row["device"])
        sizes = (row["elements"], row["channels"])
        if row["kind"] == APPLY:
            us = batch_norm.apply_us(*sizes, row["samples"], row["item_bytes"], device, constants.apply)
        else:
            us = batch_norm.channel_us(
                *sizes, row["item_bytes"], device, constants.kernels[row["kind"]], constants.overlap_power
            )
        result.append(device.launch_floor_us + us)
    return np.array(result)


def fitted(table: pd.DataFrame, base: batch_norm.BatchNormConstants) -> batch_norm.BatchNormConstants:
    """Two numbers of every kind of kernel, by least squares of logarithms."""
    result = base
    for kind, rows in table.groupby("kind"):
        result = _fit(str(kind), rows, result)
    return result


def _fit(kind: str, rows: pd.DataFrame, base: batch_norm.BatchNormConstants) -> batch_norm.BatchNormConstants:
    measured_us = rows["latency_us"].to_numpy()

    def residuals(values: np.ndarray) -> np.ndarray:
        return softened(np.log(predicted_us(rows, _moved(base, kind, values)) / measured_us), DISTURBED)

    if kind == APPLY:
        start = [base.apply.block_us_per_sm, base.apply.bytes_per_clock]
    else:
        start = [base.kernels[kind].block_bytes_per_clock, getattr(base.kernels[kind], _bound(kind))]
    return _moved(base, kind, fit_logs(residuals, np.array(start)))


def _moved(base: batch_norm.BatchNormConstants, kind: str, values: np.ndarray) -> batch_norm.BatchNormConstants:
    first, bound = values.tolist()
    if kind == APPLY:
        return replace(base, apply=replace(base.apply, bytes_per_clock=bound, block_us_per_sm=first))
    kernel = replace(base.kernels[kind], block_bytes_per_clock=first, **{_bound(kind): bound})
    return replace(base, kernels={**base.kernels, kind: kernel})


def _bound(kind: str) -> str:
    """What bounds many channels: memory (cuDNN), or issuing (torch)."""
    return "bandwidth_share" if "cudnn" in kind else "bytes_per_clock"


def report(name: str, table: pd.DataFrame, constants: batch_norm.BatchNormConstants) -> None:
    """Mean absolute error and bias by kind and device."""
    for (kind, device), rows in table.groupby(["kind", "device"]):
        error = predicted_us(rows, constants) / rows["latency_us"].to_numpy() - 1.0
        print(f"{name}: {kind}, {device}: {len(rows)} kernels, {np.abs(error).mean():.1%}, bias {error.mean():+.1%}")


def main() -> None:
    """Fit and write."""
    base = batch_norm.default_batch_norm_constants()
    table = pd.concat([measured_kernels(*each) for each in graphs()])
    table = table[table["latency_us"] > LEAST_US]
    result = fitted(table[table["trains"]], base)
    for name, part in (("others", table[~table["trains"]]), ("train", table[table["trains"]])):
        report(name, part, result)
    out = requested_file(batch_norm.BATCH_NORM_FILE)
    write_constants(out, result, DIGITS)


if __name__ == "__main__":
    main()
