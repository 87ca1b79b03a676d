"""Op tables of microsoft/vidur (MIT): float16 inference of LLM layers on A100 and H100.

Kernel time of each op in a profiler trace, median of 20, in milliseconds with a resolution of 1 us. The files say a100
and h100 only; the boards are taken to be the SXM ones with 80 GB. Upstream: vidur/profiling/mlp/mlp_impl.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from research.tables.columns import (
    ITEM_BYTES,
    US_PER_MS,
    OpTable,
    completed,
    dtypes_json,
    joined,
    product_columns,
    shapes_json,
)
from research.tables.keep import checked

SOURCE = "microsoft/vidur"
METHOD = "profiler, kernel time, median of 20"
FOLDER = "microsoft+vidur/data/profiling/compute"
DEVICES = {"a100": "NVIDIA A100-SXM4-80GB", "h100": "NVIDIA H100 80GB HBM3"}
DTYPE = "float16"

Sizes = Mapping[str, np.ndarray]
Columns = dict[str, object]


def read_vidur(mirror: Path) -> OpTable:
    """Every table of a mirror."""
    return joined(
        _op(name, pd.read_csv(path), device)
        for folder, device in DEVICES.items()
        for path in sorted(mirror.glob(f"{FOLDER}/{folder}/*/*/mlp.csv"))
        for name in READERS
    )


def _op(name: str, result: pd.DataFrame, device: str) -> OpTable:
    """One op of one model; models without it (phi-2 normalizes once) give no rows."""
    column = f"time_stats.{name}.median"
    if column not in result:
        return OpTable(completed({}, 0))
    sizes = {str(c): result[c].to_numpy(float) for c in result if not str(c).startswith("time_stats")}
    fixed = {"direction": "forward", "tf32": False, "cache": "warm", "launch_included": False, "device": device,
             "dtype": DTYPE, "source": SOURCE, "table": name, "method": METHOD,
             "latency_us": result[column] * US_PER_MS}  # fmt: skip
    return checked(completed({**fixed, **READERS[name](sizes)}, len(result)), ())


def _linear(columns: Callable[[Sizes], np.ndarray], depth: Callable[[Sizes], np.ndarray]) -> Callable[[Sizes], Columns]:
    return lambda s: product_columns("aten::linear", s["num_tokens"], columns(s), depth(s), DTYPE)


def _mapped(op: str, columns: Callable[[Sizes], np.ndarray], tensors: float) -> Callable[[Sizes], Columns]:
    """An op over [tokens, columns] that reads and writes `tensors` of that size."""

    def read(s: Sizes) -> Columns:
        rows, width = s["num_tokens"], columns(s)
        return {"op": op, "rows": rows, "columns": width, "shapes": shapes_json([[rows, width]]),
                "dtypes": dtypes_json([DTYPE]), "moved_bytes": tensors * rows * width * ITEM_BYTES[DTYPE]}  # fmt: skip

    return read


def _head_dim(s: Sizes) -> np.ndarray:
    return s["n_embd"] // s["n_head"]


def _query_key_value(s: Sizes) -> np.ndarray:
    return (s["n_head"] + 2 * s["n_kv_head"]) * _head_dim(s) // _ways(s)


def _up(s: Sizes) -> np.ndarray:
    return s["n_expanded_embd"] * np.where(s["use_gated_mlp"] > 0, 2, 1) // _ways(s)


def _ways(s: Sizes) -> np.ndarray:
    return s["num_tensor_parallel_workers"]


def _embedding(s: Sizes) -> Columns:
    rows, width, vocabulary = s["num_tokens"], s["n_embd"], s["vocab_size"] // _ways(s)
    return {"op": "aten::embedding", "rows": rows, "columns": width, "vocabulary": vocabulary,
            "shapes": shapes_json([[vocabulary, width], [rows]]), "dtypes": dtypes_json([DTYPE, "int64"]),
            "moved_bytes": 2 * rows * width * ITEM_BYTES[DTYPE] + rows * ITEM_BYTES["int64"]}  # fmt: skip


def _activation(s: Sizes) -> Columns:
    """Gated: SiLU of one half times the other, in one kernel; else GELU."""
    gated = bool(np.all(s["use_gated_mlp"] > 0))
    return _mapped("silu_and_mul" if gated else "aten::gelu", _up, 1.5 if gated else 2.0)(s)


def _norm(s: Sizes) -> Columns:
    """RMSNorm where the MLP is gated (Llama, Qwen, InternLM), else LayerNorm (phi-2)."""
    op = "rms_norm" if np.all(s["use_gated_mlp"] > 0) else "aten::layer_norm"
    return _mapped(op, lambda t: t["n_embd"], 2.0)(s)


def _rotary(s: Sizes) -> Columns:
    columns = (s["n_head"] + s["n_kv_head"]) * _head_dim(s) // _ways(s)
    return _mapped("rope", lambda t: columns, 2.0)(s)


READERS: Mapping[str, Callable[[Sizes], Columns]] = {
    "emb": _embedding,
    "input_layernorm": _norm,
    "attn_pre_proj": _linear(_query_key_value, lambda s: s["n_embd"]),
    "attn_rope": _rotary,
    "attn_post_proj": _linear(lambda s: s["n_embd"], lambda s: s["n_head"] * _head_dim(s) // _ways(s)),
    "post_attention_layernorm": _norm,
    "mlp_up_proj": _linear(_up, lambda s: s["n_embd"]),
    "mlp_act": _activation,
    "mlp_down_proj": _linear(lambda s: s["n_embd"], lambda s: s["n_expanded_embd"] // _ways(s)),
    "add": _mapped("aten::add", lambda s: s["n_embd"], 3.0),
}
