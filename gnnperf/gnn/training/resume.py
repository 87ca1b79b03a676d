"""Going on where a training was stopped: in which file it lies, and whether that is of this training."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from gnnperf.core import InputError
from gnnperf.gnn.data.cache import content_digest
from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.models.gnn import TypedGNN
from gnnperf.gnn.training.config import TrainConfig
from gnnperf.gnn.training.module import LatencyModule
from gnnperf.gnn.training.optimizer import Muon

LAST = "last"  # name of the Lightning checkpoint to go on from
OURS = "a last.ckpt that train.py wrote"
REMEDY = "resume with the configuration and data it was trained with, or train anew in another folder"


def lightning_checkpoint(path: Path) -> dict[str, Any]:
    """The content of one of Lightning's checkpoints, on the CPU; torch's reader of weights runs no code of the file."""
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can fail anywhere
        raise InputError("not a checkpoint of this training, or damaged", where=str(path), allowed=OURS) from error
    return content


def training_of(config: TrainConfig, data: PreparedData, model: TypedGNN) -> dict[str, str]:
    """What a training must not change on its way, by name; how long it takes and who computes may.

    Of `data`, names of its runs count, not what they hold, whose last bits depend on the number of threads. `model` is
    as before the first step: fresh from a seed, or another training's (`init_from`).
    """
    optim = asdict(config.optim)
    return {
        "seed": str(config.seed),
        "optimizer": Muon.__name__,  # files of earlier versions are of another one
        **{f"data.{name}": str(getattr(config.data, name)) for name in ("batch_size", "source_path")},
        "runs": content_digest(data.split.train, data.split.val),
        "network at the start": content_digest(model.state_dict()),
        **{f"optim.{name}": str(value) for name, value in optim.items()},
    }


def resume_path(resume: str | None, out: Path) -> Path | None:
    """The Lightning checkpoint to go on from."""
    if resume is None:
        return None
    path = out / f"{LAST}.ckpt" if resume == "auto" else Path(resume)
    if resume == "auto" and not path.is_file():
        return None
    if not path.is_file():
        raise InputError("no such file", where=f"resume={resume}", allowed=f"auto, or {OURS}")
    return path


def check_fits(resume: Path, module: LatencyModule, given: Mapping[str, str]) -> None:
    """Refuse a Lightning checkpoint of another network, or of another training (`training_of`) of this one."""
    stored = lightning_checkpoint(resume)
    if _shapes(stored.get("state_dict")) != _shapes(module.state_dict()):
        raise InputError("holds the weights of another network", where=str(resume), allowed=OURS, remedy=REMEDY)
    before = stored.get(LatencyModule.CHECKPOINT_HYPER_PARAMS_KEY, {})
    changed = [name for name, value in given.items() if before.get(name) != value]
    if changed:
        raise InputError(f"is of another training: {', '.join(changed)} differ", where=str(resume), allowed=OURS,
                         remedy=REMEDY)  # fmt: skip


def _shapes(weights: Any) -> dict[str, Any]:
    return {name: tensor.shape for name, tensor in weights.items()} if isinstance(weights, Mapping) else {}
