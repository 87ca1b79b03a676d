"""A small checkpoint of op tables, trained on made-up rows of one kind on V100 and A100."""

from __future__ import annotations

from functools import cache

import pandas as pd

from gnnperf.analytic.kernels.call import KernelCall
from gnnperf.gnn.models.message_passing import ModelConfig
from gnnperf.gnn.training.config import PretrainConfig
from research.pretraining.fit import OTHERS, OWN, fit, prepare
from research.pretraining.forms import shipped_forms
from research.pretraining.op_checkpoint import KindAnswer, OpCheckpoint, op_network
from research.pretraining.recipe import of_kinds
from research.pretraining.rows import PRODUCTS, usable
from tests.research.op_rows import product_rows, table

CONFIG = PretrainConfig(ModelConfig(hidden_channels=8, num_layers=1), steps=60, rows_per_step=8)
SHARE = 0.5


@cache
def small_rows() -> pd.DataFrame:
    """Products with their kind; each takes 900 us more than the one before."""
    rows = product_rows(us=900.0).assign(source=PRODUCTS.source, table=PRODUCTS.table)
    return of_kinds(usable(table(rows)), 100)


@cache
def checkpoint() -> OpCheckpoint:
    """Answers float32 products on V100 with half of its corrections, and nothing else."""
    prepared = prepare(small_rows(), shipped_forms(), CONFIG)
    own, others = fit(prepared, OWN, CONFIG, 0), fit(prepared, OTHERS, CONFIG, 0)
    answer = KindAnswer(PRODUCTS.name, ("v100_pcie_32gb",), SHARE, 0.0)
    return OpCheckpoint(op_network(own, CONFIG.model), op_network(others, CONFIG.model), (answer,), {"seed": 0})


def call(edge: int) -> KernelCall:
    """A square product in float32."""
    dims = f"[[{edge}, {edge}], [{edge}, {edge}]]"
    return KernelCall("aten::mm", dims, "float32", "gemm", 2.0 * edge**3, 12.0 * edge**2)
