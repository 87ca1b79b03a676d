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
import torch
from rich.table import Table

from gnnperf.analytic.kernels.call import Setting
from gnnperf.gnn import summarize
from research.benchmarks._frame import ERROR_COLUMNS, error_texts, run_main, show
from research.benchmarks._public_runs import mirror
from research.benchmarks._results import save_result
from research.benchmarks._transfer import Forms, Judged, forms_of, nearest_op_us
from research.fitting.convolution import forward_algorithms
from research.pretraining.forms import CONVOLUTION, form_names, on_lanes
from research.pretraining.observation import Observed, fit_observation
from research.pretraining.rows import CHIP, sampled, spec_of, usable
from research.tables import read_neusight

KEPT = Path("outputs/transfer")
SHORT_US = 100.0
SHORTER = f"kernels under {SHORT_US:g} us"
FITTED_ROWS = 2000  # of each device and table
MODEL, DIRECT, ROOFLINE, NEAREST, HOST = "model", "without Winograd", "FLOPs / peak", "nearest GPU", "model, host known"


def answers(rows: pd.DataFrame, others: pd.DataFrame, forms: Forms) -> dict[str, np.ndarray]:
    """Latency of one device's rows by each predictor: [n] us each."""
    requested, device, constants = forms.requested(rows), spec_of(str(rows["device"].iloc[0])), forms.constants
    assert constants.memory is not None and constants.convolution is not None
    setting = Setting(device, constants.memory, on_lanes(constants.gemm), constants.convolution)
    peak_us = rows["flops"].to_numpy(float) / device.flops_per_s["float32"] * 1e6  # [n]
    host, own_host = requested.encoded.observed, fit_observation(rows, constants).of(rows)
    given = {
        MODEL: (requested.encoded.base_us.numpy(), host), HOST: (requested.encoded.base_us.numpy(), own_host),
        DIRECT: (forward_algorithms(rows, setting).direct, host), ROOFLINE: (peak_us, host),
    }  # fmt: skip
    result = {name: behind(us, waits) for name, (us, waits) in given.items()}
    return {**result, NEAREST: nearest_op_us(Judged(device.name, rows, rows), others)}


def waits_us(rows: pd.DataFrame, kernel_us: np.ndarray) -> tuple[float, float]:
    """Measured minus modeled time of short kernels, in the first and in the last tenth of the calls: medians."""
    order, short = rows["calls_before"].rank(pct=True).to_numpy(), kernel_us < SHORT_US  # [n]
    over = rows["latency_us"].to_numpy(float) - kernel_us  # [n]
    return float(np.median(over[short & (order <= 0.1)])), float(np.median(over[short & (order > 0.9)]))


def behind(kernel_us: np.ndarray, host: Observed) -> np.ndarray:
    """[n] us that the method reads of kernels behind a host's wait."""
    return np.asarray(host.log_us(torch.from_numpy(np.log(kernel_us))).exp())


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
            forms = forms_of(some, KEPT)
            forms_us = forms.requested(part.reset_index(drop=True)).encoded.base_us.numpy()
            first, last = waits_us(part, forms_us)
            (machine_scale,) = fit_observation(part, forms.constants).shares.values()
            print(f"{name}: {SHORTER} took {first:.0f} us longer in the first tenth of calls, {last:.0f} in the last; "
                  f"the host takes {machine_scale:.2f} times as long as that of the others")  # fmt: skip
            given = answers(part.reset_index(drop=True), others, forms)
            for answer, result in given.items():
                printed.add_row(str(name), answer, *error_texts(result, part["latency_us"]))
                means.setdefault(answer, []).append(summarize(result, part["latency_us"].to_numpy(float)).mean_ape)
    show(printed, width=110)
    save_result("convolution", 100 * float(np.mean(means[MODEL])))
    for answer, errors_of in means.items():
        print(f"{answer}: mean over GPUs {np.mean(errors_of):.1%}, worst {max(errors_of):.1%}")


if __name__ == "__main__":
    run_main(main)
