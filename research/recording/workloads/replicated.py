"""Small models on every rank: one bucket of gradients would hold them all, so DDP's own size of it serves."""

from __future__ import annotations

from torch import nn

from research.recording.workloads.device import device
from research.recording.workloads.replicate import replicate

BUCKET_MB = 25.0  # what DDP takes by itself


def replicated(model: nn.Module) -> nn.Module:
    """The model on this rank's device, its gradients averaged over all ranks."""
    return replicate(model.to(device()), BUCKET_MB)
