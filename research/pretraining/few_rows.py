"""A few rows of a new GPU: what they tell of its products and of its host, then what is left carried to similar rows.

    constants    products only; held near what other GPUs gave (fitting.gemm.fit_near), and no answer is moved
                 further than that of one of these rows: beyond them a fit to a few extrapolates
    host         all other ops whose wait is in the latency: how much slower it is than the typical one
    the rest     what measured rows are still off by (pretrain.reach)

Each is kept only where rows that were left out of it say so, by a standard error: else the answer stays zero-shot.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from gnnperf.analytic.gemm.constants import Members, typical
from gnnperf.analytic.gemm.model import members_on
from gnnperf.gnn.data.numbers import WORK_NAMES
from gnnperf.predict.similar import FOLDS, LEAST_ROWS, Learned, choose, is_better, learn
from research.fitting.gemm import fit_near, measured
from research.pretraining.encode import EncodedRows
from research.pretraining.forms import PRODUCT, FormConstants, base_us, families, form_names, rate_key_of
from research.pretraining.observation import Observed
from research.pretraining.rows import spec_of

FEATURES = (
    "log_batch", "log_m", "log_n", "log_k", "log_elements", "log_last_dim", "align_m", "align_n", "align_k",
    "log_waves", "wave_efficiency", "log_compute_us", "log_memory_us", "log_base_us",
)  # fmt: skip
COLUMNS = [WORK_NAMES.index(name) for name in FEATURES]
PACES = tuple(float(2.0 ** (step / 8)) for step in range(-16, 17))  # a quarter to four times the typical host's


@dataclass(frozen=True)
class Requested:
    """Rows of one device, dtype and kind of op, and what answers for them without any row of that device.

    Attributes:
        rows: [n] of research.pretraining.rows.usable.
        encoded: the same.
        residual: [n] of the network, in log space; 0: closed forms only.
    """

    rows: pd.DataFrame
    encoded: EncodedRows
    residual: Tensor

    def part(self, places: np.ndarray) -> Requested:
        where = torch.from_numpy(places)
        return Requested(self.rows.iloc[places].reset_index(drop=True), self.encoded.part(where), self.residual[where])

    def on_host(self, machine_scale: float) -> Requested:
        """As a host would measure them that takes `machine_scale` times as long."""
        return replace(self, encoded=replace(self.encoded, observed=self.encoded.observed.paced(machine_scale)))

    def log_us(self, constants: FormConstants | None = None) -> np.ndarray:
        """[n] log us as the method reads them; with other constants of products, if there are."""
        encoded = self.encoded if constants is None else _with(self.encoded, self.rows, constants)
        return encoded.log_us(self.residual).numpy()


@dataclass(frozen=True)
class Refitted:
    """Constants of products that a few rows moved.

    Attributes:
        constants: with those of the rows' family.
        least, most: how far they moved the log answers for these rows, down (at most 0) and up (at least 0).
    """

    constants: FormConstants
    least: float
    most: float

    def log_us(self, requested: Requested) -> np.ndarray:
        """[n] log us, moved no further than the rows that were measured."""
        before = requested.log_us()
        return before + np.clip(requested.log_us(self.constants) - before, self.least, self.most)


@dataclass(frozen=True)
class FewRows:
    """What a few rows have changed.

    Attributes:
        refitted: constants of products, fitted once more; None: as they were.
        machine_scale: of the host, over the typical one's.
        learned: of what is left.
    """

    refitted: Refitted | None
    machine_scale: float
    learned: Learned

    def log_us(self, requested: Requested) -> np.ndarray:
        """[n] log us."""
        answer = (
            requested.on_host(self.machine_scale).log_us() if self.refitted is None else self.refitted.log_us(requested)
        )
        return answer + self.learned.correction(numbers(requested.encoded))


def learn_from(few: Requested, pool: EncodedRows, constants: FormConstants, seed: int) -> FewRows:
    """Changes that a few rows confirm among themselves."""
    label = few.encoded.log_label.numpy()
    is_product = set(form_names(few.rows)) == {PRODUCT}  # their constants have the launch with them
    result = _refitted(few, constants, label, seed) if is_product else None
    machine_scale = 1.0 if is_product else _confirmed_scale(few, label, seed)
    answer = few.on_host(machine_scale).log_us() if result is None else result.log_us(few)
    return FewRows(result, machine_scale, learn(numbers(few.encoded), label - answer, numbers(pool), seed))


def _confirmed_scale(few: Requested, label: np.ndarray, seed: int) -> float:
    """Of the host; 1 where there are too few rows, or rows that were left out are not met better."""
    if len(label) < LEAST_ROWS:
        return 1.0
    off = np.stack([np.abs(label - few.on_host(machine_scale).log_us()) for machine_scale in PACES])  # [paces, n]
    group = np.random.default_rng(seed).permutation(len(label)) % FOLDS  # [n]
    left_out = np.empty(len(label))
    for out in range(FOLDS):
        here = group == out
        left_out[here] = off[off[:, ~here].mean(axis=1).argmin(), here]
    as_typical = off[PACES.index(1.0)]
    return PACES[int(off.mean(axis=1).argmin())] if is_better(left_out, as_typical) else 1.0


def _refitted(few: Requested, constants: FormConstants, label: np.ndarray, seed: int) -> Refitted | None:
    """Fitted to all rows; None where rows that were left out are not met better."""
    if len(label) < LEAST_ROWS:
        return None
    group = np.random.default_rng(seed).permutation(len(label)) % FOLDS  # [n]
    left_out = np.empty(len(label))
    for out in range(FOLDS):
        here = np.flatnonzero(group == out)
        fitted = refitted(few.part(np.flatnonzero(group != out)), constants)
        left_out[here] = np.abs(label[here] - fitted.log_us(few.part(here)))
    return refitted(few, constants) if is_better(left_out, np.abs(label - few.log_us())) else None


def refitted(few: Requested, constants: FormConstants) -> Refitted:
    """The constants with those of the rows' family fitted to these rows of one device."""
    family = str(families(few.rows)[0])
    near = fit_near(measured(few.rows), _members(few.rows, constants))
    result = replace(constants, gemm={**constants.gemm, family: near})
    moved = few.log_us(result) - few.log_us()  # [n]
    return Refitted(result, min(float(moved.min()), 0.0), max(float(moved.max()), 0.0))


def _members(rows: pd.DataFrame, constants: FormConstants) -> Members:
    family = str(families(rows)[0])
    return members_on(spec_of(str(rows["device"].iloc[0])), constants.gemm[family], rate_key_of(family))


def _with(encoded: EncodedRows, rows: pd.DataFrame, constants: FormConstants) -> EncodedRows:
    """Rows on another base; where a launch is in their latency, with the wait that was fitted with it."""
    observed, base = encoded.observed, torch.from_numpy(base_us(rows, constants))
    if bool(rows["launch_included"].iloc[0]):
        launch, power = (typical(_members(rows, constants), name) for name in ("launch_us", "launch_power"))
        nothing = torch.zeros_like(base)
        observed = Observed(nothing + launch, nothing, nothing + power)
    return replace(encoded, base_us=base, observed=observed)


def numbers(rows: EncodedRows) -> np.ndarray:
    """[n, num_features] of FEATURES."""
    return rows.x[:, COLUMNS].numpy().astype(np.float64)


def choose_rows(pool: EncodedRows, count: int, seed: int) -> np.ndarray:
    """Places of at most `count` rows of a pool to measure. Labels play no part."""
    return choose(numbers(pool), count, seed)
