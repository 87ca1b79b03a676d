"""Rows that are held out of training, and what every share of a network's corrections errs by on them.

sizes         GPUs that train, weights that do not: a fifth of them chooses, another fifth judges
generations   all GPUs of one generation, out of everything that is fitted
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.core import each
from gnnperf.gnn.training.config import PretrainConfig
from gnnperf.hardware import match_device
from research.pretraining.calls import KIND
from research.pretraining.fit import OTHERS, OWN, OpModel, fit, prepare
from research.pretraining.forms import retained_forms, shipped_forms
from research.pretraining.graphs import grouped
from research.pretraining.op_checkpoint import KindAnswer, OpCheckpoint
from research.pretraining.rows import GENERATION, KINDS, sampled

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
CHOOSES, JUDGES, BUCKETS = 0, 1, 5  # of weights, by hash
WEIGHTS = ["n", "k", "in_channels", "out_channels", "kernel"]
JUDGED_ROWS = 600  # of each device and kind


@dataclass(frozen=True)
class HeldOut:
    """Rows of one kind on one device.

    Attributes:
        kind: name of a research.pretraining.rows.Kind.
        device: name of the catalog.
        generation: of the device.
        errors: share -> |answer / measured - 1| [n] of the rows.
    """

    kind: str
    device: str
    generation: str
    errors: Mapping[float, np.ndarray]

    def mean(self, share: float) -> float:
        return float(self.errors[share].mean())


def bucket_of(rows: pd.DataFrame) -> np.ndarray:
    """[n] which of BUCKETS the weights of a row fall into, the same on every device."""
    keys = rows[[KIND, *WEIGHTS]].fillna(0.0).astype({KIND: str})
    return np.asarray(pd.util.hash_pandas_object(keys, index=False).to_numpy() % BUCKETS)


def unseen_sizes(rows: pd.DataFrame, config: PretrainConfig, seed: int) -> dict[int, list[HeldOut]]:
    """CHOOSES and JUDGES -> errors on weights that did not train, on the GPUs that did."""
    bucket = bucket_of(rows)  # [n]
    train = rows[(bucket != CHOOSES) & (bucket != JUDGES)].reset_index(drop=True)
    model = fit(prepare(train, shipped_forms(), config), OWN, config, seed)
    return {part: list(held_out(model, rows[bucket == part])) for part in (CHOOSES, JUDGES)}


def unseen_generations(
    rows: pd.DataFrame, every: pd.DataFrame, config: PretrainConfig, seed: int, folder: Path
) -> list[HeldOut]:
    """Errors on each generation, by a network and constants that saw nothing of it."""
    result: list[HeldOut] = []
    for generation in each(sorted(rows[GENERATION].unique()), "leaving out generations", "generations"):
        constants = retained_forms(every[every[GENERATION] != generation].reset_index(drop=True), folder)
        others = rows[rows[GENERATION] != generation].reset_index(drop=True)
        model = fit(prepare(others, constants, config), OTHERS, config, seed)
        result += held_out(model, rows[rows[GENERATION] == generation])
    return result


def held_out(model: OpModel, rows: pd.DataFrame) -> Iterable[HeldOut]:
    """Errors of a model on rows that it never saw, at most JUDGED_ROWS of each device and kind."""
    some = rows.iloc[sampled(rows, JUDGED_ROWS, ["device", KIND], seed=1)].reset_index(drop=True)
    for (device, kind, generation), places in grouped(some, ["device", KIND, GENERATION]):
        part = some.iloc[places].reset_index(drop=True)
        encoded, truth = model.encode(part), part["latency_us"].to_numpy(float)
        residual = model.residual(encoded)
        errors = {share: np.abs(np.exp(encoded.log_us(share * residual).numpy()) / truth - 1) for share in SHARES}
        spec = match_device(device)
        yield HeldOut(kind, device if spec is None else spec.name, generation, errors)


def of_kind(result: Sequence[HeldOut], kind: str) -> list[HeldOut]:
    return [one for one in result if one.kind == kind]


# Where a network answers, and which share of its corrections is kept: by rows that were held out of its training.
#
# A share is kept where it errs less than the closed form by more than MARGIN of the closed form's error: what helps
# less may as well be chance. For GPUs that no one trained on it must, next to, be worse by no more than that on any
# generation. On GPUs that trained, sizes that were held out choose; but only of kinds that generations confirm: a table
# is one campaign (a board, its clocks, caches as full as the loop leaves them, one library), and what is learned of one
# campaign by itself is not yet the op's.

MARGIN = 0.02
NONE = 0.0  # the closed form


def choose(sizes: Sequence[HeldOut], generations: Sequence[HeldOut]) -> tuple[KindAnswer, ...]:
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
