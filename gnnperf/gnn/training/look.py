"""The log of a training run, and what it holds of a trained network apart from its curves."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.express
from lightning.pytorch.loggers import CSVLogger, Logger, WandbLogger
from plotly.graph_objects import Figure

from gnnperf.core import InputError, Mapped, csv_text, in_turn, plotly_page, to_json, write_bytes, write_text
from gnnperf.gnn.data.prepare import Step
from gnnperf.gnn.evaluation.metrics import is_measured, summarize
from gnnperf.gnn.models.gnn import TypedGNN
from gnnperf.gnn.training.config import LoggerKind, TrainConfig
from gnnperf.gnn.training.evaluate import predicted_us, processes, validation_gmae

# Where a training run leaves what a person looks at: curves, tables, figures, facts.


class Log:
    """Files below `out`: curves/, tables/NAME.csv, figures/NAME.html (works offline), facts.json.

    Names are file names without an ending.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.facts: dict[str, str | float] = {}

    @property
    def curves(self) -> Logger:
        """What Lightning writes losses to, epoch by epoch: curves/version_N/metrics.csv."""
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

    def keep(self, path: Path) -> None:
        """Keep a file with the run; on this machine it stays where it is."""

    def close(self, status: str) -> None:
        """End the run, "success" or "failed"; files need nothing."""

    def _file(self, folder: str, name: str) -> Path:
        (self.out / folder).mkdir(parents=True, exist_ok=True)
        return self.out / folder / name


# wandb is used in this file only.

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


SWEEP_RUN = "WANDB_RUN_ID"  # variable that `wandb agent` sets
RUN_ID = "wandb_run"  # file below `out`: a resumed training goes on in the same run


class WandbLog(Log):
    """A wandb run, and the files next to it.

    Offline if the configuration or WANDB_MODE asks for it. Of several processes only the first one's run is real.

    Raises:
        InputError: wandb refuses, for instance because no one is logged in.
    """

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(Path(config.out))
        begun = self.out / RUN_ID  # the run that an interrupted training began
        self.logger = WandbLogger(
            project=config.logger.project,
            save_dir=config.out,
            id=begun.read_text().strip() if config.resume is not None and begun.is_file() else os.getenv(SWEEP_RUN),
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
        super().table(name, rows)
        self.logger.log_table(f"tables/{name}", dataframe=rows)

    def figure(self, name: str, figure: Figure) -> None:
        """A wandb chart, and the file."""
        super().figure(name, figure)
        self.logger.experiment.log({f"figures/{name}": figure})

    def fact(self, name: str, value: str | float) -> None:
        """An entry of the run's summary, and of the file."""
        super().fact(name, value)
        self.logger.experiment.summary[name] = value

    def keep(self, path: Path) -> None:
        """An artifact: each training of the project adds a version."""
        self.logger.experiment.log_artifact(path, name=path.stem, type="model")

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
            (self.out / RUN_ID).write_text(f"{self.logger.version}\n")


def settings_of(config: TrainConfig) -> dict[str, Any]:
    """The configuration as it may leave the machine: of a path that starts at the root or at home only the name."""
    plain: dict[str, Any] = _without_folders(json.loads(json.dumps(asdict(config))))
    return plain


def _without_folders(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_folders(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_folders(inner) for inner in value]
    return Path(value).name if isinstance(value, str) and value.startswith(("/", "~")) else value


# A trained network node by node: where its errors are, and a sample of its predictions to look at.

DESCRIBED = ("node_type", "family", "op_name", "phase", "segment", "dtype", "input_dims")
MAX_ROWS = 2000  # of a table of predictions, however many nodes there are
GROUPS = (("family", "node_type"), ("op_name", "node_type"), ("run",))  # of tables of errors
MAX_WORST = 100  # of a table of the worst nodes


def node_outputs(network: TypedGNN, steps: Sequence[Step], mapped: Mapped = in_turn) -> pd.DataFrame:
    """One row per node with a measured latency and a prediction.

    Columns: run, node_id, those of DESCRIBED, measured_us, predicted_us, base_us (what the network corrects).
    """
    tables: list[pd.DataFrame] = mapped(partial(_of_step, network), steps, "describing nodes")
    nodes = pd.concat(tables, ignore_index=True)
    use = is_measured(nodes["measured_us"].to_numpy()) & (nodes["predicted_us"].to_numpy() > 0)
    return nodes[use].reset_index(drop=True)


def _of_step(network: TypedGNN, step: Step) -> pd.DataFrame:
    numbers = {
        "measured_us": step.stored("latency_us"),
        "predicted_us": predicted_us(network, step),
        "base_us": step.stored("base_us"),
    }
    nodes = step.nodes[[*DESCRIBED]].astype(object).assign(run=step.run, node_id=range(len(step.nodes)), **numbers)
    return nodes[["run", "node_id", *DESCRIBED, *numbers]]


def errors_by(nodes: pd.DataFrame, *keys: str) -> pd.DataFrame:
    """One row per group of nodes (rows of node_outputs), the longest measured time first.

    Columns: the keys, nodes, time_share (of the measured time of all nodes), gmae, median_ape, bias, total_bias of
        the network (metrics.ErrorSummary) and base_gmae.
    """
    total_us, rows = nodes["measured_us"].sum(), []
    for values, group in nodes.groupby(list(keys), dropna=False, sort=True):
        measured_us = group["measured_us"].to_numpy()
        errors, base = (summarize(group[name].to_numpy(), measured_us) for name in ("predicted_us", "base_us"))
        rows.append({**dict(zip(keys, values, strict=True)), "nodes": errors.num_nodes, "base_gmae": base.gmae,
                     "time_share": measured_us.sum() / total_us, **asdict(errors)})  # fmt: skip
    table = pd.DataFrame(rows).sort_values("time_share", ascending=False, kind="stable", ignore_index=True)
    return table[[*keys, "nodes", "time_share", "gmae", "base_gmae", "median_ape", "bias", "total_bias"]]


def sampled(nodes: pd.DataFrame, max_rows: int = MAX_ROWS, seed: int = 0) -> pd.DataFrame:
    """At most `max_rows` of these nodes, every one as likely, in their order, with the error of each."""
    count = min(max_rows, len(nodes))
    rows = np.sort(np.random.default_rng(seed).choice(len(nodes), count, replace=False))
    sample = nodes.iloc[rows].reset_index(drop=True)
    return sample.assign(log_error=np.log(sample["predicted_us"] / sample["measured_us"]))


def worst(nodes: pd.DataFrame, max_rows: int = MAX_WORST) -> pd.DataFrame:
    """The nodes (rows of node_outputs) that err by most us, the worst first.

    Columns: those of `nodes`, error_us (predicted - measured), error_share (of the sum of |error_us| over all nodes).
    """
    error_us = nodes["predicted_us"] - nodes["measured_us"]
    rows = error_us.abs().nlargest(max_rows).index
    share = error_us.abs() / error_us.abs().sum()
    return nodes.loc[rows].assign(error_us=error_us[rows], error_share=share[rows]).reset_index(drop=True)


# Figures of a trained network's predictions.

AROUND = 0.1  # drawn next to the diagonal: 10 % too long, 10 % too short


def parity(nodes: pd.DataFrame, title: str) -> Figure:
    """Predicted against measured latency of rows of `sampled`, both axes logarithmic, a color per node type."""
    figure = plotly.express.scatter(
        nodes, x="measured_us", y="predicted_us", color="node_type", hover_data=["op_name", "run"], opacity=0.5,
        log_x=True, log_y=True, title=title, width=760, height=700,
        labels={"measured_us": "measured (us)", "predicted_us": "predicted (us)", "node_type": "node type"},
    )  # fmt: skip
    values = nodes[["measured_us", "predicted_us"]].to_numpy(np.float64)  # [n, 2]
    ends = np.array([values.min(), values.max()]) if len(values) else np.array([1.0, 10.0])  # of both axes, us
    for factor, dash in ((1.0, "solid"), (1.0 + AROUND, "dot"), (1.0 - AROUND, "dot")):
        line = {"color": "gray", "width": 1, "dash": dash}
        figure.add_scatter(x=ends, y=factor * ends, mode="lines", line=line, showlegend=False, hoverinfo="skip")
    return figure


def family_bars(errors: pd.DataFrame, title: str) -> Figure:
    """Error of the network and of what it corrects, two bars per row of `errors_by` family and node type."""
    labels = errors["family"].astype(str) + ", " + errors["node_type"].astype(str)
    figure = Figure(layout={"title": title, "barmode": "group", "yaxis": {"title": "GMAE", "tickformat": ".0%"}})
    for column, name in (("gmae", "network"), ("base_gmae", "base")):
        figure.add_bar(x=labels, y=errors[column], name=name)
    return figure


def log_outputs(
    log: Log, network: TypedGNN, val: Sequence[Step], comparison: Mapping[str, pd.DataFrame], checkpoint: Path,
    sha256: str, mapped: Mapped = in_turn,
) -> None:  # fmt: skip
    """Log what the network predicts on the validation runs, how it compares, and the file that holds it.

    Node by node only validation runs are shown: what is changed after a look at test runs was fitted on them.

    `val` are steps of the validation runs; `comparison`: part -> every prediction's errors (evaluate).
    """
    nodes = node_outputs(network, val, mapped)
    sample = sampled(nodes)
    tables = {keys[0]: errors_by(nodes, *keys) for keys in GROUPS}
    for name, table in tables.items():
        log.table(f"val_errors_by_{name}", table)
    log.table("val_worst_nodes", worst(nodes))
    log.table("val_predictions", sample)
    log.figure("val_errors_by_family", family_bars(tables["family"], "Errors of the validation runs by family"))
    log.figure("val_parity", parity(sample, "Node latencies of the validation runs"))
    for part, table in comparison.items():
        log.table(f"{part}_comparison", table)
    log.fact("val_gmae", validation_gmae(comparison))
    log.fact("checkpoint_sha256", sha256)
    log.keep(checkpoint)


@contextmanager
def open_log(config: TrainConfig) -> Iterator[Log]:
    """The log of the configuration, closed at the end: the next job of a multirun begins one of its own.

    Raises:
        InputError: wandb refuses.
    """
    log = Log(Path(config.out)) if config.logger.kind is LoggerKind.csv else WandbLog(config)
    try:
        yield log
    except BaseException:
        log.close("failed")
        raise
    log.close("success")
