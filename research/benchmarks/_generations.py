"""Op tables of several GPUs, and closed forms that were fitted without a generation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from research.benchmarks._public_runs import mirror
from research.pretraining.forms import base_us, retained_forms
from research.pretraining.observation import fit_observation
from research.pretraining.rows import usable
from research.tables import read_aiconfigurator, read_neusight

GEMM, OPS = "bfloat16 products", "single ops in float32"
KIND = "kind"
KINDS = {"gemm": "product", "linear": "linear", "bmm": "bmm", "conv": "convolution", "softmax": "softmax",
         "ln": "layer norm", "add": "elementwise", "gelu": "elementwise"}  # fmt: skip
FAMILIES = {"product": "gemm", "linear": "gemm", "bmm": "gemm", "convolution": "conv", "softmax": "softmax",
            "layer norm": "norm", "elementwise": "elementwise"}  # fmt: skip
DTYPES = {GEMM: "bfloat16", OPS: "float32"}


@cache
def tables() -> Mapping[str, pd.DataFrame]:
    """Rows with a kind, by campaign."""
    read = {GEMM: usable(read_aiconfigurator(mirror())).rows, OPS: usable(read_neusight(mirror())).rows}
    return {name: rows.assign(**{KIND: rows["table"].map(KINDS)}).dropna(subset=[KIND]) for name, rows in read.items()}


def closed_forms(others: pd.DataFrame, keep: Path) -> Callable[[pd.DataFrame], np.ndarray]:
    """Constants and waits fitted on rows of other GPUs: rows [n] -> [n] log us, as the method reads them.

    Args:
        others: of research.pretraining.rows.usable.
        keep: folder of fitted constants.
    """
    constants = retained_forms(others, keep)
    observation = fit_observation(others, constants)

    def log_us(rows: pd.DataFrame) -> np.ndarray:
        return np.asarray(observation.of(rows).log_us(torch.from_numpy(base_us(rows, constants)).log()))

    return log_us
