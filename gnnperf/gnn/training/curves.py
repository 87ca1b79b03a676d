"""Where a training run leaves what a person looks at: curves, tables, figures, facts."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pandas as pd
from lightning.pytorch.loggers import CSVLogger, Logger
from plotly.graph_objects import Figure

from gnnperf.core import csv_text, plotly_page, to_json, write_bytes, write_text


class Log(Protocol):
    """A run's log; names are file names without an ending."""

    @property
    def curves(self) -> Logger:
        """What Lightning writes losses to, epoch by epoch."""
        ...

    def table(self, name: str, rows: pd.DataFrame) -> None:
        """Keep a table."""
        ...

    def figure(self, name: str, figure: Figure) -> None:
        """Keep a figure."""
        ...

    def fact(self, name: str, value: str | float) -> None:
        """Keep one number or text about the run."""
        ...


class FolderLog:
    """Files below `out`: curves/, tables/NAME.csv, figures/NAME.html (works offline), facts.json."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.facts: dict[str, str | float] = {}

    @property
    def curves(self) -> Logger:
        """curves/version_N/metrics.csv."""
        return CSVLogger(save_dir=self.out, name="curves")

    def table(self, name: str, rows: pd.DataFrame) -> None:
        """Write tables/NAME.csv."""
        write_text(self._file("tables", f"{name}.csv"), csv_text(rows))

    def figure(self, name: str, figure: Figure) -> None:
        """Write figures/NAME.html, with the program that draws it inside."""
        write_text(self._file("figures", f"{name}.html"), plotly_page(name, [figure]))

    def fact(self, name: str, value: str | float) -> None:
        """Write facts.json anew."""
        self.facts[name] = value
        write_bytes(self._file(".", "facts.json"), to_json(self.facts))

    def _file(self, folder: str, name: str) -> Path:
        (self.out / folder).mkdir(parents=True, exist_ok=True)
        return self.out / folder / name
