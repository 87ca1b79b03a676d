"""Where closed forms miss a generation that was left out: by what bounds a product, next to what the GPU reached."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from research.benchmarks._products import peak_flops_per_s
from research.benchmarks._transfer_tables import judged
from research.pretraining.forms import base_us
from research.pretraining.retained_forms import retained_forms
from research.pretraining.rows import GENERATION, spec_of

LONG_US = 1000.0
CACHED, STREAMED, SHORT, LONG = (
    "operands fit the cache", "bound by memory", "bound by arithmetic, under 1 ms", "bound by arithmetic, longer"
)  # fmt: skip


def where(rows: pd.DataFrame, retained: Path) -> None:
    """Print one line per GPU and group of its products."""
    print("\n| GPU left out | products | rows | mean | bias | of peak FLOP/s: median, p90 | of peak bandwidth |")
    print("|---|---|---|---|---|---|---|")
    for generation in sorted(rows[GENERATION].unique()):
        constants = retained_forms(rows[rows[GENERATION] != generation].reset_index(drop=True), retained)
        for one in judged(rows[rows[GENERATION] == generation]):
            us = base_us(one.rows, constants)
            group = groups(one.rows, one.device)
            for name in (CACHED, STREAMED, SHORT, LONG):
                if (group == name).any():
                    print(_line(one.device, name, one.rows[group == name], us[group == name]), flush=True)


def groups(rows: pd.DataFrame, device: str) -> np.ndarray:
    """[n] by vendor numbers of the device: what six calls in turn touch against its cache, bytes against FLOPs."""
    spec = spec_of(device)
    compute_us = rows["flops"].to_numpy() / peak_flops_per_s(spec, str(rows["dtype"].iloc[0])) * 1e6
    memory_us = rows["moved_bytes"].to_numpy() / spec.memory_bandwidth_bytes_per_s * 1e6
    cached = (rows["turns"] * rows["moved_bytes"]).to_numpy() <= spec.l2_bytes
    is_long = rows["latency_us"].to_numpy() > LONG_US
    return np.select([cached, memory_us > compute_us, ~is_long], [CACHED, STREAMED, SHORT], LONG).astype(object)


def _line(device: str, name: str, rows: pd.DataFrame, us: np.ndarray) -> str:
    spec, measured_us = spec_of(device), rows["latency_us"].to_numpy()
    error = us / measured_us - 1
    peak = rows["flops"].to_numpy() / measured_us * 1e6 / peak_flops_per_s(spec, str(rows["dtype"].iloc[0]))
    bandwidth = rows["moved_bytes"].to_numpy() / measured_us * 1e6 / spec.memory_bandwidth_bytes_per_s
    reached = [f"{np.median(share):.2f}, {np.quantile(share, 0.9):.2f}" for share in (peak, bandwidth)]
    return (f"| {device} | {name} | {len(rows)} | {np.abs(error).mean():.1%} | {np.median(error):+.1%} | "
            f"{' | '.join(reached)} |")  # fmt: skip
