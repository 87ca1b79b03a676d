"""The only file that knows wandb."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Any

import pandas as pd
from lightning.pytorch.loggers import Logger, WandbLogger
from plotly.graph_objects import Figure

from gnnperf.core import InputError
from gnnperf.gnn.training.config import TrainConfig
from gnnperf.gnn.training.curves import FolderLog
from gnnperf.gnn.training.processes import processes

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


RUN_ID = "wandb_run"  # file below `out`: a resumed training goes on in the same run


class WandbLog:
    """A wandb run, and the files of a FolderLog beside it.

    Offline if the configuration or WANDB_MODE says so. Of several processes only the first one's run is real.

    Raises:
        InputError: wandb refuses, for instance because nobody is logged in.
    """

    def __init__(self, config: TrainConfig) -> None:
        self.files = FolderLog(Path(config.out))
        self.logger = WandbLogger(
            project=config.logger.project,
            save_dir=config.out,
            id=_run_to_go_on(config),
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

    def figure(self, name: str, figure: Figure) -> None:
        """A wandb chart, and the file."""
        self.files.figure(name, figure)
        self.logger.experiment.log({f"figures/{name}": figure})

    def fact(self, name: str, value: str | float) -> None:
        """An entry of the run's summary, and of the file."""
        self.files.fact(name, value)
        self.logger.experiment.summary[name] = value

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
        if processes().is_first:
            (self.files.out / RUN_ID).write_text(f"{self.logger.version}\n")


def _run_to_go_on(config: TrainConfig) -> str | None:
    """The id of the run that an interrupted training began; None: a new run."""
    path = Path(config.out) / RUN_ID
    return path.read_text().strip() if config.resume is not None and path.is_file() else None


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
