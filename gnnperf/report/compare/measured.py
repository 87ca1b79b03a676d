"""A trace as one of the two sides: its step as measured, with the critical path of what was measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gnnperf.core import InputError, Source, StepTimeKind
from gnnperf.graph import ExecutionGraph, Prediction, load_graph
from gnnperf.hardware import match_device
from gnnperf.predict import Mode, Question, assemble, choose_step, measured_step_time_us, step_time_kind, traced_name
from gnnperf.report.compare.side import Side, work
from gnnperf.report.summary import nodes_table
from gnnperf.schedule import measured_latencies

MEASURED = "measured"


def read_measured(trace: Path, step: int | None = None, cache_dir: Path | None = None) -> Side:
    """A measured step of a trace."""
    if not trace.exists():
        raise InputError("no such file or directory", where=str(trace),
                         allowed="a folder that predict.py wrote, or a trace")  # fmt: skip
    return measured_side(load_graph(trace, cache_dir), str(trace), step)


def measured_side(graph: ExecutionGraph, where: str, step: int | None = None) -> Side:
    """A measured step of a graph; gaps and latencies that were not measured take the medians of their class."""
    label = choose_step(graph, step)
    one = graph.step(label.step)
    latency_us, lag_us = (np.nan_to_num(values) for values in measured_latencies(one))
    unknown = np.full(one.num_nodes, np.nan)
    source = np.full(one.num_nodes, Source.MEASURED, dtype=object)
    prediction = Prediction(one, latency_us, lag_us, source, unknown, unknown, unknown, {})
    question = Question(label, label.step, Mode.replay, "", "", traced_name(graph), True, {})
    return Side(
        where=where,
        run=graph.name,
        who=MEASURED,
        hardware=", ".join(dict.fromkeys(_catalog_name(name) for name in graph.device_names if name)),
        step_time_us=measured_step_time_us(label),
        step_time_kind=StepTimeKind(step_time_kind(label)),
        is_lower_bound=False,
        nodes=work(nodes_table(assemble(prediction, question))),
    )


def _catalog_name(traced: str) -> str:
    """The name by which predictions know the device; the trace's own where the catalog does not know it."""
    device = match_device(traced)
    return traced if device is None else device.name
