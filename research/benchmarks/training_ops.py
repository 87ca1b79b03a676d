"""Training ops of estimate-train-time (float16, A100-SXM4-80GB) on shapes that no price was fitted on.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks.training_ops

Forward, backward and optimizer steps. Of each op every third size is unseen: hidden sizes (columns), or sequence
lengths where an op has no hidden size, or numbers of layers. A handful of prices per op are fitted on the rest. Next to
the model the trivial answers: bytes over data-sheet bandwidth (FLOPs over peak where an op has them), and the nearest
seen shape's time scaled by the ratio of that bound. "largest": the same where the two largest sizes are unseen instead,
so that the answer lies beyond what was fitted.
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from gnnperf.analytic.memory_bound.constants import default_memory_constants
from gnnperf.gnn import ErrorSummary, summarize
from gnnperf.hardware import match_device
from research.benchmarks._public_runs import mirror
from research.benchmarks._training_models import DTYPE, Setting, model_of
from research.tables import read_estimate_train_time

SIZE_COLUMNS = ("columns", "length", "m", "layers")  # the first that an op has decides what is unseen
LINEAR_SIZE = {"linear1": "k", "linear2": "n", "linear3": "k", "linear4": "n", "linear_final": "k"}  # the hidden size
EVERY_THIRD, LARGEST = slice(1, None, 3), slice(-2, None)  # of the sizes
MODEL, ROOFLINE, NEAREST = "model", "roofline", "nearest shape"


def unseen(rows: pd.DataFrame, table: str, choice: slice) -> np.ndarray:
    """[n] bool: some of an op's sizes, in their order."""
    name = LINEAR_SIZE.get(table) or next(c for c in SIZE_COLUMNS if rows[c].notna().all())
    sizes = np.unique(rows[name].to_numpy(float))
    return rows[name].isin(sizes[choice]).to_numpy()


def bound_us(rows: pd.DataFrame, setting: Setting) -> np.ndarray:
    """[n] the larger of bytes / bandwidth and FLOPs / peak; parameters count as bytes where nothing else is given."""
    device = setting.device
    moved = rows["moved_bytes"].fillna(rows["parameters"]).fillna(2.0 * rows["rows"] * rows["columns"]).to_numpy(float)
    flops = rows["flops"].fillna(0.0).to_numpy(float)
    return 1e6 * np.maximum(moved / device.memory_bandwidth_bytes_per_s, flops / device.flops_per_s[f"{DTYPE}_matrix"])


def nearest_us(seen: pd.DataFrame, requested: pd.DataFrame, setting: Setting) -> np.ndarray:
    """[n] time of the seen shape whose bound is nearest, scaled by the ratio of bounds."""
    known = seen.assign(bound=bound_us(seen, setting)).sort_values("bound")
    bounds, wanted = known["bound"].to_numpy(float), bound_us(requested, setting)
    place = np.abs(np.log(wanted)[:, None] - np.log(bounds)[None, :]).argmin(axis=1)
    return known["latency_us"].to_numpy(float)[place] * wanted / bounds[place]


def judged(rows: pd.DataFrame, table: str, direction: str, setting: Setting, choice: slice) -> dict[str, ErrorSummary]:
    """Errors of every answer on one op's unseen shapes."""
    held = unseen(rows, table, choice)
    seen, requested = rows[~held], rows[held]
    answers = {
        MODEL: model_of(table, direction).fitted_us(seen, requested, setting),
        ROOFLINE: bound_us(requested, setting),
        NEAREST: nearest_us(seen, requested, setting),
    }
    measured = requested["latency_us"].to_numpy(float)
    return {name: summarize(result, measured) for name, result in answers.items()}


def main() -> int:
    """Print one line per op and direction."""
    rows = read_estimate_train_time(mirror()).rows
    device = match_device(str(rows["device"].iloc[0])) if len(rows) else None
    if device is None:
        sys.exit("no tables of DebarghaG/estimate-train-time: set GNNPERF_DATA_MIRROR to a folder that holds them")
    setting = Setting(device, default_memory_constants())
    printed = Table("op", "direction", "unseen", "mean %", "median %", "p90 %", "max %", "bias %", ROOFLINE, NEAREST,
                    "largest", "its nearest")  # fmt: skip
    means: dict[str, list[float]] = {}
    for (table, direction), part in rows.groupby(["table", "direction"]):
        numbered = part.reset_index(drop=True)
        result, out_of_range = (
            judged(numbered, str(table), str(direction), setting, c) for c in (EVERY_THIRD, LARGEST)
        )
        model = result[MODEL]
        shown = [model.mean_ape, model.median_ape, model.p90_ape, model.max_ape, model.bias]
        shown += [result[ROOFLINE].mean_ape, result[NEAREST].mean_ape]
        shown += [out_of_range[MODEL].mean_ape, out_of_range[NEAREST].mean_ape]
        printed.add_row(str(table), str(direction), str(model.num_nodes), *(f"{100 * x:.1f}" for x in shown))
        means.setdefault(str(direction), []).append(model.mean_ape)
        means.setdefault(f"{direction}, largest", []).append(out_of_range[MODEL].mean_ape)
    Console(width=160).print(printed)
    for direction, values in means.items():
        print(f"{direction:19s} mean over {len(values)} ops {100 * np.mean(values):5.1f} %, worst op "
              f"{100 * max(values):5.1f} %, ops above 20 %: {sum(v > 0.2 for v in values)}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
