"""The loop: prepared data and a configuration -> the weights that did best on the validation runs."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities.exceptions import SIGTERMException

from gnnperf.gnn.data.module import StepDataModule
from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.models.gnn import TypedGNN
from gnnperf.gnn.models.stored import check_storable
from gnnperf.gnn.training.config import TrainConfig
from gnnperf.gnn.training.evaluate import Processes, processes
from gnnperf.gnn.training.look import Log, open_log
from gnnperf.gnn.training.module import build_module
from gnnperf.gnn.training.resume import PlainCheckpoints, ReportsTraining, check_fits, resume_path, training_of

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

    Args:
        config: how; where it is among the processes of torchrun, each of them calls this.
        data: steps to train and to validate on.
        model: the network, the same in every process.
        log: takes the curves; None: one of its own, as the configuration says.

    Raises:
        InputError: `resume` names no file, or one of another network or training; more processes than steps in a batch.
    """
    out = Path(config.out)
    module = build_module(model, config.optim, data, config.seed)
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
    module_data = StepDataModule(data, config.data, config.model.num_hops, config.seed, ours.rank, ours.count)
    with log_or_own(log, config) as used, quiet(), stopped(), deterministic_again():
        trainer = _trainer(config, [best, ReportsTraining(given)], used.curves, ours)
        trainer.fit(module, module_data, ckpt_path=resume, weights_only=True)
    module.load_state_dict(PlainCheckpoints().load_checkpoint(best.best_model_path)["state_dict"])
    return model.cpu().eval()


@contextmanager
def deterministic_again() -> Iterator[None]:
    """Lightning makes the whole process deterministic, in which torch fills what `empty` makes: undo it afterwards."""
    before = torch.are_deterministic_algorithms_enabled()
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


@contextmanager
def log_or_own(log: Log | None, config: TrainConfig) -> Iterator[Log]:
    """`log`, left open for its owner; None: the configuration's, open for as long as it is needed here."""
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
        plugins=[PlainCheckpoints()],
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
    """Gradients averaged over processes; a batch need not have every relation, so not every weight has one."""
    return DDPStrategy(find_unused_parameters=True) if ours.count > 1 else "auto"


@contextmanager
def stopped() -> Iterator[None]:
    """A training that was instructed to stop is no success, for which Lightning would have it pass."""
    try:
        yield
    except SIGTERMException:
        print("stopped by SIGTERM; resume=auto goes on after the last whole epoch", file=sys.stderr)
        raise SystemExit(STOPPED) from None


@contextmanager
def quiet() -> Iterator[None]:
    """Lightning's advice (worker counts, tips, devices found) is not for our users."""
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
