"""The same calls several times in a row: the parts of a step that N models run one after the other.

calls     a b c | a b c | a b c | d          3 models: a a a, b b b, c c c
"""

from __future__ import annotations

import numpy as np
import pandas as pd


def model_groups(calls: pd.DataFrame, models: int) -> list[np.ndarray]:
    """[models] units of each call that all models make, in order of execution.

    Longest parts first; a part holds nothing that is tied to another thread, stream or rank.

    Args:
        calls: of `call_table`.
        models: how many.
    """
    found: list[np.ndarray] = []
    for _, lane in calls.groupby(["lane", "step"], sort=False):
        key = _keys(lane)
        unit, used = lane["unit"].to_numpy(), np.zeros(len(lane), dtype=bool)
        for length in range(len(lane) // models, 0, -1):
            for begin in _starts(key, used, length, models):
                whole = slice(begin, begin + length * models)
                if not used[whole].any():
                    used[whole] = True
                    found += list(unit[whole].reshape(models, length).T)
    return found


def _keys(lane: pd.DataFrame) -> np.ndarray:
    """[num_calls] equal for equal calls; what may not be moved is like no other."""
    text = lane["op_name"].astype(str) + "|" + lane["input_dims"].astype(str) + "|" + lane["phase"].astype(str)
    code = pd.factorize(text)[0].astype(np.int64)
    return np.where(lane["is_free"], code, -1 - np.arange(len(lane)))


def _starts(key: np.ndarray, used: np.ndarray, length: int, models: int) -> np.ndarray:
    """[n] where `models` equal parts of `length` calls begin, ascending."""
    same = (key[length:] == key[:-length]) & ~used[length:] & ~used[:-length]
    needed = length * (models - 1)
    total = np.concatenate([[0], np.cumsum(same)])
    return np.flatnonzero(total[needed:] - total[: len(total) - needed] == needed)
