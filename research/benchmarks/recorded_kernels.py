"""Kernels of recorded GPU runs, blind: closed forms next to the plain roofline, by what the fits had seen.

    python -m research.benchmarks recorded_kernels

Prints a Markdown table. Latencies of equal calls of a run are means over its steps. The programs that train in the
split `program` gave constants; "others" are all other recordings. Errors are weighted by time: sum of |predicted -
measured| over measured. "total" is predicted over measured.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.analytic import default_constants
from gnnperf.analytic.kernels.dispatch import kernel_times, roofline_us
from gnnperf.analytic.kernels.nodes import distinct_calls
from gnnperf.core import NodeType, OpFamily
from gnnperf.gnn.data.recordings import read_json, read_recordings
from gnnperf.graph import load_graph
from gnnperf.hardware import load_device
from research.benchmarks._frame import print_head, print_row, run_main

DATA, DEVICE = Path("datasets/h200"), "h200"
TRAIN, OTHERS = "train", "others"
LEAST_SHARE = 0.005  # of the time: families and ops below it are in the sum only
CALL = ["run", "op_name", "family", "input_dims", "dtype"]


def kernels() -> pd.DataFrame:
    """A row per distinct call of a recording: us of all its kernels, measured, by form and by roofline."""
    train = set(read_json(DATA / "splits.json")["program"]["train"])
    device, power = load_device(DEVICE), default_constants("gpu").roofline_power
    parts = []
    for recording in (one for repeats in read_recordings(DATA).values() for one in repeats.values()):
        nodes = load_graph(recording.path, None).nodes
        nodes = nodes[((nodes["node_type"] == NodeType.COMPUTE) & (nodes["stream"] >= 0)).to_numpy()]
        calls, code = distinct_calls(nodes)
        num_kernels = np.array([call.num_kernels for call in calls], float)  # [num_calls]
        form_us, plain_us = kernel_times(calls, device, power).latency_us, roofline_us(calls, device, power)
        rows = nodes[CALL[1:]].astype(object).assign(
            run=recording.name, part=TRAIN if recording.name in train else OTHERS,
            measured_us=nodes["latency_us"].to_numpy(float), form=(form_us / num_kernels)[code],
            roofline=(plain_us / num_kernels)[code])  # fmt: skip
        parts.append(rows)
    every = pd.concat(parts, ignore_index=True)
    means = every.groupby([*CALL, "part"], dropna=False)[["measured_us", "form", "roofline"]].agg(["mean", "size"])
    count = means["measured_us", "size"]
    result = pd.DataFrame({name: means[name, "mean"] * count for name in ("measured_us", "form", "roofline")})
    return result.reset_index()


def _figures(rows: pd.DataFrame) -> list[str]:
    known = rows[rows["form"].notna() & (rows["measured_us"] > 0)]
    if known.empty:
        return ["-"] * 4
    us = known["measured_us"].sum()
    errors = [f"{100 * (known[name] - known['measured_us']).abs().sum() / us:.1f}" for name in ("form", "roofline")]
    return [f"{us / 1e3:.1f}", *errors, f"{known['form'].sum() / us:.2f}"]


def main() -> None:
    rows = kernels()
    backward = rows["op_name"].str.contains("backward").map({True: ", backward", False: ""})
    apart = rows["family"].isin([str(one) for one in (OpFamily.CONV, OpFamily.ATTENTION, OpFamily.NORM)])
    rows["kind"] = rows["family"] + backward.where(apart, "")  # with the direction where that has forms of its own
    share = rows.groupby("part")["measured_us"].sum()
    columns = ("ms", "error by time %", "roofline %", "total")
    print_head("kernels", *(f"{name}, {part}" for part in (TRAIN, OTHERS) for name in columns))
    groups = [(str(name), part) for name, part in rows.groupby("kind")]
    shown = [(name, part) for name, part in groups
             if part["measured_us"].sum() > LEAST_SHARE * share.sum() and part["form"].notna().any()]  # fmt: skip
    for name, part in [*shown, ("all", rows)]:
        print_row(name, *(figure for own in (TRAIN, OTHERS) for figure in _figures(part[part["part"] == own])))


if __name__ == "__main__":
    run_main(main)
