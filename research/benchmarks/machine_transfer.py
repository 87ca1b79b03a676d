"""Runs of one machine predicted for another one, from their measurements and a few runs that both recorded.

    python -m research.benchmarks.machine_transfer

Runs of datasets/cpu-gloo, recorded again on two other machines. The shared runs are drawn at random, a quarter of them
validate, every other run that both machines recorded is judged. Network and settings were chosen on cpu-random alone.

    copy         what the first machine measured
    analytical   constants fitted on the second machine's shared runs; no measurement of the judged run
    factors      copy x speed factors of classes of nodes, fitted on the shared runs
    network      experiment=transfer: corrects these
    again        another recording of the run by the second machine: the noise; of runs that it recorded twice
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from gnnperf.gnn import build_model, fit, keep_what_helps
from gnnperf.gnn.data.prepare import Step, prepare
from gnnperf.gnn.data.recordings import Repeats, read_recordings
from gnnperf.gnn.data.runs import read_run, run_of, typical
from gnnperf.gnn.data.source import source_runs
from gnnperf.gnn.data.splits import Split
from gnnperf.gnn.data.step_time import contended_step_time_us
from gnnperf.gnn.evaluation.metrics import gmae
from gnnperf.gnn.settings import DataConfig, ModelConfig
from gnnperf.gnn.training.config import OptimConfig, TrainConfig, TrainerConfig
from gnnperf.gnn.training.evaluate import isolated_prediction
from gnnperf.schedule import align
from research.benchmarks._frame import right_aligned, run_main, show
from research.benchmarks._results import save_result

FIRST = Path("datasets/cpu-gloo")
RUNS, DRAWS = 8, 3  # shared runs; how often they are drawn
OTHERS = (Path("datasets/cpu-again"), Path("datasets/cpu-random"))
MODEL, OPTIM = ModelConfig(hidden_channels=32, num_layers=2), OptimConfig(weight_decay=1e-2)  # experiment=transfer
JUDGED = ("host", "compute", "collective")
FIGURES = ("nodes GMAE %", "nodes by time %", "steps GMAE %", "steps mean %", "steps median %", "steps bias %")


def main() -> None:
    for folder in OTHERS:
        draws = [judged(folder, RUNS, seed) for seed in range(DRAWS)]
        result = pd.concat(draws).groupby("row", sort=False)[list(FIGURES)]
        mean, least, most = result.mean(), result.min(), result.max()
        table = right_aligned(f"{folder.name}: {RUNS} shared runs, mean of {DRAWS} draws", *FIGURES)
        for row in map(str, mean.index):
            ends = zip(mean.loc[row], least.loc[row], most.loc[row], strict=True)
            table.add_row(
                row, *("-" if np.isnan(at) else f"{at:.1f} ({low:.1f} to {high:.1f})" for at, low, high in ends)
            )
        show(table)
        result_name = f"machine_transfer_{folder.name.removeprefix('cpu-')}"
        save_result(result_name, *map(float, mean.loc["network", [FIGURES[0], FIGURES[2]]]))


def judged(folder: Path, num_runs: int, seed: int) -> pd.DataFrame:
    """Figures of every row for one draw of shared runs."""
    here, there = read_recordings(folder), read_recordings(FIRST)
    split, data_config = _split(here, sorted(set(here) & set(there)), num_runs, seed), DataConfig(path=str(folder))
    cache = Path(data_config.cache_dir).expanduser()
    data = prepare(data_config, split, lambda name: read_run(folder, name, cache), None, source_runs(FIRST, cache))
    trainer = TrainerConfig(progress_bar=False)
    with TemporaryDirectory() as out:
        config = TrainConfig(data=data_config, model=MODEL, optim=OPTIM, trainer=trainer, seed=seed, out=out)
        network = fit(config, data, build_model(config, data))
    keep_what_helps(network, data)
    rows: dict[str, Mapping[str, float]] = {}
    steps = data.steps["test"]
    network_us = [isolated_prediction(network, step) for step in steps]
    rows["copy"] = figures(steps, [_copy_us(step) for step in steps])
    rows["analytical"] = figures(steps, [_stored(step, "analytic_us") for step in steps])
    rows["factors"] = figures(steps, [_stored(step, "base_us") for step in steps])
    rows["network"] = figures(steps, [one.usual_us for one in network_us], [one.scheduled_us for one in network_us])
    rows["again"] = _again(steps)
    return pd.DataFrame([{"row": row, **values} for row, values in rows.items()])


def _split(here: Mapping[str, Repeats], shared: Sequence[str], num_runs: int, seed: int) -> Split:
    order = np.random.default_rng(seed).permutation(shared).tolist()
    num_val = max(2, num_runs // 4)
    parts = (order[num_val:num_runs], order[:num_val], order[num_runs:])
    names = (tuple(one.name for run in part for one in here[run].values()) for part in parts)
    return Split("machine", *names)


def _stored(step: Step, name: str) -> np.ndarray:
    """[num_nodes] a column of the work nodes of a step; NaN at other nodes."""
    result = np.full(len(step.nodes), np.nan)
    for kind in JUDGED:
        store = step.data[kind]
        result[store.node_id.numpy()] = store[name].numpy()
    return result


def _copy_us(step: Step) -> np.ndarray:
    """[num_nodes] means over the steps that the first machine recorded; NaN where it has no such node."""
    source = source_runs(FIRST, Path(DataConfig().cache_dir).expanduser())
    there = typical(source.read(source.recordings[run_of(step.run)]))
    rows = align(step.graph, there.graph)  # [num_nodes]
    measured_us = np.where(rows >= 0, there.isolated.usual_us[rows], np.nan)
    return np.where(np.nan_to_num(measured_us) > 0, measured_us, np.nan)


def figures(
    steps: Sequence[Step], usual_us: Sequence[np.ndarray], scheduled_us: Sequence[np.ndarray] | None = None
) -> dict[str, float]:
    """Errors of latencies of isolated ops, [num_nodes] per step, and of the step times that they give."""
    predicted, measured, off = [], [], []
    for step, usual, scheduled in zip(steps, usual_us, scheduled_us or usual_us, strict=True):
        label_us = _stored(step, "base_us") * np.exp(_stored(step, "target"))  # [num_nodes]
        known = np.isfinite(label_us) & np.isfinite(usual)
        predicted.append(usual[known])
        measured.append(label_us[known])
        off.append(contended_step_time_us(step, scheduled) / step.step_us - 1)
    return _figures(np.concatenate(predicted), np.concatenate(measured), np.array(off))


def _figures(predicted: np.ndarray, measured: np.ndarray, steps_off: np.ndarray) -> dict[str, float]:
    by_time = float(np.abs(predicted - measured).sum() / measured.sum())
    of_steps = gmae(1.0 + steps_off, np.ones(len(steps_off)))
    errors = (gmae(predicted, measured), by_time, of_steps, np.abs(steps_off).mean(), np.median(np.abs(steps_off)),
              steps_off.mean())  # fmt: skip
    return {name: 100 * float(value) for name, value in zip(FIGURES, errors, strict=True)}


def _again(steps: Sequence[Step]) -> dict[str, float]:
    """The error of each recording of a run as a prediction of the next one; of runs that were recorded twice."""
    predicted, measured, off = [], [], []
    for before, after in pairwise(steps):
        if run_of(before.run) != run_of(after.run):
            continue
        rows = align(after.graph, before.graph)
        earlier, later = (_stored(one, "base_us") * np.exp(_stored(one, "target")) for one in (before, after))
        earlier = np.where(rows >= 0, earlier[rows], np.nan)
        known = np.isfinite(earlier) & np.isfinite(later)
        predicted.append(earlier[known])
        measured.append(later[known])
        off.append(before.step_us / after.step_us - 1)
    if not predicted:
        return dict.fromkeys(FIGURES, float("nan"))
    return _figures(np.concatenate(predicted), np.concatenate(measured), np.array(off))


if __name__ == "__main__":
    run_main(main)
