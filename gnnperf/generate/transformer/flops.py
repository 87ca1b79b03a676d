"""FLOPs of a step as publications count them, for model and hardware FLOPs utilization.

Chowdhery et al. 2022 (arXiv 2204.02311, appendix B); docs/concepts/throughput.md has the formulas.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from gnnperf.core import InputError, untrusted
from gnnperf.generate.transformer.activations import recomputed
from gnnperf.generate.transformer.plan import Recompute, TransformerPlan
from gnnperf.generate.transformer.sizes import mlp_parameters, norm_parameters

FORMULA = (
    "model FLOPs = tokens x (6 x parameters + 12 x layers x hidden x sequence), of experts those of a token; HFU adds "
    "what is computed again"
)
PRODUCT_FLOPS = 2.0  # per parameter and token: multiply and add
TRAINING = 3.0  # forward; backward for inputs and for weights
ATTENTION_FLOPS = 4.0  # per layer, hidden column, token and position: scores and context, multiply and add


@dataclass(frozen=True)
class StepWork:
    """Of one step, over all ranks. None: unknown.

    Attributes:
        samples: sequences, images, or rows of a recommendation model.
        tokens: of all samples.
        model_flops: that the forward and the backward pass need, without recomputation.
        hardware_flops: those, and what is computed again.
        dtype: of the matrix products.
        formula: how the FLOPs are counted, in words; "" they are unknown.
    """

    samples: float | None = None
    tokens: float | None = None
    model_flops: float | None = None
    hardware_flops: float | None = None
    dtype: str | None = None
    formula: str = ""


def step_work_of(plan: TransformerPlan) -> StepWork:
    """Samples, tokens and FLOPs of one step; of samples of several lengths the mean, without what pads them."""
    lengths = Counter((plan.model.sequence,) if plan.lengths is None else plan.lengths.values)
    tokens = model = again = 0.0
    for length, count in lengths.items():
        own = with_sequence(plan, length)
        share = plan.schedule.global_batch * length * count / lengths.total()
        tokens += share
        model += TRAINING * forward_flops(own) * share
        again += _recomputed_flops(own) * share
    return StepWork(
        samples=float(plan.schedule.global_batch), tokens=tokens, model_flops=model, hardware_flops=model + again,
        dtype=plan.model.dtype, formula=FORMULA,
    )  # fmt: skip


def parameters_per_token(plan: TransformerPlan) -> int:
    """Parameters of the model that one token is multiplied with; the vocabulary is not padded."""
    layers = sum(layer_parameters_per_token(plan, layer) for layer in range(plan.model.layers))
    return layers + norm_parameters(plan) + plan.model.vocabulary * plan.model.hidden


def layer_parameters_per_token(plan: TransformerPlan, layer: int) -> int:
    """Of one layer: attention, norms, and its MLP or router and experts."""
    model, block, experts = plan.model, plan.block, plan.experts
    keys = plan.key_value_heads * model.hidden // model.heads
    columns = model.hidden + 2 * keys
    attention = model.hidden * columns + model.hidden**2 + (columns + model.hidden if block.bias else 0)
    shared = attention + 2 * norm_parameters(plan)
    if experts is None or not plan.has_experts(layer):
        return shared + mlp_parameters(plan, plan.mlp_width, bias=block.bias)
    expert = mlp_parameters(plan, experts.width or plan.mlp_width, bias=False)
    return shared + model.hidden * experts.count + experts.top_k * expert


def forward_flops(plan: TransformerPlan) -> float:
    """Per token."""
    return PRODUCT_FLOPS * parameters_per_token(plan) + plan.model.layers * _attention_flops(plan)


def _attention_flops(plan: TransformerPlan) -> float:
    """Per token and layer, forward."""
    return ATTENTION_FLOPS * plan.model.hidden * plan.model.sequence


def _recomputed_flops(plan: TransformerPlan) -> float:
    """Per token."""
    if plan.schedule.recompute is Recompute.NONE:
        return 0.0
    if plan.schedule.recompute is Recompute.SELECTIVE:
        return plan.model.layers * _attention_flops(plan)
    again = [layer for layer in range(plan.model.layers) if recomputed(plan, layer)]
    return sum(PRODUCT_FLOPS * layer_parameters_per_token(plan, n) + _attention_flops(plan) for n in again)


# Steps whose samples have lengths of their own: drawn from a list, padded within their micro-batch.
#
#     lengths.csv   612 80 1999 ...      drawn  |612 80|1999 340|      micro-batches of 2 samples
#                                        padded |640   |2048    |      to the longest one, in multiples of 64
#
# Replicas wait for each other at the end of a step, so the one with most work stands for all of them.

MOST_LENGTHS, MOST_BYTES = 1_000_000, 16 << 20  # of a file


def read_lengths(path: Path) -> tuple[int, ...]:
    """The first column of a CSV file; a header is skipped.

    Raises:
        InputError: no such file, no lengths in it, or too many.
    """
    if not path.is_file() or path.stat().st_size > MOST_BYTES:
        raise InputError("no such file, or a larger one than is read", where=str(path),
                         allowed=f"a CSV file of up to {MOST_LENGTHS:,} lengths")  # fmt: skip
    with untrusted.reading(path), path.open(encoding="utf-8", newline="") as file:
        first = [row[0].strip() for row in csv.reader(file) if row]
    texts = first[1:] if first and not first[0].isdecimal() else first
    bad = next((text for text in texts if not text.isdecimal() or not 0 < int(text) < 10**9), None)
    if bad is not None or not 0 < len(texts) <= MOST_LENGTHS:
        raise InputError(f"{len(texts):,} lengths" if bad is None else f"bad value {bad!r}", where=str(path),
                         allowed=f"whole numbers above 0 in the first column, 1 to {MOST_LENGTHS:,} rows")  # fmt: skip
    return tuple(map(int, texts))


def drawn_steps(plan: TransformerPlan) -> tuple[tuple[int, ...], ...]:
    """Padded lengths [num_micro_batches] of the replica with most work, of each drawn step; by ascending work."""
    lengths = plan.lengths
    assert lengths is not None, "only plans with lengths have them"
    rng, values = np.random.default_rng(lengths.seed), np.array(lengths.values)
    shape = (lengths.draws, plan.parallelism.data, plan.num_micro_batches, plan.schedule.micro_batch)
    longest = rng.choice(values, shape).max(axis=-1)  # [draws, replicas, micro-batches]
    padded = -(-longest // lengths.multiple) * lengths.multiple

    @cache
    def work(length: int) -> float:
        return length * forward_flops(with_sequence(plan, length))

    def total(own: Iterable[int]) -> float:
        return sum(map(work, own))

    return tuple(sorted((tuple(max(step, key=total)) for step in padded.tolist()), key=total))


def with_sequence(plan: TransformerPlan, length: int) -> TransformerPlan:
    """The same plan, all of whose samples have one length."""
    return replace(plan, model=replace(plan.model, sequence=length), lengths=None)
