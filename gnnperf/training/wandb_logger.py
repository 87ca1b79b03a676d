"""The only file that knows wandb."""

from __future__ import annotations

from pathlib import Path

from lightning.pytorch.loggers import WandbLogger

from gnnperf.errors import InputError
from gnnperf.training.config import LoggerConfig


def wandb_logger(config: LoggerConfig, out: Path) -> WandbLogger:
    """A started run of the project, kept below `out`; offline if the configuration or WANDB_MODE says so.

    Raises:
        InputError: wandb refuses, for instance because nobody is logged in.
    """
    logger = WandbLogger(project=config.project, save_dir=str(out), offline=config.offline, log_model=False)
    try:
        _ = logger.experiment  # starts the run: what is wrong is found before hours of training, not after
    except Exception as error:
        if not type(error).__module__.startswith("wandb."):
            raise
        remedy = "run `wandb login`, or pass logger.offline=true and `wandb sync` later, or logger=csv"
        raise InputError(str(error), where="logger=wandb", remedy=remedy) from error
    return logger
