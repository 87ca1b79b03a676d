"""Where a network answers, and which share of its corrections is kept: by rows that were held out of its training.

A share is kept where it errs less than the closed form by more than MARGIN of the closed form's error: what helps
less may as well be chance. For GPUs that no one trained on it must, next to, be worse by no more than that on any
generation. On GPUs that trained, sizes that were held out choose; but only of kinds that generations confirm: a table
is one campaign (a board, its clocks, caches as full as the loop leaves them, one library), and what is learned of one
campaign by itself is not yet the op's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from research.pretraining.held_out import SHARES, HeldOut, of_kind
from research.pretraining.kinds import KINDS
from research.pretraining.op_checkpoint import KindAnswer, OpCheckpoint

MARGIN = 0.02
NONE = 0.0  # the closed form


def choose(sizes: Sequence[HeldOut], generations: Sequence[HeldOut]) -> tuple[KindAnswer, ...]:
    """One answer per kind."""
    result = []
    for kind in KINDS:
        own, others = of_kind(sizes, kind.name), of_kind(generations, kind.name)
        confirmed = others_share(others)
        share = own_share(own) if confirmed > 0 else NONE
        devices = tuple(one.device for one in own if share > 0 and one.mean(share) <= one.mean(NONE))
        result.append(KindAnswer(kind.name, devices, share, confirmed))
    return tuple(result)


def by_sizes_only(checkpoint: OpCheckpoint) -> OpCheckpoint:
    """The same networks on every GPU that trained, with the shares of held-out sizes; generations do not count."""
    lines = checkpoint.provenance["sizes"]
    answers = tuple(
        KindAnswer(kind, tuple(one["device"] for one in lines if one["kind"] == kind),
                   next(one["share"] for one in lines if one["kind"] == kind), 0.0)
        for kind in dict.fromkeys(one["kind"] for one in lines)
    )  # fmt: skip
    return replace(checkpoint, answers=answers)


def own_share(result: Sequence[HeldOut]) -> float:
    """The share with the least mean error over devices; 0: none helps by MARGIN."""
    if not result:
        return NONE
    best = min(SHARES, key=lambda share: _mean(result, share))
    return best if _mean(result, best) < (1 - MARGIN) * _mean(result, NONE) else NONE


def others_share(result: Sequence[HeldOut]) -> float:
    """The same over generations, each one vote, of the shares that no generation is worse with by MARGIN."""
    generations = {one.generation: [o for o in result if o.generation == one.generation] for one in result}
    if len(generations) < 2:  # one generation cannot tell of another
        return NONE
    fine = [share for share in SHARES if all(_no_worse(part, share) for part in generations.values())]
    errors = {share: float(np.mean([_mean(part, share) for part in generations.values()])) for share in fine}
    best = min(errors, key=errors.__getitem__)
    return best if errors[best] < (1 - MARGIN) * errors[NONE] else NONE


def judged_generations(result: Sequence[HeldOut]) -> list[tuple[HeldOut, float]]:
    """Each with the share that all other generations choose for it."""
    return [
        (one, others_share([o for o in of_kind(result, one.kind) if o.generation != one.generation])) for one in result
    ]


def _no_worse(result: Sequence[HeldOut], share: float) -> bool:
    return _mean(result, share) <= (1 + MARGIN) * _mean(result, NONE)


def _mean(result: Sequence[HeldOut], share: float) -> float:
    return float(np.mean([one.mean(share) for one in result]))
