"""The only file that knows wandb."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Any

import pandas as pd
from lightning.pytorch.loggers import Logger, WandbLogger
from lightning.pytorch.utilities import rank_zero_only
from plotly.graph_objects import Figure

from gnnperf.errors import InputError
from gnnperf.training.config import TrainConfig
from gnnperf.training.curves import FolderLog

# What wandb would send by itself: host and user names, paths, the command line, git remotes, code, what is printed,
# installed packages. A run is described by its configuration and by nothing of the machine.
PRIVATE = {
    "console": "off",
    "disable_code": True,
    "disable_git": True,
    "disable_job_creation": True,
    "host": "",
    "save_code": False,
    "x_disable_machine_info": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
}


class WandbLog:
    """A wandb run, and the files of a FolderLog beside it.

    Offline if the configuration or WANDB_MODE says so.

    Raises:
        InputError: wandb refuses, for instance because nobody is logged in.
    """

    def __init__(self, config: TrainConfig) -> None:
        self.files = FolderLog(Path(config.out))
        self.logger = WandbLogger(
            project=config.logger.project,
            save_dir=config.out,
            offline=config.logger.offline,
            log_model=False,
            settings=PRIVATE,
        )
        self._start(settings_of(config))

    @property
    def curves(self) -> Logger:
        """The wandb run."""
        return self.logger

    def table(self, name: str, rows: pd.DataFrame) -> None:
        """A wandb table, and the file."""
        self.files.table(name, rows)
        self.logger.log_table(f"tables/{name}", dataframe=rows)

    @rank_zero_only
    def figure(self, name: str, figure: Figure) -> None:
        """A wandb chart, and the file."""
        self.files.figure(name, figure)
        self.logger.experiment.log({f"figures/{name}": figure})

    @rank_zero_only
    def fact(self, name: str, value: str | float) -> None:
        """An entry of the run's summary, and of the file."""
        self.files.fact(name, value)
        self.logger.experiment.summary[name] = value

    @rank_zero_only
    def close(self, status: str) -> None:
        """Send what is left and end the run."""
        self.logger.experiment.finish(exit_code=0 if status == "success" else 1)

    def _start(self, settings: dict[str, Any]) -> None:
        """Start the run: what is wrong is found before hours of training, not after."""
        try:
            _ = self.logger.experiment
        except Exception as error:
            if not type(error).__module__.startswith("wandb."):
                raise
            remedy = "run `wandb login`, or pass logger.offline=true and `wandb sync` later, or logger=csv"
            raise InputError(str(error), where="logger=wandb", remedy=remedy) from error
        self.logger.log_hyperparams(settings)


def settings_of(config: TrainConfig) -> dict[str, Any]:
    """The configuration as it may leave the machine: of a path that starts at the root or at home only the name."""
    plain: dict[str, Any] = _plain(asdict(config))
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str) and value.startswith(("/", "~")):
        return Path(value).name
    return value
