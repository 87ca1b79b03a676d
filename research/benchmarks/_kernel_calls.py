"""Op calls of public GPU traces with the measured time of their kernels, and what each model answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from gnnperf.analytic import default_constants
from gnnperf.analytic.kernels.call import KernelCall
from gnnperf.analytic.kernels.dispatch import kernel_times, roofline_us
from gnnperf.analytic.kernels.nodes import distinct_calls
from gnnperf.core import NodeType
from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import DeviceSpec, match_device
from gnnperf.trace import RunTrace
from gnnperf.trace.public.catalog import Recording, load_catalog, recordings
from research.benchmarks._public_runs import imported
from research.pretraining.answer import corrections
from research.pretraining.choice import by_sizes_only
from research.pretraining.op_checkpoint import TRAINED, OpCheckpoint, load_op_checkpoint

FORM, BY_SIZES = "form", "network, by sizes alone"
TF32, ROOFLINE, OTHER_RUNS, OTHER_PROJECTS = "form, if TF32", "roofline", "op, other runs", "op, other projects"
ANSWERS = (FORM, TF32, ROOFLINE, OTHER_RUNS, OTHER_PROJECTS)
MOST_NODES = 20_000  # of one run
MOST_RECORDINGS = 6  # of one project on one GPU: one project published 35 of one program
CALL = ["gpu", "project", "run", "rank", "owner"]


def learned_us(
    checkpoint: OpCheckpoint, calls: Sequence[KernelCall], form_us: np.ndarray, device: DeviceSpec
) -> np.ndarray:
    """[num_calls] what networks of op tables answer; NaN where they do not."""
    result = corrections(checkpoint, calls, form_us, device)
    return np.where(result.answered, form_us * np.exp(result.log_factor), np.nan)


def gpu_recordings() -> Iterator[Recording]:
    """Kineto recordings with shapes, on a GPU that the catalog of files names."""
    counted: dict[tuple[str, str | None], int] = {}
    for recording in recordings([e for e in load_catalog() if e.run]):
        traces = [e for e in recording.entries if e.kind in ("kineto", "archive") and e.gpu]
        if not traces or not any(e.with_shapes == "yes" for e in recording.entries):
            continue
        key = traces[0].repo, traces[0].gpu
        counted[key] = counted.get(key, 0) + 1
        if counted[key] <= MOST_RECORDINGS:
            yield recording


def measured_calls() -> pd.DataFrame:
    """One row per op call of every recording: measured us, and every answer."""
    checkpoint = by_sizes_only(load_op_checkpoint(TRAINED)) if TRAINED.is_file() else None
    result = [_calls(checkpoint, recording, *imported(recording)) for recording in gpu_recordings()]
    calls = pd.concat([f for f in result if len(f)], ignore_index=True)
    calls[OTHER_RUNS] = median_of_others(calls, "run")
    calls[OTHER_PROJECTS] = median_of_others(calls, "project")
    return calls


def _calls(checkpoint: OpCheckpoint | None, recording: Recording, run: RunTrace, graph: ExecutionGraph) -> pd.DataFrame:
    nodes = graph.nodes[(graph.nodes["node_type"] == NodeType.COMPUTE) & (graph.nodes["stream"] >= 0)][:MOST_NODES]
    device = match_device(graph.device_names[0])
    if device is None or nodes.empty:
        return pd.DataFrame()
    calls, code = distinct_calls(nodes)
    power = default_constants().roofline_power
    times = kernel_times(calls, device, power)
    allowed = kernel_times([replace(call, tf32=True) for call in calls], device, power).latency_us
    allowed = np.where(allowed == times.latency_us, np.nan, allowed)  # an answer of its own for float32 products only
    kernels = np.array([call.num_kernels for call in calls], float)
    by_sizes = np.full(len(calls), np.nan)
    if checkpoint is not None:
        by_sizes = learned_us(checkpoint, calls, times.latency_us, device)
    plain = roofline_us(calls, device, power) + (kernels - 1) * device.launch_floor_us
    rows = pd.DataFrame({
        "gpu": device.name, "project": recording.entries[0].repo, "run": recording.name,
        "rank": nodes["rank"].to_numpy(), "owner": _owners(run, graph, nodes),
        "op_name": nodes["op_name"].astype(object).to_numpy(), "family": nodes["family"].astype(object).to_numpy(),
        "by_form": times.by_form[code], "measured_us": nodes["latency_us"].to_numpy(float),
        FORM: (times.latency_us / kernels)[code],
        BY_SIZES: (by_sizes / kernels)[code], TF32: (allowed / kernels)[code], ROOFLINE: (plain / kernels)[code],
    })  # fmt: skip
    summed = {name: (name, lambda v: v.sum(skipna=False)) for name in ("measured_us", FORM, BY_SIZES, TF32, ROOFLINE)}
    whole = rows.groupby(CALL, sort=False).agg(
        op_name=("op_name", "first"), family=("family", "first"), by_form=("by_form", "first"), **summed
    )
    return whole.reset_index()


def _owners(run: RunTrace, graph: ExecutionGraph, nodes: pd.DataFrame) -> np.ndarray:
    """[n] the event of the op call behind each kernel; a number of its own where there is none."""
    place = {rank: i for i, rank in enumerate(graph.ranks)}
    ops = [table.events["op_event"].to_numpy() for table in run.tables]
    result = np.array([ops[place[r]][e] for r, e in zip(nodes["rank"], nodes["event_id"], strict=True)])
    return np.where(result >= 0, result, -1 - np.arange(len(nodes)))


def median_of_others(calls: pd.DataFrame, left_out: str) -> np.ndarray:
    """[n] the median time of the op's name over the calls of other runs (or projects); NaN: it is in no other."""
    result = np.full(len(calls), np.nan)
    for _, part in calls.groupby("op_name"):
        for name in part[left_out].unique():
            own = part[left_out] == name
            others = part.loc[~own, "measured_us"]
            result[part.index[own]] = others.median() if len(others) else np.nan
    return result
