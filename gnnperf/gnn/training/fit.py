"""The training loop: prepared data and a configuration -> the weights of the best epoch, shrunk; resuming."""

import logging
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities.exceptions import SIGTERMException

from gnnperf.core import InputError, Mapped, in_turn
from gnnperf.gnn.data.cache import content_digest
from gnnperf.gnn.data.floors import texts_of
from gnnperf.gnn.data.module import StepDataModule
from gnnperf.gnn.data.prepare import PreparedData, sampled
from gnnperf.gnn.data.runs import run_of
from gnnperf.gnn.models.gnn import TypedGNN
from gnnperf.gnn.models.stored import check_storable
from gnnperf.gnn.training.config import TrainConfig
from gnnperf.gnn.training.evaluate import Processes, processes, residuals_of
from gnnperf.gnn.training.look import Log, open_log
from gnnperf.gnn.training.module import LatencyModule, Muon
from gnnperf.gnn.training.shares import HALF, Judged, scheduled_shares, usual_shares
from gnnperf.gnn.trust import Shares

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


BEST = "best"  # name of a Lightning checkpoint
STOPPED = 143  # what a shell reports for a process ended by SIGTERM


def build_model(config: TrainConfig, data: PreparedData) -> TypedGNN:
    """A fresh network; its weights depend on the seed only.

    Raises:
        InputError: it is too large for a checkpoint.
    """
    check_storable(config.model, data.vocabulary)
    torch.set_num_threads(config.trainer.threads)
    lightning.seed_everything(config.seed, workers=True, verbose=False)
    return TypedGNN(config.model, data.vocabulary)


def fit(config: TrainConfig, data: PreparedData, model: TypedGNN, log: Log | None = None) -> TypedGNN:
    """Train `model` in place and leave it with the weights of its best epoch, in evaluation mode.

    Each process of torchrun calls this with the same network. `log` takes the curves; None: the configuration's.

    Raises:
        InputError: `resume` names no file, or one of another network or training; more processes than steps in a batch.
    """
    out = Path(config.out)
    module = LatencyModule(model, config.optim, config.seed)
    resume, given = resume_path(config.resume, out), training_of(config, data, model)
    module.save_hyperparameters(given, logger=False)  # goes into every Lightning checkpoint
    if resume is not None:
        check_fits(resume, module, given)
    best = ModelCheckpoint(out, BEST, monitor="val_loss", save_last=True, enable_version_counter=False)
    ours = processes()
    module_data = StepDataModule(data, config.data, config.model.num_layers, config.seed, ours.rank, ours.count)
    with nullcontext(log) if log is not None else open_log(config) as used, quiet(), stopped(), deterministic_again():
        trainer = _trainer(config, best, used.curves, ours)
        trainer.fit(module, module_data, ckpt_path=resume, weights_only=True)
    module.load_state_dict(lightning_checkpoint(Path(best.best_model_path))["state_dict"])
    return model.cpu().eval()


@contextmanager
def deterministic_again() -> Iterator[None]:
    """Lightning makes the whole process deterministic: undo it afterwards.

    Until then, torch fills no `empty` tensor: all are written before they are read.
    """
    settings: Any = torch.utils.deterministic
    before, filled_before = torch.are_deterministic_algorithms_enabled(), settings.fill_uninitialized_memory
    settings.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        settings.fill_uninitialized_memory = filled_before


def _trainer(config: TrainConfig, best: ModelCheckpoint, curves: Logger, ours: Processes) -> lightning.Trainer:
    on_cpu = not torch.cuda.is_available()
    return lightning.Trainer(
        max_epochs=config.trainer.max_epochs,
        callbacks=[best],
        logger=curves,
        accelerator="cpu" if on_cpu else "gpu",
        devices=ours.count_here,
        num_nodes=ours.count // ours.count_here,
        strategy=DDPStrategy(find_unused_parameters=True) if ours.count > 1 else "auto",  # a batch may lack a relation
        use_distributed_sampler=False,  # SharedBatches divides every batch itself
        enable_progress_bar=config.trainer.progress_bar,
        enable_model_summary=False,
        accumulate_grad_batches=config.optim.batches_per_step,
        gradient_clip_val=config.optim.gradient_clip,
        log_every_n_steps=1,
        num_sanity_val_steps=0,
        deterministic=on_cpu,
    )


@contextmanager
def stopped() -> Iterator[None]:
    """SIGTERM ends with exit code 143; Lightning alone would end with 0."""
    try:
        yield
    except SIGTERMException:
        print("stopped by SIGTERM; resume=auto goes on after the last whole epoch", file=sys.stderr)
        raise SystemExit(STOPPED) from None


@contextmanager
def quiet() -> Iterator[None]:
    """Without Lightning's advice (worker counts, tips, devices found)."""
    loggers = [
        logging.getLogger(n) for n in ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero")
    ]
    levels = [one.level for one in loggers]
    for one in loggers:
        one.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="lightning")
            warnings.filterwarnings("ignore", module="torch")
            yield
    finally:
        for one, level in zip(loggers, levels, strict=True):
            one.setLevel(level)


def keep_what_helps(network: TypedGNN, data: PreparedData, mapped: Mapped = in_turn) -> dict[str, Shares]:
    """Shrink the corrections of each node type, of usual and of scheduled latencies apart (`training.shares`).

    A head trained on few nodes overfits: its corrections are right in direction and too large. Usual latencies keep the
    share whose nodes err least on the validation runs. Scheduled ones keep half of it, unless steps of these runs err
    less with others by more than chance: a few runs do not choose shares. Where the network corrects measurements of
    another machine, they keep none instead of half.

    Node type -> shares, where not all corrections are kept; 0 leaves the base.
    """
    steps = sampled(data.steps["val"])
    judged = [
        Judged(step, residuals, texts_of(step.nodes["node_type"]), run_of(step.run))
        for step, residuals in zip(steps, mapped(partial(residuals_of, network), steps, "judging, val"), strict=True)
    ]
    usual = usual_shares(judged)
    scheduled = scheduled_shares(judged, usual, HALF if data.speed_factors is None else 0.0, mapped)
    chosen = {t: Shares(usual[t], scheduled[t]) for t in usual if not network.is_silent(t)}
    for node_type, shares in chosen.items():
        network.shrink(node_type, shares.usual, shares.scheduled)
    return {t: shares for t, shares in chosen.items() if shares != Shares(1.0, 1.0)}
