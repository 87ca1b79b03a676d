"""Throughput and cost of a prediction: of the step, of the edited step, from plan, run card, op shapes and device."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gnnperf.analytic import rate_key_of
from gnnperf.core import OpFamily
from gnnperf.generate import StepWork
from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import DeviceSpec
from gnnperf.predict.request import Request
from gnnperf.predict.step_prediction import StepPrediction
from gnnperf.predict.target import GENERIC_CPU, GENERIC_GPU
from gnnperf.predict.throughput import Throughput, product
from gnnperf.trace import run_card

if TYPE_CHECKING:
    from gnnperf.generate import Plan
    from gnnperf.whatif import Edit

COUNTED = (OpFamily.GEMM, OpFamily.CONV, OpFamily.ATTENTION)
BY_SHAPES = "FLOPs of matrix products, convolutions and attention, by the shapes of the step's ops"
REPLICATED_WORK = ("tp", "pp", "cp", "tensor", "pipeline", "context")  # ranks of a card that share one batch


def with_throughput(result: StepPrediction, request: Request) -> StepPrediction:
    """The prediction, and its edited step, with rates, utilization and cost."""
    work = request.run.completed(_work(result, request))
    given = replace(result, throughput=_rates(result, work, request))
    if given.whatif is None:
        return given
    edited = given.whatif.prediction
    own = _edited_work(work, request.edits(), edited, given.prediction.graph.world_size)
    return replace(
        given, whatif=replace(given.whatif, prediction=replace(edited, throughput=_rates(edited, own, request)))
    )


def _rates(result: StepPrediction, work: StepWork, request: Request) -> Throughput:
    graph = result.prediction.graph
    stands_in = result.device is not None and result.device.name in (GENERIC_CPU, GENERIC_GPU)  # not in the catalog
    device = None if stands_in else result.device
    stated = _states_flops(request.plan_spec())  # else the FLOPs are those of the graph's ops
    peak = None
    if device is not None:
        peak = peak_flops_per_s(device, work.dtype) if stated else mean_peak_flops_per_s(graph, device)
    power_limit_w = None if device is None else device.power_limit_w
    return Throughput(result.step_time_us, graph.world_size, work, peak, power_limit_w, request.run.num_steps(work),
                      request.price.usd_per_gpu_hour)  # fmt: skip


def peak_flops_per_s(device: DeviceSpec, dtype: str | None) -> float:
    """Of one device, for matrix products in a dtype."""
    return device.flops_per_s[rate_key_of(device, OpFamily.GEMM, dtype)]


def mean_peak_flops_per_s(graph: ExecutionGraph, device: DeviceSpec) -> float | None:
    """What the counted ops of a step reach together, each at the peak of its family and dtype; None: there are none."""
    flops, family, dtype = _counted_ops(graph)
    if not np.nansum(flops) > 0:
        return None
    peaks = [device.flops_per_s[rate_key_of(device, f, d)] for f, d in zip(family, dtype, strict=True)]
    return float(np.nansum(flops) / np.nansum(flops / np.array(peaks)))


def counted_flops(graph: ExecutionGraph) -> float | None:
    """FLOPs of the products, convolutions and attention of a step over all ranks, by the shapes of its ops.

    None: an op of these families has no shapes, or there is none. Ranks that were not traced count as the others.
    """
    flops, _, _ = _counted_ops(graph)
    if not len(flops) or np.isnan(flops).any():
        return None
    return float(flops.sum()) * graph.world_size / sum(graph.multiplicity.values())


def _counted_ops(graph: ExecutionGraph) -> tuple[np.ndarray, Sequence[str], Sequence[str | None]]:
    """[num_counted] FLOPs over the ranks that a node stands for, family and dtype of each node."""
    nodes = graph.nodes[graph.nodes["family"].isin(list(COUNTED)).to_numpy()]
    nodes = nodes[(nodes["node_type"] == "compute").to_numpy()]
    stands_for = nodes["rank"].map(graph.multiplicity).to_numpy(np.float64)
    dtypes = [value if isinstance(value, str) else None for value in nodes["dtype"].astype(object)]
    return nodes["flops"].to_numpy(np.float64) * stands_for, nodes["family"].astype(str).tolist(), dtypes


def _work(result: StepPrediction, request: Request) -> StepWork:
    graph, plan = result.prediction.graph, request.plan_spec()
    if plan is not None:
        from gnnperf.generate import step_work

        if _states_flops(plan):
            return step_work(plan)
    flops = counted_flops(graph)
    if plan is not None:  # nothing is computed twice there
        return replace(step_work(plan), model_flops=flops, hardware_flops=flops, formula=BY_SHAPES)
    card = run_card(Path(str(request.trace))) or {}
    return StepWork(samples=samples_of_card(card, graph.world_size), hardware_flops=flops, formula=BY_SHAPES)


def _states_flops(plan: "Plan | None") -> bool:
    if plan is None:
        return False
    from gnnperf.generate import TransformerPlan

    return isinstance(plan, TransformerPlan)


def samples_of_card(card: Mapping[str, object], world_size: int) -> float | None:
    """Samples of a step over all ranks, from the recorder's card; ranks that share a batch count once."""
    batch, ways = card.get("batch"), card.get("parallelism")
    if not isinstance(batch, int) or batch < 1:
        return None
    given = ways if isinstance(ways, Mapping) else {}
    shared = math.prod(n for kind, n in given.items() if kind in REPLICATED_WORK and isinstance(n, int) and n > 0)
    return float(batch * world_size / shared)


def _edited_work(work: StepWork, edits: "Sequence[Edit]", edited: StepPrediction, unedited_ranks: int) -> StepWork:
    """Work of the edited step; the FLOPs of a plan follow the batch, others the edited shapes."""
    from gnnperf.whatif import ResizeTables, ScaleBatch, ScaleSequence, TensorParallel, WorldSize

    samples, tokens, model, counted = work.samples, work.tokens, work.model_flops, work.model_flops is None
    for edit in edits:
        if isinstance(edit, ScaleBatch):
            samples, tokens, model = (product(one, edit.factor) for one in (samples, tokens, model))
        elif isinstance(edit, ScaleSequence):
            tokens, model = product(tokens, edit.factor), None
        elif isinstance(edit, ResizeTables):
            model = None
        elif isinstance(edit, TensorParallel):  # its ranks share a batch
            unedited_ranks *= edit.ranks
        elif isinstance(edit, WorldSize):  # every rank keeps its batch
            more = edit.ranks / unedited_ranks
            unedited_ranks = edit.ranks
            samples, tokens, model = (product(one, more) for one in (samples, tokens, model))
    again = work.hardware_flops / work.model_flops if work.hardware_flops is not None and work.model_flops else None
    hardware = counted_flops(edited.prediction.graph) if counted else product(model, again)
    return StepWork(samples, tokens, model, hardware, work.dtype, work.formula)
