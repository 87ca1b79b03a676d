"""Op tables of DebarghaG/estimate-train-time (MIT): float16 training ops on A100-SXM4-80GB, backward and optimizer too.

From profiler traces: first start to last end of the kernels that an op launched, mean of samples 3 to 7 of 10 in the
order of their size; microseconds. A loss ran between forward and backward. The sizes of every op follow its upstream
program (kernel_sampling/target_functions.py): mp tensor-parallel ways, b sequences of l positions, h heads, dim
columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from research.tables.columns import (
    BACKWARD_PRODUCTS,
    ITEM_BYTES,
    OpTable,
    completed,
    dtypes_json,
    joined,
    product_columns,
    shapes_json,
)
from research.tables.keep import checked, without_impossible

SOURCE = "DebarghaG/estimate-train-time"
METHOD = "profiler, first kernel's start to last kernel's end, trimmed mean of 10"
FOLDER = "DebarghaG+estimate-train-time/src/estimate_train_time/data/regressors/Perlmutter/operator"
DEVICE = "NVIDIA A100-SXM4-80GB"
DTYPE = "float16"
PREFIX, SUFFIX = "NVIDIAA100-SXM4-80GB_", "_fp16.csv"
LATENCY_COLUMNS = {"F_dur(us)": "forward", "B_dur(us)": "backward", "dur(us)": "optimizer", "dur": "optimizer"}
COPIED = f"{SOURCE}: backward of an addition launches nothing (upstream repeats the forward column)"
VOCABULARY = 50257
VOCABULARY_MULTIPLE = 128
LAYER_PARAMETERS = 12  # times hidden^2 per transformer layer (Narayanan et al. 2021, equation 2, without small terms)

Sizes = Mapping[str, np.ndarray]
Columns = dict[str, object]


@dataclass(frozen=True)
class Mapped:
    """An op over [rows, columns] whose bytes are a number of tensors of that size."""

    op: str
    forward_tensors: float
    backward_tensors: float


def read_estimate_train_time(mirror: Path) -> OpTable:
    """Every op table of a mirror."""
    tables = joined(
        _table(path, name, read)
        for name, read in READERS.items()
        for path in sorted(mirror.glob(f"{FOLDER}/{PREFIX}{name}{SUFFIX}"))
    )
    return without_impossible(tables)


def _table(path: Path, name: str, read: Callable[[Sizes, str], Columns]) -> OpTable:
    result = pd.read_csv(path)
    sizes = {str(column): result[column].to_numpy(float) for column in result if column not in LATENCY_COLUMNS}
    sizes = {"mp": np.ones(len(result)), **sizes}
    measured = {LATENCY_COLUMNS[c]: result[c].to_numpy(float) for c in result if c in LATENCY_COLUMNS}
    copied = measured.pop("backward") if name == "res_add" else np.empty(0)
    fixed = {"tf32": False, "cache": "warm", "launch_included": False, "device": DEVICE, "dtype": DTYPE,
             "source": SOURCE, "table": name, "method": METHOD}  # fmt: skip
    parts = [
        checked(completed({**fixed, **read(sizes, way), "direction": way, "latency_us": us}, len(us)), ())
        for way, us in measured.items()
    ]
    return joined([*parts, OpTable(completed({}, 0), {COPIED: len(copied)} if len(copied) else {})])


def _product(
    op: str, sizes: Sizes, way: str, m: np.ndarray, n: np.ndarray, k: np.ndarray, batch: np.ndarray | int = 1
) -> Columns:
    return product_columns(op, m, n, k, DTYPE, batch, BACKWARD_PRODUCTS if way == "backward" else 1)


def _linear(columns: Callable[[Sizes], np.ndarray], depth: Callable[[Sizes], np.ndarray]) -> Callable[..., Columns]:
    return lambda s, way: _product("aten::linear", s, way, s["b"] * s["l"], columns(s), depth(s))


def _scores(s: Sizes, way: str) -> Columns:
    """Query times key: [l, dim/h] x [dim/h, l] per head; the added matrix has factor 0."""
    return _product("aten::baddbmm", s, way, s["l"], s["l"], s["dim"] // s["h"], s["b"] * s["h"] // s["mp"])


def _values(s: Sizes, way: str) -> Columns:
    """Scores times value: [l, l] x [l, dim/h] per head."""
    return _product("aten::bmm", s, way, s["l"], s["dim"] // s["h"], s["l"], s["b"] * s["h"] // s["mp"])


def _partition(s: Sizes) -> np.ndarray:
    """Rows of the vocabulary that one of mp ranks holds (upstream's rounding)."""
    return np.ceil(VOCABULARY / (VOCABULARY_MULTIPLE * s["mp"])) * VOCABULARY_MULTIPLE


def _attention(s: Sizes, way: str) -> Columns:
    """Not causal. FLOPs: 4 l^2 d per head, 2.5 times that backward (Dao 2023, FlashAttention-2, section 4.1)."""
    heads, head_dim = s["h"] // s["mp"], s["dim"] // s["h"]
    shape = [s["b"], s["l"], heads, head_dim]
    flops = 4.0 * s["b"] * heads * s["l"] ** 2 * head_dim * (2.5 if way == "backward" else 1.0)
    tensors = 8 if way == "backward" else 4  # q, k, v, out; and their gradients
    return {"op": "flash_attention", "batch": s["b"], "heads": heads, "length": s["l"], "head_dim": head_dim,
            "shapes": shapes_json([shape] * 3), "dtypes": dtypes_json([DTYPE] * 3), "flops": flops,
            "moved_bytes": tensors * np.prod(shape, axis=0) * ITEM_BYTES[DTYPE]}  # fmt: skip


def _rotary(s: Sizes, way: str) -> Columns:
    """Of query and key; several kernels."""
    heads, head_dim = s["h"] // s["mp"], s["dim"] // s["h"]
    shape = [s["l"], s["b"], heads, head_dim]
    return {"op": "rope", "batch": s["b"], "heads": heads, "length": s["l"], "head_dim": head_dim,
            "shapes": shapes_json([shape] * 2), "dtypes": dtypes_json([DTYPE] * 2),
            "moved_bytes": 4 * np.prod(shape, axis=0) * ITEM_BYTES[DTYPE]}  # fmt: skip


def _embedding(s: Sizes, way: str) -> Columns:
    """Backward writes a dense gradient of the whole table."""
    rows, vocabulary = s["b"] * s["l"], _partition(s)
    written = vocabulary if way == "backward" else rows
    moved = (rows + written) * s["dim"] * ITEM_BYTES[DTYPE] + rows * ITEM_BYTES["int64"]
    return {"op": "aten::embedding", "rows": rows, "columns": s["dim"], "vocabulary": vocabulary,
            "shapes": shapes_json([[vocabulary, s["dim"]], [s["b"], s["l"]]]),
            "dtypes": dtypes_json([DTYPE, "int64"]), "moved_bytes": moved}  # fmt: skip


def _mapped(mapped: Mapped, shape: Callable[[Sizes], list[np.ndarray]]) -> Callable[[Sizes, str], Columns]:
    def read(s: Sizes, way: str) -> Columns:
        dims = shape(s)
        rows = np.prod(dims[:-1], axis=0)  # [n]
        tensors = mapped.backward_tensors if way == "backward" else mapped.forward_tensors
        moved = tensors * rows * dims[-1] * ITEM_BYTES[DTYPE]
        return {"op": mapped.op, "rows": rows, "columns": dims[-1], "shapes": shapes_json([dims]),
                "dtypes": dtypes_json([DTYPE]), "moved_bytes": moved}  # fmt: skip

    return read


def _squares(s: Sizes) -> list[np.ndarray]:
    return [s["b"], s["h"] // s["mp"], s["l"], s["l"]]


def _hidden(s: Sizes) -> list[np.ndarray]:
    return [s["l"], s["b"], s["dim"]]


def _optimizer(s: Sizes, way: str) -> Columns:
    return {"op": "fused_adam", "layers": s["num_layers"], "parameters": s["params"], "tensors": s["param_tensors"],
            "shapes": shapes_json([[s["params"]]]), "dtypes": dtypes_json([DTYPE])}  # fmt: skip


def _stage(holds_vocabulary: bool) -> Callable[[Sizes, str], Columns]:
    """One pipeline stage: `encoders` layers; first and last, a matrix of the vocabulary. Parameters are estimated."""

    def read(s: Sizes, way: str) -> Columns:
        layers = s["encoders"] * LAYER_PARAMETERS * s["dim"] ** 2 / s["mp"]
        parameters = layers + (_partition(s) * s["dim"] if holds_vocabulary else 0.0)
        shapes = shapes_json([[s["mp"], s["dim"], s["encoders"]]])
        return {"op": "fused_adam", "layers": s["encoders"], "parameters": parameters, "columns": s["dim"],
                "shapes": shapes, "dtypes": dtypes_json([DTYPE])}  # fmt: skip

    return read


# Tensors of [rows, columns] that one call reads and writes at least, forward and backward; NaN where it is not known.
READERS: Mapping[str, Callable[[Sizes, str], Columns]] = {
    "linear1": _linear(lambda s: s["dim"] * 3 // s["mp"], lambda s: s["dim"]),
    "linear2": _linear(lambda s: s["dim"], lambda s: s["dim"] // s["mp"]),
    "linear3": _linear(lambda s: s["dim"] * 4 // s["mp"], lambda s: s["dim"]),
    "linear4": _linear(lambda s: s["dim"], lambda s: s["dim"] * 4 // s["mp"]),
    "linear_final": _linear(_partition, lambda s: s["dim"]),
    "baddbmm": _scores,
    "bmm": _values,
    "flash_atten": _attention,
    "RoPE": _rotary,
    "embedding": _embedding,
    "softmax": _mapped(Mapped("aten::_softmax", 2, 3), _squares),
    "ScaledUpperTriangMaskedSoftmax": _mapped(Mapped("scaled_upper_triang_masked_softmax", 1.5, 2), _squares),
    "fillmask": _mapped(Mapped("aten::masked_fill_", 2, np.nan), _squares),
    "gelu": _mapped(Mapped("aten::gelu", 2, 3), lambda s: [s["l"], s["b"], s["dim"] * 4 // s["mp"]]),
    "layernorm": _mapped(Mapped("aten::layer_norm", 2, 3), _hidden),
    "RMSlayernorm": _mapped(Mapped("rms_norm", 2, 3), _hidden),
    "res_add": _mapped(Mapped("aten::add", 3, np.nan), _hidden),
    "parallel_cross_entropy_128": _mapped(
        Mapped("vocab_parallel_cross_entropy", 1, 2), lambda s: [s["b"], s["l"], _partition(s)]
    ),
    "optimizer": _optimizer,
    "firstStage_optimizer": _stage(holds_vocabulary=True),
    "middleStage_optimizer": _stage(holds_vocabulary=False),
    "lastStage_optimizer": _stage(holds_vocabulary=True),
}
