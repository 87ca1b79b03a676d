"""Numbers by which op-table rows are alike (gnnperf.gnn.pretrain.reach), and which rows to measure."""

from __future__ import annotations

import numpy as np

from gnnperf.gnn.data.numbers import WORK_NAMES
from gnnperf.gnn.pretrain.encode import EncodedRows
from gnnperf.gnn.pretrain.reach import choose

FEATURES = (
    "log_batch", "log_m", "log_n", "log_k", "log_elements", "log_last_dim", "align_m", "align_n", "align_k",
    "log_waves", "wave_efficiency", "log_compute_us", "log_memory_us", "log_base_us",
)  # fmt: skip
COLUMNS = [WORK_NAMES.index(name) for name in FEATURES]


def numbers(rows: EncodedRows) -> np.ndarray:
    """[n, num_features] of FEATURES."""
    return rows.x[:, COLUMNS].numpy().astype(np.float64)


def choose_rows(pool: EncodedRows, count: int, seed: int) -> np.ndarray:
    """Places of at most `count` rows of a pool to measure. Labels play no part.

    Raises:
        InputError: the pool has fewer rows.
    """
    return choose(numbers(pool), count, seed)
