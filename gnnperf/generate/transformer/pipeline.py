"""In which order a stage runs the passes of its micro-batches.

1F1B, 2 stages, 3 micro-batches          GPipe
stage 0   F0 F1 B0 F2 B1    B2           F0 F1 F2          B2 B1 B0
stage 1      F0 B0 F1 B1 F2 B2              F0 F1 F2 B2 B1 B0
"""

from __future__ import annotations

from dataclasses import dataclass

from gnnperf.generate.transformer.plan import Pipeline, TransformerPlan


@dataclass(frozen=True)
class Pass:
    """One micro-batch through one chunk of a stage, forward or backward."""

    backward: bool
    micro_batch: int
    chunk: int = 0


def passes(plan: TransformerPlan, stage: int) -> tuple[Pass, ...]:
    """Of one stage, in order (Narayanan et al. 2021, section 2.2)."""
    micro_batches, stages = plan.num_micro_batches, plan.parallelism.pipeline
    if plan.schedule.pipeline is Pipeline.GPIPE:
        forward = tuple(Pass(False, i) for i in range(micro_batches))
        return (*forward, *(Pass(True, i) for i in reversed(range(micro_batches))))
    if plan.schedule.pipeline is Pipeline.INTERLEAVED:
        chunks = plan.schedule.chunks
        warm = min(2 * (stages - stage - 1) + (chunks - 1) * stages, micro_batches * chunks)
        return _alternating(_chunked(plan, backward=False), _chunked(plan, backward=True), warm)
    ahead, back = (tuple(Pass(backward, i) for i in range(micro_batches)) for backward in (False, True))
    return _alternating(ahead, back, min(stages - stage - 1, micro_batches))


def _alternating(forward: tuple[Pass, ...], backward: tuple[Pass, ...], warm: int) -> tuple[Pass, ...]:
    """`warm` passes forward, then one forward and one backward, then what is left backward."""
    pairs = zip(forward[warm:], backward, strict=False)
    return (*forward[:warm], *(each for pair in pairs for each in pair), *backward[len(forward) - warm :])


def _chunked(plan: TransformerPlan, *, backward: bool) -> tuple[Pass, ...]:
    """As many micro-batches as stages through one chunk, then through the next; backward from the last chunk."""
    stages, chunks = plan.parallelism.pipeline, plan.schedule.chunks
    found = []
    for k in range(plan.num_micro_batches * chunks):
        round_, place = divmod(k, stages * chunks)
        chunk, within = divmod(place, stages)
        found.append(Pass(backward, round_ * stages + within, chunks - 1 - chunk if backward else chunk))
    return tuple(found)
