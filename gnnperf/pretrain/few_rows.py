"""A few rows of a new GPU: constants of the closed form fitted once more, then what is left carried to similar rows.

    constants    products only; held near what other GPUs gave (analytic.gemm_fit.fit_near)
    the rest     what measured rows are still off by (pretrain.reach)

Each is kept only where rows that were left out of it say so, by a standard error: else the answer stays zero-shot.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from gnnperf.analytic.gemm_fit import fit_near, measured
from gnnperf.analytic.kernel_constants import Members, members_for, typical
from gnnperf.pretrain.adapt import numbers
from gnnperf.pretrain.encode import EncodedRows
from gnnperf.pretrain.forms import PRODUCT, FormConstants, base_us, families, form_names
from gnnperf.pretrain.observation import Observed
from gnnperf.pretrain.reach import FOLDS, LEAST_ROWS, Learned, is_better, learn
from gnnperf.pretrain.rows import spec_of


@dataclass(frozen=True)
class Asked:
    """Rows of one device, dtype and kind of op, and what answers for them without any row of that device.

    Attributes:
        rows: [n] of gnnperf.pretrain.rows.usable.
        encoded: the same.
        residual: [n] of the network, in log space; 0: closed forms alone.
    """

    rows: pd.DataFrame
    encoded: EncodedRows
    residual: Tensor

    def part(self, places: np.ndarray) -> Asked:
        """Some of them."""
        where = torch.from_numpy(places)
        return Asked(self.rows.iloc[places].reset_index(drop=True), self.encoded.part(where), self.residual[where])

    def log_us(self, constants: FormConstants | None = None) -> np.ndarray:
        """[n] log us as the method reads them; with other constants of products, if there are."""
        encoded = self.encoded if constants is None else _with(self.encoded, self.rows, constants)
        return encoded.log_us(self.residual).numpy()


@dataclass(frozen=True)
class FewRows:
    """What a few rows have changed.

    Attributes:
        constants: of products, fitted once more; None: as they were.
        learned: of what is left.
    """

    constants: FormConstants | None
    learned: Learned

    def log_us(self, asked: Asked) -> np.ndarray:
        """[n] log us."""
        return asked.log_us(self.constants) + self.learned.correction(numbers(asked.encoded))


def learn_from(few: Asked, pool: EncodedRows, constants: FormConstants, seed: int) -> FewRows:
    """Changes that a few rows confirm among themselves.

    Args:
        few: the measured rows, with labels.
        pool: rows of the kind that will be asked about; labels play no part.
        constants: of the closed forms without them.
        seed: of the groups that are left out.
    """
    label = few.encoded.log_label.numpy()
    found = _constants(few, constants, label, seed) if set(form_names(few.rows)) == {PRODUCT} else None
    return FewRows(found, learn(numbers(few.encoded), label - few.log_us(found), numbers(pool), seed))


def _constants(few: Asked, constants: FormConstants, label: np.ndarray, seed: int) -> FormConstants | None:
    """Fitted to all rows; None where rows that were left out are not met better."""
    if len(label) < LEAST_ROWS:
        return None
    group = np.random.default_rng(seed).permutation(len(label)) % FOLDS  # [n]
    left_out = np.empty(len(label))
    for out in range(FOLDS):
        here = np.flatnonzero(group == out)
        fitted = refitted(few.rows.iloc[np.flatnonzero(group != out)], constants)
        left_out[here] = np.abs(label[here] - few.part(here).log_us(fitted))
    return refitted(few.rows, constants) if is_better(left_out, np.abs(label - few.log_us())) else None


def refitted(rows: pd.DataFrame, constants: FormConstants) -> FormConstants:
    """The constants with those of the rows' family fitted to these rows of one device."""
    family = str(families(rows)[0])
    return replace(constants, gemm={**constants.gemm, family: fit_near(measured(rows), _members(rows, constants))})


def _members(rows: pd.DataFrame, constants: FormConstants) -> Members:
    return members_for(constants.gemm[str(families(rows)[0])], spec_of(str(rows["device"].iloc[0])).architecture)


def _with(encoded: EncodedRows, rows: pd.DataFrame, constants: FormConstants) -> EncodedRows:
    """Rows on another base; where a launch is in their latency, with the wait that was fitted with it."""
    observed, base = encoded.observed, torch.from_numpy(base_us(rows, constants))
    if bool(rows["launch_included"].iloc[0]):
        launch, power = (typical(_members(rows, constants), name) for name in ("launch_us", "launch_power"))
        nothing = torch.zeros_like(base)
        observed = Observed(nothing + launch, nothing, nothing + power)
    return replace(encoded, base_us=base, observed=observed)
