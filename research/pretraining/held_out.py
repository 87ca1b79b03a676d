"""Rows that are held out of training, and what every share of a network's corrections errs by on them.

sizes         GPUs that train, weights that do not: a fifth of them chooses, another fifth judges
generations   all GPUs of one generation, out of everything that is fitted
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.core import each
from gnnperf.gnn.training.config import PretrainConfig
from gnnperf.hardware import match_device
from research.pretraining.calls import KIND
from research.pretraining.fit import BY_SIZE, OWN, VIEWS, OpModel, fit, prepare
from research.pretraining.forms import shipped_forms
from research.pretraining.graphs import grouped
from research.pretraining.retained_forms import retained_forms
from research.pretraining.rows import GENERATION, sampled

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
CHOOSES, JUDGES, BUCKETS = 0, 1, 5  # of weights, by hash
WEIGHTS = ["n", "k", "in_channels", "out_channels", "kernel"]
JUDGED_ROWS = 600  # of each device and kind


@dataclass(frozen=True)
class HeldOut:
    """Rows of one kind on one device.

    Attributes:
        kind: name of a research.pretraining.kinds.Kind.
        device: name of the catalog.
        generation: of the device.
        errors: share -> |answer / measured - 1| [n] of the rows.
    """

    kind: str
    device: str
    generation: str
    errors: Mapping[float, np.ndarray]

    def mean(self, share: float) -> float:
        """Mean error."""
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
        model = fit(prepare(others, constants, config), VIEWS[BY_SIZE], config, seed)
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
    """Those of one kind."""
    return [one for one in result if one.kind == kind]
