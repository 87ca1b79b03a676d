"""How far beyond the training range a node's numbers are, in units of what they varied by in training.

    low          high                      distance of the node: of its farthest number
     |============|......x                 (x - high) / spread

The network sees such a number as its nearest end (data.normalizer), so it is the correction that is in doubt.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gnnperf.gnn.data.normalizer import ROUNDING, Normalizer
from gnnperf.gnn.data.numbers import WORK_NAMES

NAMES = (  # of the op's own work. A longer step, more ranks or another order around it make no other op of it.
    "log_flops", "log_bytes", "log_message_bytes", "log_intensity", "log_num_inputs", "log_elements", "log_largest",
    "log_second", "log_first_dim", "log_last_dim", "log_batch", "log_m", "log_n", "log_k", "log_waves",
    "log_compute_us", "log_memory_us", "log_bytes_per_cache", "log_analytic_us", "log_base_us",
    "flops_unknown", "bytes_unknown", "message_bytes_unknown", "dims_unknown", "analytic_unknown",
)  # fmt: skip
COUNTED = [WORK_NAMES.index(name) for name in NAMES]
LEAST_SPREAD = 0.1  # of a number that hardly varied in training: ten percent of what a log is of


def beyond(normalizer: Normalizer, node_type: str, x: Tensor) -> tuple[Tensor, Tensor]:
    """Distance and place in NAMES of the number that is farthest out.

    Args:
        normalizer: of the checkpoint.
        node_type: of the nodes.
        x: [n, num_features] raw features.

    Returns:
        [n] distance, 0 within the range; [n] int64 place.
    """
    values = x[:, COUNTED]  # [n, num_counted]
    low, high, scale = (part[node_type][COUNTED] for part in (normalizer.low, normalizer.high, normalizer.scale))
    out = torch.maximum(values - high, low - values)
    spread = torch.where(torch.isfinite(scale), scale, LEAST_SPREAD).clamp(min=LEAST_SPREAD)
    distance: Tensor = torch.where(out > ROUNDING, out / spread, 0.0)
    if not len(x):
        return x.new_zeros(0), torch.zeros(0, dtype=torch.int64)
    farthest = distance.max(dim=1)
    return farthest.values, farthest.indices
