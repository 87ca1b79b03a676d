"""Cells of a comparison: what one row (a learner), fitted with one seed, answered for the held-out runs of a split."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core import InputError, require
from gnnperf.gnn import NAME

STEP_COLUMNS = ("recording", "run", "workload", "predicted_us", "measured_us")
NODE_COLUMNS = ("recording", "kind", "predicted_us", "measured_us")


@dataclass(frozen=True)
class Origin:
    """What a cell is of.

    Attributes:
        split: axis of splits.json.
        part: which part is judged: test, or val while a model is chosen.
        row: name of the learner.
        seed: of the fit; None: nothing in it is chance.
        share: of the training runs that were used.
        variant: what the row's data were given next to the split's other rows; "" nothing.
        data: fingerprint of the prepared data.
        learner: all that the learner was given.
        code: hash of the code that learns.
    """

    split: str
    part: str
    row: str
    seed: int | None
    share: float
    variant: str
    data: str
    learner: str
    code: str

    def __post_init__(self) -> None:
        """Names are folders."""
        for name in ("split", "row"):
            require(bool(NAME.fullmatch(getattr(self, name))), name, getattr(self, name), "letters, digits, _ . + -")


@dataclass(frozen=True)
class EvaluationRecord:
    """Answers next to measurements.

    Attributes:
        origin: what it is of.
        fit_s: seconds that fitting took.
        coverage: share of the labeled nodes that it answered itself; NaN: it answers for whole steps only.
        steps: STEP_COLUMNS, one row per recording, float64 us.
        nodes: NODE_COLUMNS, labeled nodes only: `recording` is a row of `steps`, float32 us; None: no node answers.
    """

    origin: Origin
    fit_s: float
    coverage: float
    steps: pd.DataFrame
    nodes: pd.DataFrame | None

    def __post_init__(self) -> None:
        """Refuse answers that no error can be given of."""
        where = f"cell {self.origin.split}/{self.origin.row}"
        _check_times(self.steps, STEP_COLUMNS, where)
        if self.nodes is not None:
            _check_times(self.nodes, NODE_COLUMNS, where)


def _check_times(table: pd.DataFrame, columns: tuple[str, ...], where: str) -> None:
    missing = [name for name in columns if name not in table]
    if missing:
        raise InputError(f"has no column {missing[0]!r}", where=where)
    if not len(table):
        raise InputError("has no rows", where=where)
    predicted, measured = (table[name].to_numpy(np.float64) for name in ("predicted_us", "measured_us"))
    if not (np.isfinite(predicted).all() and (predicted >= 0).all()):
        raise InputError("a predicted latency is not finite", where=where, allowed="0 us or more")
    if not (np.isfinite(measured).all() and (measured > 0).all()):
        raise InputError("a measured latency is not positive", where=where)
