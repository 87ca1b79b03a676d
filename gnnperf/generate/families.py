"""The families of plans: read by their sections, built, distinguished rank by rank. Only this module knows them all."""

from collections.abc import Mapping
from typing import Any

from gnnperf.core import require_numbers
from gnnperf.generate.convolutional.build import build_network, replica_tensors
from gnnperf.generate.convolutional.plan import ConvolutionalPlan, convolutional_from
from gnnperf.generate.recommendation.build import build_recommendation, recommendation_tensors
from gnnperf.generate.recommendation.plan import RecommendationPlan
from gnnperf.generate.recommendation.read import is_recommendation, recommendation_from
from gnnperf.generate.transformer.build import build_plan
from gnnperf.generate.transformer.flops import step_work_of
from gnnperf.generate.transformer.lengths import drawn_steps
from gnnperf.generate.transformer.memory import stage_tensors
from gnnperf.generate.transformer.plan import TransformerPlan
from gnnperf.generate.transformer.read import plan_from
from gnnperf.generate.transformer.routing import drawn_loads, has_skew, with_load
from gnnperf.generate.uses import RankTensors
from gnnperf.generate.work_of_step import StepWork
from gnnperf.graph import ExecutionGraph

Plan = TransformerPlan | ConvolutionalPlan | RecommendationPlan
CONVOLUTIONAL_SECTION = "network"  # transformers have a `model`


def read_plan(raw: Mapping[str, Any], where: str) -> Plan:
    """The plan of a mapping; its sections tell which family it is.

    Raises:
        InputError: an unknown or missing key, a wrong type, a value that cannot be, settings that do not go together.
    """
    require_numbers(raw, where)
    if is_recommendation(raw):
        return recommendation_from(raw, where)
    return convolutional_from(raw, where) if CONVOLUTIONAL_SECTION in raw else plan_from(raw, where)


def build_graph_of(plan: Plan) -> ExecutionGraph:
    """The graph of one step; of steps that differ that of the median work among drawn ones."""
    if isinstance(plan, RecommendationPlan):
        return build_recommendation(plan)
    if isinstance(plan, ConvolutionalPlan):
        return build_network(plan)
    drawn = _drawn(plan) or [(plan, ())]
    one, lengths = drawn[len(drawn) // 2]
    return build_plan(one, lengths=lengths)


def drawn_graphs(plan: Plan) -> tuple[ExecutionGraph, ...]:
    """A graph for each drawn step of a plan whose steps differ in lengths or routing; () of other plans."""
    drawn = _drawn(plan) if isinstance(plan, TransformerPlan) else []
    return tuple(build_plan(one, lengths=lengths) for one, lengths in drawn)


def _drawn(plan: TransformerPlan) -> list[tuple[TransformerPlan, tuple[int, ...]]]:
    """Each drawn step and the lengths of its micro-batches, by ascending work; []: all steps are alike."""
    if has_skew(plan):
        return [(with_load(plan, load), ()) for load in drawn_loads(plan)]
    return [] if plan.lengths is None else [(plan, lengths) for lengths in drawn_steps(plan)]


def rank_tensors(plan: Plan) -> tuple[RankTensors, ...]:
    """What ranks hold, one account per rank that differs from others; with `experts.skew` at the largest load."""
    if isinstance(plan, RecommendationPlan):
        return recommendation_tensors(plan)
    if isinstance(plan, ConvolutionalPlan):
        return replica_tensors(plan)
    return stage_tensors(with_load(plan, drawn_loads(plan)[-1]) if has_skew(plan) else plan)


def step_work(plan: Plan) -> StepWork:
    """Samples, tokens and FLOPs of one step; the FLOPs of networks without a published count are unknown."""
    if isinstance(plan, TransformerPlan):
        return step_work_of(plan)
    if isinstance(plan, RecommendationPlan):
        return StepWork(samples=float(plan.batch), dtype=plan.model.dtype)
    return StepWork(samples=float(plan.training.batch * plan.replicas.data), dtype=plan.training.dtype)
