"""Convolution forward in float32 (NeuSight, 3 x 3 windows at stride 1), one chip left out of everything that is fitted.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks.convolution

Next to the model: no algorithm but the direct one; FLOPs over peak, both behind the same wait for the host; and what
the same call took on the nearest GPU times the ratio of peaks, which knows this very size and when it was measured.
"model, host known": the same with the speed of this GPU's host, from its short rows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from rich.table import Table

from gnnperf.analytic.kernels.call import Setting
from gnnperf.gnn import summarize
from gnnperf.hardware import DeviceSpec
from research.benchmarks._frame import ERROR_COLUMNS, error_texts, run_main, show
from research.benchmarks._public_runs import mirror
from research.benchmarks._results import save_result
from research.fitting.convolution import forward_algorithms
from research.fitting.forms import CONVOLUTION, FormConstants, base_us, form_names, on_lanes, retained_forms
from research.fitting.observation import Observation, fit_observation
from research.fitting.rows import CHIP, sampled, spec_of, usable
from research.tables import read_neusight

KEPT = Path("outputs/convolution")
SHORT_US = 100.0
SHORTER = f"kernels under {SHORT_US:g} us"
CALL = ["table", "shapes"]
FITTED_ROWS = 2000  # of each device and table
MODEL, DIRECT, ROOFLINE, NEAREST, HOST = "model", "without Winograd", "FLOPs / peak", "nearest GPU", "model, host known"


def answers(
    rows: pd.DataFrame, others: pd.DataFrame, constants: FormConstants, observation: Observation
) -> dict[str, np.ndarray]:
    """Latency of one device's rows by each predictor: [n] us each."""
    device = spec_of(str(rows["device"].iloc[0]))
    assert constants.memory is not None and constants.convolution is not None
    setting = Setting(device, constants.memory, on_lanes(constants.gemm), constants.convolution)
    peak_us = rows["flops"].to_numpy(float) / device.flops_per_s["float32"] * 1e6  # [n]
    host, own_host, model_us = observation.of(rows), fit_observation(rows, constants).of(rows), base_us(rows, constants)
    return {
        MODEL: host.read_us(model_us), HOST: own_host.read_us(model_us),
        DIRECT: host.read_us(forward_algorithms(rows, setting).direct), ROOFLINE: host.read_us(peak_us),
        NEAREST: nearest_us(rows, device, others),
    }  # fmt: skip


def nearest_us(rows: pd.DataFrame, device: DeviceSpec, others: pd.DataFrame) -> np.ndarray:
    """[n] the same call on the nearest GPU, times the ratio of peaks; NaN: not measured there.

    Nearest: smallest distance of log peak, bandwidth and SMs among GPUs that have the table.
    """
    here, table = _numbers(device), str(rows["table"].iloc[0])
    having = map(str, others.loc[others["table"] == table, "device"].unique())
    away = {name: _numbers(spec_of(name)) for name in having}
    nearest = min(away, key=lambda name: float(np.linalg.norm(np.log(away[name] / here))))
    there = others[others["device"] == nearest].drop_duplicates(CALL).set_index(CALL)["latency_us"]
    latency = there.reindex(pd.MultiIndex.from_frame(rows[CALL])).to_numpy(float)
    return np.asarray(latency * away[nearest][0] / here[0])


def _numbers(device: DeviceSpec) -> np.ndarray:
    """Peak FLOP/s in float32 without matrix units, bandwidth, SMs."""
    return np.array([device.flops_per_s["float32"], device.memory_bandwidth_bytes_per_s, device.num_sms])


def waits_us(rows: pd.DataFrame, kernel_us: np.ndarray) -> tuple[float, float]:
    """Measured minus modeled time of short kernels, in the first and in the last tenth of the calls: medians."""
    order, short = rows["calls_before"].rank(pct=True).to_numpy(), kernel_us < SHORT_US  # [n]
    over = rows["latency_us"].to_numpy(float) - kernel_us  # [n]
    return float(np.median(over[short & (order <= 0.1)])), float(np.median(over[short & (order > 0.9)]))


def main() -> None:
    """Print one line per device and answer, then means over devices."""
    rows = usable(read_neusight(mirror())).rows
    printed = Table("GPU", "answer", *ERROR_COLUMNS)
    means: dict[str, list[float]] = {}
    for chip in sorted(rows[CHIP].unique()):
        others = rows[rows[CHIP] != chip].reset_index(drop=True)
        some = others.iloc[sampled(others, FITTED_ROWS, ["device", "table"], seed=0)].reset_index(drop=True)
        own = rows[(rows[CHIP] == chip).to_numpy() & (form_names(rows) == CONVOLUTION)]
        for name, part in own.groupby("device"):
            constants = retained_forms(some, KEPT)
            first, last = waits_us(part, base_us(part, constants))
            (machine_scale,) = fit_observation(part, constants).shares.values()
            print(f"{name}: {SHORTER} took {first:.0f} us longer in the first tenth of calls, {last:.0f} in the last; "
                  f"the host takes {machine_scale:.2f} times as long as that of the others")  # fmt: skip
            given = answers(part.reset_index(drop=True), others, constants, fit_observation(some, constants))
            for answer, result in given.items():
                printed.add_row(str(name), answer, *error_texts(result, part["latency_us"]))
                means.setdefault(answer, []).append(summarize(result, part["latency_us"].to_numpy(float)).mean_ape)
    show(printed, width=110)
    save_result("convolution", 100 * float(np.mean(means[MODEL])))
    for answer, errors_of in means.items():
        print(f"{answer}: mean over GPUs {np.mean(errors_of):.1%}, worst {max(errors_of):.1%}")


if __name__ == "__main__":
    run_main(main)
