"""Op tables that several GPUs have, for benchmarks that leave a generation out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pandas as pd

from research.benchmarks._public_runs import mirror
from research.fitting.rows import usable
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
