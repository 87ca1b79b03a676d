"""Memory-bound kernels on a GPU of a generation that no constant was fitted on: elementwise, softmax, layer norm.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks.memory_bound

NeuSight's tables (float32 forward, eager, between events). Constants are fitted on the other generations. Next to them
the trivial predictions: the same shape's time on the nearest other GPU, scaled by bandwidths; and bytes over the
data-sheet bandwidth. "own gap" is the same model with the host's time of a call, which no specification contains,
from the unseen machine's smallest shapes. It shows the remaining error.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
from rich.table import Table

from gnnperf.analytic.memory_bound.constants import MemoryConstants
from gnnperf.gnn import summarize
from gnnperf.hardware import DeviceSpec
from research.benchmarks._frame import ERROR_COLUMNS, error_texts, run_main, show
from research.benchmarks._op_tables import memory_rows
from research.fitting.memory import LAYER_NORM, SOFTMAX, call_times_us, fit_memory_constants, predicted_us

POINT = ["table", "rows", "columns"]
MODEL, OWN_GAP, NEAREST, ROOFLINE = "model", "own gap", "nearest GPU x bandwidth", "bytes / bandwidth"
ANSWERS = (MODEL, OWN_GAP, NEAREST, ROOFLINE)


def held_out(rows: pd.DataFrame, devices: dict[str, DeviceSpec]) -> Iterator[pd.DataFrame]:
    """Rows of each device with a column per prediction, from constants that saw nothing of its generation."""
    groups = rows["device"].map({name: device.architecture or device.name for name, device in devices.items()})
    for group in sorted(groups.unique()):
        seen = rows[groups != group]
        constants = fit_memory_constants(seen, devices, "")
        for name, part in rows[groups == group].groupby("device"):
            yield estimates(part, str(name), seen, devices, constants)


def estimates(
    part: pd.DataFrame, name: str, seen: pd.DataFrame, devices: dict[str, DeviceSpec], constants: MemoryConstants
) -> pd.DataFrame:
    """One device's rows with every prediction, us."""
    device = devices[name]
    own = call_times_us(part)
    gaps = {table: replace(gap, call_us=own[name, table]) for table, gap in constants.gaps.items()}
    roofline_us = part["moved_bytes"] / device.memory_bandwidth_bytes_per_s * 1e6
    model_us = predicted_us(part, device, constants)
    own_gap_us = predicted_us(part, device, replace(constants, gaps=gaps))
    result = part.assign(**{MODEL: model_us, OWN_GAP: own_gap_us, ROOFLINE: roofline_us.to_numpy()})
    return result.merge(nearest(device, seen, devices), on=POINT, how="left")


def nearest(device: DeviceSpec, seen: pd.DataFrame, devices: dict[str, DeviceSpec]) -> pd.DataFrame:
    """Times of the GPU whose bandwidth is closest (in ratio), scaled by that ratio."""
    ratio = {name: devices[name].memory_bandwidth_bytes_per_s / device.memory_bandwidth_bytes_per_s
             for name in map(str, seen["device"].unique())}  # fmt: skip
    best = min(ratio, key=lambda name: abs(np.log(ratio[name])))
    theirs = seen[seen["device"] == best]
    return theirs[POINT].assign(**{NEAREST: theirs["latency_us"] * ratio[best]})


def main() -> None:
    rows, devices = memory_rows()
    judged = pd.concat(held_out(rows, devices), ignore_index=True)
    judged["kind"] = judged["table"].map({LAYER_NORM: "layer norm", SOFTMAX: "softmax"}).fillna("elementwise")
    printed = Table("class", "unseen GPU", "predictor", *ERROR_COLUMNS)
    means: dict[tuple[str, str], list[float]] = {}
    for (kind, name), part in judged.groupby(["kind", "device"]):
        for estimate in ANSWERS:
            result, measured = part[estimate].to_numpy(float), part["latency_us"].to_numpy(float)
            printed.add_row(str(kind), str(name), estimate, *error_texts(result, measured))
            means.setdefault((str(kind), estimate), []).append(summarize(result, measured).mean_ape)
    show(printed, width=140)
    for (kind, estimate), values in means.items():
        print(f"{kind:12s} {estimate:24s} mean over {len(values)} unseen GPUs {100 * np.mean(values):6.1f} %, "
              f"worst GPU {100 * max(values):6.1f} %")  # fmt: skip


if __name__ == "__main__":
    run_main(main)
