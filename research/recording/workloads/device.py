"""Where weights and batches of a workload live."""

from __future__ import annotations

import torch


def device() -> torch.device:
    """The current CUDA device where there is one, else the CPU. To stay on the CPU, hide CUDA devices."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
