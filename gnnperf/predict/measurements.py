"""Measurements of a trace as a value: steps and outliers, latencies per class of nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from gnnperf.core import NodeType
from gnnperf.graph import ExecutionGraph, StepLabel
from gnnperf.predict.request import Profiler, TraceEvidence
from gnnperf.schedule import OUTLIER, MeasuredStep, step_us

LEAST_STEPS = 3  # fewer do not say which one is odd
LEAST_CALLS = 8  # of a class; fewer have no quantiles
LEVEL = 0.9
# What makes two nodes one class; the launch configuration is of kernels only.
CLASS = ["node_type", "segment", "op_name", "event_name", "input_dims", "dtype", "message_bytes", "group_size", "phase",
         "stream", "grid", "block", "registers", "shared_bytes"]  # fmt: skip
COPY = (
    "The step time is rebuilt from the step's own measured latencies: it checks the graph and is no forecast "
    "(evidence=other_steps forecasts, evidence=none predicts blind)."
)
FORECAST = "The step time is a forecast from the measured latencies of step {}."
REMOVED = "Host work is shortened by the profiler's own cost (profiler=remove); steps measured in the trace contain it."
STALLS = "{stalls} {ms:.1f} ms in this step, as measured (stalls=remove predicts without them)."


def outlier_steps(steps: Sequence[StepLabel]) -> frozenset[int]:
    """Ordinals of steps that take OUTLIER times the median step, or its inverse; none of fewer than LEAST_STEPS."""
    times_us = np.array([step_us(step) for step in steps])
    if len(steps) < LEAST_STEPS or not np.isfinite(times_us).all():
        return frozenset()
    away = np.abs(np.log(np.maximum(times_us, 1e-9) / np.median(times_us))) > np.log(OUTLIER)
    return frozenset(step.step for step, odd in zip(steps, away, strict=True) if odd)


@dataclass(frozen=True)
class TraceMeasurements:
    """What a trace measured, over all of its steps and ranks."""

    graph: ExecutionGraph  # of the trace, with labels

    @property
    def steps_us(self) -> dict[int, float]:
        """Step -> its measured time (`step_us`)."""
        return {step.step: step_us(step) for step in self.graph.steps}

    @cached_property
    def outliers(self) -> frozenset[int]:
        """Steps that are far from the others (`outlier_steps`), and from those of their own shapes."""
        rows = pd.DataFrame({"us": self.steps_us, "shapes": self.shapes})
        of_shapes = rows.groupby("shapes")["us"]
        away = np.abs(np.log(rows["us"].clip(lower=1e-9) / of_shapes.transform("median"))) > np.log(OUTLIER)
        blocks = (rows["shapes"] != rows["shapes"].shift()).cumsum()  # a warm-up with ops of its own does not return
        returns = blocks.groupby(rows["shapes"]).transform("nunique") > 1
        like = of_shapes.transform("size")
        is_usual = ~away & (like > 1) & (returns | (like >= len(rows) / 4))
        return outlier_steps(self.graph.steps) & set(rows.index[~is_usual])

    @cached_property
    def shapes(self) -> dict[int, int]:
        """Step -> number of its set of shapes, from 0 in order of appearance: inputs of all work on devices."""
        nodes = self.graph.nodes
        on_device = nodes["node_type"].isin((NodeType.COMPUTE, NodeType.MEMORY)).to_numpy()
        works = nodes[["op_name", "input_dims", "step"]][on_device]
        calls = works.groupby(["op_name", "input_dims"], observed=True, dropna=False, sort=False).ngroup().to_numpy()
        sums = pd.Series(pd.util.hash_array(calls), works["step"].to_numpy()).groupby(level=0).sum()
        numbers, _ = pd.factorize(sums.reindex([step.step for step in self.graph.steps], fill_value=0))
        return {step.step: int(number) for step, number in zip(self.graph.steps, numbers, strict=True)}

    @cached_property
    def classes(self) -> pd.DataFrame:
        """One row per class of nodes: columns of CLASS, num_calls, and low_us and high_us (quantiles of LEVEL).

        Host segments T1 to T5, kernels, copies, arrivals, exits and transfers are all nodes.
        """
        nodes = self.graph.nodes[[*CLASS, "latency_us"]].dropna(subset="latency_us")
        groups = nodes.groupby(CLASS, sort=False, observed=True, dropna=False)
        us = groups["latency_us"]
        low, high = (1 - LEVEL) / 2, (1 + LEVEL) / 2
        table = {"num_calls": us.count(), "low_us": us.quantile(low), "high_us": us.quantile(high)}
        return pd.DataFrame(table).reset_index()

    def bounds_us(self, nodes: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        """[num_nodes] quantiles of LEVEL of each node's class; NaN where it has fewer than LEAST_CALLS measurements.

        The nodes are of the trace's graph, or of one step of it.
        """
        known = self.classes[self.classes["num_calls"] >= LEAST_CALLS]
        rows = _plain(known).join(known[["low_us", "high_us"]])
        both = _plain(nodes).merge(rows, on=CLASS, how="left")
        return both["low_us"].to_numpy(np.float64), both["high_us"].to_numpy(np.float64)


def _plain(rows: pd.DataFrame) -> pd.DataFrame:
    """The columns of CLASS as objects, whose missing values are equal to each other."""
    plain = rows[CLASS].astype(object)
    return plain.where(plain.notna(), "")


def evidence_name(measured: MeasuredStep | None) -> str:
    """What the provenance of a prediction states: the kind of measurements that it starts from."""
    if measured is None:
        return str(TraceEvidence.none)
    return str(TraceEvidence.other_steps if measured.from_other_steps else TraceEvidence.trace)


def trace_notes(measured: MeasuredStep | None, same_hardware: bool, profiler: Profiler) -> tuple[str, ...]:
    """Sentences on the measurements that a prediction starts from."""
    if measured is None:
        return ()
    stalls_us = measured.stalls_us
    count = int((stalls_us > 0).sum())
    named = f"{count} stall{' takes' if count == 1 else 's take'}"
    stalls = (STALLS.format(stalls=named, ms=stalls_us.sum() / 1e3),) if count else ()
    if profiler is Profiler.remove:
        stalls = (REMOVED, *stalls)
    if not same_hardware:
        return stalls
    made_of = FORECAST.format(measured.graph.steps[0].step) if measured.from_other_steps else COPY
    return (made_of, *stalls)
