"""Fit constants of kernels that no op table has, on the training programs of the recorded H200 runs (datasets/h200).

    GNNPERF_DATA_MIRROR=FOLDER python -m research.fitting.recorded [OUT.yaml]

writes programs, lane_cycles, index_cycles, clocks and convolution into conf/analytic/memory_bound.yaml; for attention,
it prints but retains what ships.
A constant is fitted on the calls that it decides: those which take another time with twice its value. A call weighs the
root of its share of the time. A V100's traces (pytorch/kineto, BSD) take part in max pooling, which weighs GPUs evenly.
Sums of images that are channels last take no part: calls do not show it.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gnnperf.analytic.attention import CUDNN
from gnnperf.analytic.convolution.model import default_convolution_constants
from gnnperf.analytic.gemm.constants import default_gemm_constants
from gnnperf.analytic.kernels.call import Setting, sized
from gnnperf.analytic.kernels.dispatch import FORMS
from gnnperf.analytic.kernels.nodes import distinct_calls
from gnnperf.analytic.memory_bound.calls import rows_of_columns
from gnnperf.analytic.memory_bound.constants import MEMORY_BOUND_FILE, MemoryConstants, default_memory_constants
from gnnperf.analytic.memory_bound.streams import CONCATENATION, OTHER
from gnnperf.core import NodeType, OpFamily
from gnnperf.gnn.data.recordings import read_json, read_recordings
from gnnperf.graph import ExecutionGraph, load_graph
from gnnperf.hardware import load_device
from research.benchmarks._frame import print_head, print_row
from research.benchmarks.trace_evidence import gpu_recordings
from research.fitting.batch_norm import PUBLIC, PUBLIC_DEVICE
from research.fitting.files import requested_file, write_constants
from research.fitting.logs import fit_logs, softened
from research.tables import grouped

DATA, DEVICE = Path("datasets/h200"), "h200"
TRAIN, OTHERS = "train", "others"  # parts of the recordings
KEPT = (OTHER, "pow", CONCATENATION)  # lane cycles of other sources
PROGRAMS = "programs"
SUMMED_COLUMNS = "reduce_kernel<128, 4"  # torch's kernel of columns that are contiguous, by vectors (Reduce.cuh)
POOLING = "aten::max_pool2d_with_indices_backward"
DECIDES, DISTURBED, DIGITS = 0.05, 0.1, 4
Form = Callable[[pd.DataFrame, float], np.ndarray]  # calls, value of a constant -> [n] us


def calls_of(graph: ExecutionGraph) -> pd.DataFrame:
    """A row per distinct call of a GPU: us of all its kernels and of all such calls, and their number."""
    nodes = graph.nodes[((graph.nodes["node_type"] == NodeType.COMPUTE) & (graph.nodes["stream"] >= 0)).to_numpy()]
    calls, code = distinct_calls(nodes)
    times = nodes["latency_us"].groupby(code).agg(["mean", "sum"]).reindex(range(len(calls)))
    result = pd.DataFrame({"call": calls, "op": [c.op_name for c in calls], "family": [str(c.family) for c in calls],
                           "kernels": [c.num_kernels for c in calls], "total_us": times["sum"]})  # fmt: skip
    us = times["mean"] * result["kernels"]
    columns = nodes["event_name"].astype(str).str.contains(SUMMED_COLUMNS, regex=False).groupby(code).any()
    last = columns.reindex(range(len(calls))).to_numpy(bool) & (sized(calls, rows_of_columns, 2)[:, 1] > 0)
    return result.assign(us=us, number=times["sum"] / us, channels_last=last)


def recorded_calls(data: Path = DATA, device: str = DEVICE) -> pd.DataFrame:
    """Calls of all recordings, and whether they draw a mask of dropout; those of training programs gave constants."""
    parts_of = {name: part for part, names in read_json(data / "splits.json")["program"].items() for name in names}
    parts = []
    for one in (one for repeats in read_recordings(data).values() for one in repeats.values()):
        calls = calls_of(load_graph(one.path, None))
        calls["dropped"] = calls["op"].str.endswith(CUDNN) & (calls["kernels"] > 1)  # backward calls do not show it
        split = parts_of.get(one.name, "not listed")
        part = TRAIN if split == TRAIN else OTHERS
        parts.append(calls.assign(part=part, split=split, run=one.name, masked=bool(calls["dropped"].any())))
    return pd.concat(parts, ignore_index=True).assign(device=device)


def forms_us(rows: pd.DataFrame, memory: MemoryConstants) -> np.ndarray:
    """[n] us of calls by these constants."""
    result = np.empty(len(rows))
    for (name, family), places in grouped(rows, ("device", "family")):
        device, kernels = load_device(name), rows["kernels"].to_numpy()[places]
        setting = Setting(device, memory, default_gemm_constants(), default_convolution_constants())
        us = FORMS[family](rows["call"].iloc[places].tolist(), setting)
        result[places] = us + (kernels - 1) * device.launch_floor_us
    return result


def changed(memory: MemoryConstants, field: str, key: str, value: float) -> MemoryConstants:
    """Constants with one other value; of programs, that of the device's generation."""
    own, generation = getattr(memory, field), load_device(DEVICE).architecture or ""
    other = {generation: replace(own[generation], **{key: value})} if field == PROGRAMS else {key: value}
    values: dict[str, Any] = {field: {**own, **other}}
    return replace(memory, **values)


def changed_us(memory: MemoryConstants, field: str, key: str, rows: pd.DataFrame, value: float) -> np.ndarray:
    return forms_us(rows, changed(memory, field, key, value))


def fitted(name: str, ships: float, us: Form, rows: pd.DataFrame) -> float:
    """The value that gives the times of training programs; prints what it is worth, on others, too."""
    decided = rows[np.abs(us(rows, 2.0 * ships) / us(rows, ships) - 1.0) > DECIDES]
    train, others = (decided[decided["part"] == part] for part in (TRAIN, OTHERS))
    weight = np.sqrt(train["total_us"] / train.groupby("device")["total_us"].transform("sum") * len(train))

    def residuals(values: np.ndarray) -> np.ndarray:
        off = np.log(us(train, float(values[0])) / train["us"].to_numpy())
        return np.asarray(weight * softened(off, DISTURBED))

    value = float(fit_logs(residuals, np.array([ships]), 0.0)[0])
    shown = []
    for own in (train, others):
        error, time = np.abs(us(own, value) / own["us"] - 1.0), own["total_us"]
        shown += [len(own), f"{time.sum() / 1e3:.1f}", f"{100 * (error * time).sum() / max(time.sum(), 1.0):.0f} %"]
    print_row(name, ships, f"{value:.4g}", *shown)
    return value


def main() -> None:
    """Fit, judge and write."""
    out = requested_file(MEMORY_BOUND_FILE)
    pooled = [calls_of(graph).query("op == @POOLING") for _, graph in gpu_recordings(PUBLIC)]
    others = pd.concat(pooled).assign(part=TRAIN, device=PUBLIC_DEVICE, dropped=False, masked=False)
    rows = pd.concat([recorded_calls(), others], ignore_index=True)
    families = [str(family) for family in FORMS if family != OpFamily.GEMM]
    rows = rows[rows["family"].isin(families) & (rows["us"] > 0) & ~rows["channels_last"]]
    memory = default_memory_constants()
    print_head("constant", "ships", "fitted", *("calls", "ms", "error by time") * 2)
    backward = rows["op"].str.endswith("attention_backward") & ~rows["masked"]
    attentions = {"backward_share": rows[backward], "dropout_slowdown": rows[rows["dropped"]],
                  "float32_flops_per_clock": rows[rows["op"].str.contains("efficient_attention")]}  # fmt: skip
    for key, own in attentions.items():
        fitted(key, memory.attention[key], partial(changed_us, memory, "attention", key), own)
    streams = asdict(memory.programs[load_device(DEVICE).architecture or ""])
    fields = {name: tuple(key for key in getattr(memory, name) if key not in KEPT)
              for name in ("lane_cycles", "index_cycles", "clocks", "convolution")}  # fmt: skip
    for field, keys in {PROGRAMS: tuple(streams), **fields}.items():
        for key in keys:
            ships = streams[key] if field == PROGRAMS else getattr(memory, field)[key]
            value = fitted(key, ships, partial(changed_us, memory, field, key), rows)
            memory = changed(memory, field, key, value)
    write_constants(out, memory, DIGITS)


if __name__ == "__main__":
    main()
