"""How long the ops of estimate-train-time take: counts from shapes, prices from the shapes that were seen.

Most are chains of kernels that stream tensors: start + passes x tensor bytes / bandwidth, where an implementation's
passes are not written down but few (a layer norm, a rotary embedding of eleven kernels).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.analytic.attention import Attentions, FusedRates, fused_us
from gnnperf.analytic.embedding.model import power_access
from gnnperf.analytic.gemm.model import gemm_us, products
from gnnperf.analytic.least_squares import fit_logs
from gnnperf.analytic.memory_bound.constants import EventGap, MemoryConstants
from gnnperf.analytic.memory_bound.streams import US, sustained_bytes_per_s
from gnnperf.analytic.normalization import uneven_rows
from gnnperf.hardware import DeviceSpec
from research.tables.observation import between_events_us

DTYPE, ITEM_BYTES = "float16", 2
BACKWARD = "backward"
ATOMIC_LOOKUPS = 3072  # Embedding.cu: up to that many, gradients are added with atomics; beyond, indices are sorted
Answer = Callable[[np.ndarray], np.ndarray]  # prices -> us
Terms = Callable[[pd.DataFrame], list[np.ndarray]]


@dataclass(frozen=True)
class Setting:
    """What every formula needs."""

    device: DeviceSpec
    constants: MemoryConstants

    def moving_us(self, moved_bytes: np.ndarray) -> np.ndarray:
        """[n] us to stream bytes."""
        return moved_bytes / sustained_bytes_per_s(self.device, self.constants) * US


@dataclass(frozen=True)
class OpModel:
    """One op: its answer for some rows, as a function of prices; and the prices a fit starts at."""

    answer: Callable[[pd.DataFrame, Setting], Answer]
    start: tuple[float, ...]

    def fitted_us(self, seen: pd.DataFrame, requested: pd.DataFrame, setting: Setting) -> np.ndarray:
        """Times [n] of `requested` with prices fitted on `seen`."""
        known, measured = self.answer(seen, setting), np.log(seen["latency_us"].to_numpy(float))
        coefficients = fit_logs(lambda v: np.log(known(v)) - measured, np.array(self.start), prior_weight=1e-3)
        return self.answer(requested, setting)(coefficients)


def _column(rows: pd.DataFrame, name: str) -> np.ndarray:
    return rows[name].to_numpy(float)


def _linear(terms: Callable[[pd.DataFrame, Setting], list[np.ndarray]]) -> Callable[[pd.DataFrame, Setting], Answer]:
    """Sum of prices x terms, after a start of its own."""

    def answer(rows: pd.DataFrame, setting: Setting) -> Answer:
        matrix = np.stack([np.ones(len(rows)), *terms(rows, setting)], axis=1)  # [n, prices]
        return lambda coefficients: matrix @ coefficients

    return answer


def _tensor_us(rows: pd.DataFrame, setting: Setting) -> np.ndarray:
    return setting.moving_us(_column(rows, "rows") * _column(rows, "columns") * ITEM_BYTES)


def _rows(rows: pd.DataFrame, setting: Setting) -> list[np.ndarray]:
    return [_tensor_us(rows, setting)]


def _softmax(rows: pd.DataFrame, setting: Setting) -> list[np.ndarray]:
    """Rows that do not fill a block's vectors are read a second time, element by element."""
    tensor_us = _tensor_us(rows, setting)
    return [tensor_us, tensor_us * uneven_rows(_column(rows, "columns"), ITEM_BYTES)]


def _rotary(rows: pd.DataFrame, setting: Setting) -> Answer:
    """Many small kernels: the device waits for the host, or the host for the device."""
    sizes = [_column(rows, name) for name in ("batch", "heads", "length", "head_dim")]
    tensor_us = setting.moving_us(np.prod(sizes, axis=0) * ITEM_BYTES)
    return lambda coefficients: between_events_us(
        coefficients[2] * tensor_us, EventGap(coefficients[0], coefficients[1])
    )


def _embedding(rows: pd.DataFrame, setting: Setting) -> list[np.ndarray]:
    """Forward: rows gathered. Backward: the table zeroed, different rows written, gradients read; sorted or atomic."""
    lookups, row_bytes = _column(rows, "rows"), _column(rows, "columns") * ITEM_BYTES
    gathered_us = setting.moving_us(lookups * row_bytes)
    if rows["direction"].iloc[0] != BACKWARD:
        return [gathered_us]
    vocabulary = _column(rows, "vocabulary")
    different = power_access(vocabulary, np.ones(len(rows))).unique(lookups)
    is_sorted = (lookups > ATOMIC_LOOKUPS).astype(float)
    return [
        is_sorted, gathered_us * (1 - is_sorted), gathered_us * is_sorted,
        setting.moving_us(different * row_bytes) * is_sorted, setting.moving_us(vocabulary * row_bytes),
    ]  # fmt: skip


def _optimizer(rows: pd.DataFrame, setting: Setting) -> list[np.ndarray]:
    """Bytes per parameter, and the host's time per tensor (per layer, where tensors are not given)."""
    tensors = rows["tensors"].fillna(rows["layers"]).to_numpy(float)
    return [tensors, setting.moving_us(_column(rows, "parameters"))]


def _attention(rows: pd.DataFrame, setting: Setting) -> Answer:
    batch, heads, length, head_dim = (_column(rows, name) for name in ("batch", "heads", "length", "head_dim"))
    calls = Attentions(batch, heads, length, length, head_dim, causal=np.zeros(len(rows), bool))
    backward = rows["direction"].iloc[0] == BACKWARD
    peak = setting.device.flops_per_s[f"{DTYPE}_matrix"]
    return lambda coefficients: fused_us(calls, ITEM_BYTES, peak, setting.device, setting.constants,
                                   FusedRates(*map(float, coefficients)), backward)  # fmt: skip


def _product(rows: pd.DataFrame, setting: Setting) -> list[np.ndarray]:
    """The model of matrix products, backward both gradients; and their tensors once more (a copy, an added matrix)."""
    m, n, k, batch = (_column(rows, name) for name in ("m", "n", "k", "batch"))
    sizes = [(m, k, n), (k, n, m)] if rows["direction"].iloc[0] == BACKWARD else [(m, n, k)]
    each_us = [gemm_us(setting.device, DTYPE, products(*s, batch, ITEM_BYTES)) for s in sizes]
    return [np.sum(each_us, axis=0), setting.moving_us(_column(rows, "moved_bytes"))]


STREAM = OpModel(_linear(_rows), (10.0, 3.0))
PRODUCT = OpModel(_linear(_product), (1.0, 1.0, 0.1))
STEP = OpModel(_linear(_optimizer), (100.0, 100.0, 30.0))
FORWARD_MODELS: Mapping[str, OpModel] = {
    "softmax": OpModel(_linear(_softmax), (10.0, 3.0, 1.0)), "RoPE": OpModel(_rotary, (200.0, 0.5, 20.0)),
    "embedding": OpModel(_linear(_embedding), (50.0, 10.0)),
    "flash_atten": OpModel(_attention, (0.7, 10.0, 0.8, 0.9, 1.0, 1.0)),
    "optimizer": STEP, "firstStage_optimizer": STEP, "middleStage_optimizer": STEP, "lastStage_optimizer": STEP,
    **dict.fromkeys(("linear1", "linear2", "linear3", "linear4", "linear_final", "bmm", "baddbmm"), PRODUCT),
}  # fmt: skip
BACKWARD_MODELS: Mapping[str, OpModel] = {
    **FORWARD_MODELS,
    "softmax": STREAM,
    "embedding": OpModel(_linear(_embedding), (50.0, 300.0, 2.0, 2.0, 2.0, 2.0)),
}


def model_of(table: str, direction: str) -> OpModel:
    """The formula of one of estimate-train-time's ops; a stream, unless it is known to be more."""
    return (BACKWARD_MODELS if direction == BACKWARD else FORWARD_MODELS).get(table, STREAM)
