"""The training loop: prepared data and a configuration -> the weights of the best epoch, shrunk to what helps."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path

import lightning
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities.exceptions import SIGTERMException

from gnnperf.core import each
from gnnperf.gnn.data.module import StepDataModule
from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.models.gnn import WORK, TypedGNN, answers_of
from gnnperf.gnn.models.stored import check_storable
from gnnperf.gnn.training.config import TrainConfig
from gnnperf.gnn.training.evaluate import Processes, processes
from gnnperf.gnn.training.look import Log, open_log
from gnnperf.gnn.training.module import LatencyModule
from gnnperf.gnn.training.resume import ReportsTraining, check_fits, lightning_checkpoint, resume_path, training_of

BEST = "best"  # name of a Lightning checkpoint
STOPPED = 143  # what a shell reports for a process ended by SIGTERM
SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)  # of corrections, from which shrinkage chooses


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

    Args:
        config: settings; each process of torchrun calls this.
        data: steps to train and to validate on.
        model: the network, the same in every process.
        log: takes the curves; None: the configuration's.

    Raises:
        InputError: `resume` names no file, or one of another network or training; more processes than steps in a batch.
    """
    out = Path(config.out)
    module = LatencyModule(model, config.optim, config.seed)
    resume, given = resume_path(config.resume, out), training_of(config, data, model)
    if resume is not None:
        check_fits(resume, model, given)
    best = ModelCheckpoint(
        dirpath=out,
        filename=BEST,
        monitor="val_loss",
        save_last=True,
        enable_version_counter=False,
    )
    ours = processes()
    module_data = StepDataModule(data, config.data, config.model.num_layers, config.seed, ours.rank, ours.count)
    with log_or_own(log, config) as used, quiet(), stopped(), deterministic_again():
        trainer = _trainer(config, [best, ReportsTraining(given)], used.curves, ours)
        trainer.fit(module, module_data, ckpt_path=resume, weights_only=True)
    module.load_state_dict(lightning_checkpoint(Path(best.best_model_path))["state_dict"])
    return model.cpu().eval()


@contextmanager
def deterministic_again() -> Iterator[None]:
    """Lightning makes the whole process deterministic, so that torch fills every `empty` tensor: undo it afterwards."""
    before = torch.are_deterministic_algorithms_enabled()
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


@contextmanager
def log_or_own(log: Log | None, config: TrainConfig) -> Iterator[Log]:
    """`log`, which its owner closes; None: the configuration's, closed here."""
    if log is not None:
        yield log
        return
    with open_log(config) as own:
        yield own


def _trainer(config: TrainConfig, retained: list[Callback], curves: Logger, ours: Processes) -> lightning.Trainer:
    on_cpu = not torch.cuda.is_available()
    return lightning.Trainer(
        max_epochs=config.trainer.max_epochs,
        callbacks=retained,
        logger=curves,
        accelerator="cpu" if on_cpu else "gpu",
        devices=ours.count_here,
        num_nodes=ours.num_machines,
        strategy=_strategy(ours),
        use_distributed_sampler=False,  # SharedBatches divides every batch itself
        enable_progress_bar=config.trainer.progress_bar,
        enable_model_summary=False,
        gradient_clip_val=config.optim.gradient_clip,
        log_every_n_steps=1,
        num_sanity_val_steps=0,
        deterministic=on_cpu,
    )


def _strategy(ours: Processes) -> DDPStrategy | str:
    """Gradients averaged over processes; a relation that a batch lacks has none."""
    return DDPStrategy(find_unused_parameters=True) if ours.count > 1 else "auto"


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


def keep_what_helps(network: TypedGNN, data: PreparedData) -> dict[str, float]:
    """Shrink the corrections of each node type to the share that errs least on the validation runs.

    A head trained on few nodes overfits: its corrections are right in direction and too large.

    Returns:
        the node types that keep less than all of their corrections -> the share; 0 leaves the base.
    """
    errors = [_errors(_with_share(network, share), data) for share in each(SHARES, "trying shares", "shares")]
    best = {t: SHARES[int(np.nanargmin([e[t] for e in errors]))] for t in WORK if np.isfinite(errors[0][t])}
    reduced = {t: share for t, share in best.items() if share < 1 and not network.is_silent(t)}
    for node_type, share in reduced.items():
        network.shrink(node_type, share)
    return reduced


def _with_share(network: TypedGNN, share: float) -> TypedGNN:
    copy = deepcopy(network)
    for node_type in WORK:
        copy.shrink(node_type, share)
    return copy


def _errors(network: TypedGNN, data: PreparedData) -> Mapping[str, float]:
    """Work type -> mean |log(predicted / label)| over its labeled nodes, of isolated ops; NaN without any."""
    result: dict[str, list[np.ndarray]] = {t: [] for t in WORK}
    for step in data.steps["val"]:
        for node_type, answer in answers_of(network.eval(), step.data).items():
            off = (answer.residual - step.data[node_type].target).abs().numpy()  # [n]
            result[node_type].append(off[np.isfinite(off)])
    every = {t: np.concatenate([*parts, np.zeros(0)]) for t, parts in result.items()}
    return {t: float(errors.mean()) if len(errors) else float("nan") for t, errors in every.items()}
