"""The only file that knows wandb."""

from __future__ import annotations

from pathlib import Path

from lightning.pytorch.loggers import WandbLogger

from gnnperf.training.config import LoggerConfig


def wandb_logger(config: LoggerConfig, out: Path) -> WandbLogger:
    """A run of the project, kept below `out`; offline if the configuration or WANDB_MODE says so."""
    return WandbLogger(project=config.project, save_dir=str(out), offline=config.offline, log_model=False)
