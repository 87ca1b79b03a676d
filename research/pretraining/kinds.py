"""Kinds of ops that a network of op tables may answer in traces, and the table that tells each.

Memory-bound kernels are not among them: the tables timed them with operands in the cache, traces run them without.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.analytic.convolution.calls import TF32
from gnnperf.analytic.gemm.model import rate_key
from gnnperf.hardware import DeviceSpec
from research.pretraining.rows import spec_of
from research.tables import aiconfigurator, neusight
from research.tables.columns import CONVOLUTION


@dataclass(frozen=True)
class Kind:
    """One kind of op.

    Attributes:
        name: as the model card says it.
        op: as the table names it; calls of traces come from their sizes.
        dtype: of all tensors.
        source: repository that published the table.
        table: the table's own name.
        method: how it was measured.
        launch_included: whether the wait for the launch is in its latencies.
    """

    name: str
    op: str
    dtype: str
    source: str
    table: str
    method: str
    launch_included: bool


LINEAR, BATCHED = "aten::linear", "aten::bmm"
MATRIX_PRODUCTS = Kind("products, bfloat16", LINEAR, "bfloat16", aiconfigurator.SOURCE, "gemm",
                       aiconfigurator.METHOD, False)  # fmt: skip
PRODUCTS = Kind("products, float32", LINEAR, "float32", neusight.SOURCE, "linear", neusight.METHOD, True)
BATCHED_PRODUCTS = Kind("batched products, float32", BATCHED, "float32", neusight.SOURCE, "bmm", neusight.METHOD, True)
CONVOLUTIONS = Kind("convolutions, float32", CONVOLUTION, "float32", neusight.SOURCE, "conv", neusight.METHOD, True)
KINDS = (MATRIX_PRODUCTS, PRODUCTS, BATCHED_PRODUCTS, CONVOLUTIONS)


def kind_names(rows: pd.DataFrame) -> np.ndarray:
    """[n] name of the kind of op-table rows (research.pretraining.rows.usable), "" for none.

    Convolutions of GPUs with TF32 are of none: the tables ran them without it, programs run them with it.
    """
    result = np.full(len(rows), "", dtype=object)
    for kind in KINDS:
        here = (rows["source"] == kind.source) & (rows["table"] == kind.table) & (rows["dtype"] == kind.dtype)
        result[here.to_numpy(bool)] = kind.name
    tf32 = {name for name in rows["device"].unique() if convolves_in_tf32(spec_of(str(name)))}
    result[rows["device"].isin(tf32).to_numpy(bool) & (result == CONVOLUTIONS.name)] = ""
    return result


def convolves_in_tf32(device: DeviceSpec) -> bool:
    """Whether float32 convolutions use matrix units as programs run them."""
    return rate_key(device, CONVOLUTIONS.dtype, TF32).endswith("_matrix")


def kind_named(name: str) -> Kind:
    """The kind of that name."""
    return next(kind for kind in KINDS if kind.name == name)
