"""Edges: a constant delay per lag class and kind of device."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.analytic.constants import AnalyticConstants
from gnnperf.core.errors import InputError


def lag_us(classes: pd.Series, device_kind: str, constants: AnalyticConstants) -> np.ndarray:
    """Delay along each edge [num_edges] us; 0 where the edge has no class.

    Raises:
        InputError: a class without a constant.
    """
    table = constants.lag_us[device_kind]
    code, names = pd.factorize(classes.astype(object), use_na_sentinel=True)
    missing = [str(n) for n in names if n not in table]
    if missing:
        raise InputError(f"lag class {missing[0]!r} has no constant", where="graph edges", allowed=", ".join(table))
    values = np.array([0.0, *(table[str(n)] for n in names)])
    return values[code + 1]
