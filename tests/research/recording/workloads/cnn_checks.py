"""What the tests of the CNN run in ranks of their own; found by name in the new processes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import torch.distributed as dist

from gnnperf.core.errors import InputError
from research.recording.workloads.cnn import Cnn, Layout

TINY = Cnn(blocks=1, channels=4, image=8, batch=4)
FORMS = {
    "plain": TINY,
    "blocking": replace(TINY, blocking=True),
    "repeats": replace(TINY, repeats=3),
    "repeating_rank": replace(TINY, repeats=3, repeating_rank=1),
    "uneven": replace(TINY, uneven=1.5),
    "bottleneck": replace(TINY, layout=Layout.BOTTLENECK, blocks=2),
    "accumulation": replace(TINY, accumulation=2),
    "bfloat16": replace(TINY, precision="bfloat16"),
}
REFUSED = (replace(TINY, compile=True), replace(TINY, cuda_graph=True))


def train(folder: Path) -> None:
    """Write losses, gradients after the first step and weights after the last, as rank_<r>.json."""
    result: dict[str, object] = {form: _trained(size) for form, size in FORMS.items()}
    result["refused"] = [_refusal(size) for size in REFUSED]
    (folder / f"rank_{dist.get_rank()}.json").write_text(json.dumps(result))


def _trained(size: Cnn) -> dict[str, object]:
    trainer = size.build()
    weights = [weight for module in trainer.replicated for weight in module.parameters()]
    losses = [float(trainer.step())]
    gradients = [float(weight.grad.double().abs().sum()) for weight in weights if weight.grad is not None]
    losses += [float(trainer.step()) for _ in range(8)]
    sums = [float(weight.detach().double().sum()) for weight in weights]
    return {"losses": losses, "gradients": gradients, "weights": sums}


def _refusal(size: Cnn) -> str:
    try:
        size.build()
    except InputError as error:
        return str(error)
    return ""
