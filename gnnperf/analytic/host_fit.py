"""Fit host overheads, lags and prices of CPU ops on measured graphs."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pandas as pd

from gnnperf.analytic.constants import LAG_CLASSES, SEGMENTS, AnalyticConstants, default_constants
from gnnperf.analytic.cpu.coefficients import core_numbers
from gnnperf.analytic.cpu.fit import fit_op_prices
from gnnperf.analytic.cpu.measured import recorded_calls
from gnnperf.core import InputError, NodeType, Segment
from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import DeviceSpec

# Host nodes and edges: mean own time per segment and op, T4 per runtime call (Lin et al. 2022, section 3.2), and lags.
#
# Exits of collectives are like host nodes. An edge has a constant delay per lag class and kind of device.


def overhead_keys(nodes: pd.DataFrame) -> pd.Series:
    """[n] what a node's overhead depends on next to its segment: the runtime call (T4), else the op."""
    ops = nodes["op_name"].astype(object)
    calls = nodes["event_name"].astype(object)
    return calls.where((nodes["segment"] == Segment.T4).to_numpy() & calls.notna(), ops)


def host_us(nodes: pd.DataFrame, constants: AnalyticConstants, host_speed: float) -> np.ndarray:
    """[n] us of host nodes: their overhead divided by `host_speed`, the host's relative single-thread speed."""
    return overhead_us(nodes, constants) / host_speed


def overhead_us(nodes: pd.DataFrame, constants: AnalyticConstants) -> np.ndarray:
    """The constant of (segment, op or call), else of the segment."""
    segment_code, segment_names = pd.factorize(nodes["segment"])
    op_code, ops = pd.factorize(overhead_keys(nodes), use_na_sentinel=True)
    pair = (segment_code + 1) * (len(ops) + 1) + op_code + 1  # [n] one number per (segment, op)
    pair_code, distinct = pd.factorize(pair)
    table = np.array([_lookup(int(p), segment_names, ops, constants) for p in distinct])  # [num_pairs]
    return table[pair_code] if len(pair_code) else np.empty(0)


def _lookup(pair: int, segments: pd.Index, ops: pd.Index, constants: AnalyticConstants) -> float:
    segment_at, op_at = divmod(pair, len(ops) + 1)
    if segment_at == 0:
        return np.nan
    segment = str(segments[segment_at - 1])
    back_off = constants.segment_us.get(segment, np.nan)
    return constants.host_overhead_us.get((segment, str(ops[op_at - 1])), back_off) if op_at else back_off


def lag_us(classes: pd.Series, device_kind: str, constants: AnalyticConstants) -> np.ndarray:
    """Delay along each edge [num_edges] us; 0 where the edge has no class.

    Raises InputError: a class without a constant.
    """
    table = constants.lag_us[device_kind]
    code, names = pd.factorize(classes)
    missing = [str(n) for n in names if n not in table]
    if missing:
        raise InputError(f"lag class {missing[0]!r} has no constant", where="graph edges", allowed=", ".join(table))
    values = np.array([0.0, *(table[str(n)] for n in names)])
    return values[code + 1]


def on_reference_host(graph: ExecutionGraph, host_speed: float) -> ExecutionGraph:
    """The graph with host latencies as on the host of speed 1, which overheads hold for."""
    if host_speed == 1.0:
        return graph
    nodes = graph.nodes
    us = nodes["latency_us"] * np.where(nodes["node_type"] == NodeType.HOST, host_speed, 1.0)
    return replace(graph, nodes=nodes.assign(latency_us=us))


MIN_SAMPLES = 5  # fewer back off to the segment
FENCE = 3.0  # Tukey's outer fence, in interquartile ranges
# Of an op that occurs often in the runs that a network trains on: within 3, long segments that every step has are cut,
# and sums are too short. Shipped constants stay within 3: stalls of the training runs do not transfer.
SUM_FENCE, OFTEN = 30.0, 50
ALWAYS_KEPT = 2.0  # up to this multiple of the upper quartile: old traces count whole us, and the range may be zero


def robust_mean(values: np.ndarray, fence: float = FENCE) -> float:
    """Mean without values beyond `fence` interquartile ranges: sums need a mean, but pre-emptions must not set it."""
    low, high = np.quantile(values, [0.25, 0.75])
    return float(values[values <= max(high + fence * (high - low), ALWAYS_KEPT * high)].mean())


def fit_constants(
    graphs: Iterable[ExecutionGraph], device: DeviceSpec, calibrated: pd.DataFrame | None = None,
    often_fence: float = FENCE,
) -> AnalyticConstants:  # fmt: skip
    """Constants of graphs of one kind of device; runs whose ranks share cores count only if there are no others.

    Graphs have labels. `calibrated`: calls of the device's own op table (cpu.measured.read_calibrated_calls); CPU only.
    `often_fence` is that of host overheads.
    """
    every = list(graphs)
    result = [g for g in every if g.placement is None or not g.placement.shares_cores] or every
    base = default_constants()
    if device.kind != "gpu":  # nothing that was fitted on CPU runs, which may be those that are held out
        base = replace(base, device_kind=device.kind, host_overhead_us={}, op_prices=None)
    start = fit_host_overheads(result, base, often_fence=often_fence)
    start = fit_lags(result, device.kind, start)
    calls = recorded_calls(result) if device.kind == "cpu" else pd.DataFrame()
    if calls.empty:
        return start
    both = calls if calibrated is None else pd.concat([calls, calibrated], ignore_index=True)
    return replace(start, op_prices=fit_op_prices(both, core_numbers(device)))


def fit_host_overheads(
    graphs: Iterable[ExecutionGraph], base: AnalyticConstants | None = None, often_fence: float = FENCE
) -> AnalyticConstants:  # fmt: skip
    """Constants with the host overheads of these graphs.

    Robust mean per (segment, op or runtime call) with enough samples, and per segment.

    `base` (None: the constants that ship) keeps what is not fitted, and segments that do not occur. An op with fewer
    than MIN_SAMPLES nodes in a segment backs off to the segment. `often_fence` is of ops with OFTEN nodes or more.
    """
    start = base or default_constants()
    parts = [labeled_hosts(g.nodes) for g in graphs]
    host = pd.concat(parts) if parts else pd.DataFrame()
    if host.empty:
        return start
    by_segment = {str(s): robust_mean(g.to_numpy()) for s, g in host.groupby("segment")["latency_us"]}
    by_op = {
        (str(segment), str(op)): robust_mean(group.to_numpy(), often_fence if len(group) >= OFTEN else FENCE)
        for (segment, op), group in host.groupby(["segment", "key"])["latency_us"]
        if len(group) >= MIN_SAMPLES
    }
    return replace(start, host_overhead_us=by_op, segment_us={**start.segment_us, **by_segment})


def labeled_hosts(nodes: pd.DataFrame) -> pd.DataFrame:
    """Table (segment, key, latency_us) of the host nodes and exits of collectives whose latency is known.

    The first rank to leave a collective has an exit of 0, which belongs to the mean. An arrival is 0 by definition.
    """
    timed = (nodes["node_type"] == NodeType.HOST) | (nodes["segment"] == Segment.EXIT)
    host = nodes[(timed & nodes["latency_us"].notna()).to_numpy()]
    host = host[host["segment"].isin(SEGMENTS).to_numpy()]
    return host[["segment", "latency_us"]].astype({"segment": object}).assign(key=overhead_keys(host))


def fit_lags(
    graphs: Iterable[ExecutionGraph], device_kind: str, base: AnalyticConstants | None = None
) -> AnalyticConstants:
    """Constants with the median measured lag of each class on these graphs, all of one kind of device.

    The median, because a lag is measured only where its edge was binding, which favors long ones.
    """
    start = base or default_constants()
    parts = [graph.edges[["lag_class", "lag_us"]].dropna().astype({"lag_class": object}) for graph in graphs]
    edges = pd.concat(parts) if parts else pd.DataFrame()
    if edges.empty:
        return start
    known = edges[edges["lag_class"].isin(LAG_CLASSES)].groupby("lag_class")["lag_us"]
    fitted = {str(c): max(float(g.median()), 0.0) for c, g in known if len(g) >= MIN_SAMPLES}
    return replace(start, lag_us={**start.lag_us, device_kind: {**start.lag_us[device_kind], **fitted}})
