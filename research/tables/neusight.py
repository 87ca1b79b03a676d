"""Op tables of sitar-lab/NeuSight (MIT): float32 forward on P4, P100, V100, T4 and A100.

Torch 2.1 eager without TF32, one pair of CUDA events per call, mean of the fastest 5 of 25, no cache flush: the wait
for the launch is inside. Milliseconds. Products are [B, M, N] x [B, N, K]: the summed length is N, the columns are K.
"""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from research.tables import columns
from research.tables.keep import checked, without_throttled

SOURCE = "sitar-lab/NeuSight"
METHOD = "eager, a pair of events around each call, mean of the fastest 5 of 25"
FOLDER = "sitar-lab+NeuSight/scripts/asplos/data/dataset*/train/collect"
DTYPE = "float32"

# table -> op, tensors read, FLOPs per element. A trailing u: the other operand is a number. pow, gelu and tanh count
# as one operation per element: what they cost is hardware's, not arithmetic's.
ELEMENTWISE: Mapping[str, tuple[str, int]] = {
    "add": ("aten::add", 2), "addu": ("aten::add", 1), "div": ("aten::div", 2), "divu": ("aten::div", 1),
    "mul": ("aten::mul", 2), "mulu": ("aten::mul", 1), "pow": ("aten::pow", 2), "powu": ("aten::pow", 1),
    "gelu": ("aten::gelu", 1), "relu": ("aten::relu", 1), "tanh": ("aten::tanh", 1),
}  # fmt: skip
SOFTMAX_FLOPS = 5.0  # per element: maximum, subtract, exponential, sum, divide
NORM_FLOPS = 8.0  # per element: mean, variance (subtract, square, add), subtract, scale, scale, shift
Columns = dict[str, object]


@cache
def read_neusight(mirror: Path) -> columns.OpTable:
    """Every op table of a mirror; read once, so callers take parts of it and change nothing."""
    tables = columns.joined(
        _table(path, read, sizes)
        for name, (read, sizes) in READERS.items()
        for path in sorted(mirror.glob(f"{FOLDER}/{name}/*/*.csv"))
    )
    return without_throttled(tables)


def _table(path: Path, read: Callable[[pd.DataFrame, str], Columns], sizes: tuple[str, ...]) -> columns.OpTable:
    result = pd.read_csv(path)
    name = path.parent.parent.name
    how = {"direction": "forward", "tf32": False, "cache": "warm", "launch_included": True, "dtype": DTYPE,
           "source": SOURCE, "table": name, "method": METHOD, "device": result["Device"].to_numpy(),
           "latency_us": result["Latency"] * columns.US_PER_MS}  # fmt: skip
    return checked(columns.completed({**how, **read(result, name)}, len(result)), sizes)


def _batched(result: pd.DataFrame, name: str) -> Columns:
    return columns.product_columns("aten::bmm", result["M"], result["K"], result["N"], DTYPE, result["B"])


def _linear(result: pd.DataFrame, name: str) -> Columns:
    """The grids of the launched kernels show that K is the number of columns; a bias, if any, is fused."""
    return columns.product_columns("aten::linear", result["B"] * result["M"], result["K"], result["N"], DTYPE)


def _elementwise(result: pd.DataFrame, name: str) -> Columns:
    op, num_read = ELEMENTWISE[name]
    shape = [result["B"], result["H"]]
    return _mapped(result, op, [shape] * num_read, flops=1.0, tensors=num_read + 1)


def _softmax(result: pd.DataFrame, name: str) -> Columns:
    return _mapped(result, "aten::softmax", [[result["B"], result["H"]]], SOFTMAX_FLOPS, tensors=2)


def _norm(result: pd.DataFrame, name: str) -> Columns:
    shapes = [[result["B"], result["H"]], [result["H"]], [result["H"]]]
    return _mapped(result, "aten::layer_norm", shapes, NORM_FLOPS, tensors=2)


def _mapped(result: pd.DataFrame, op: str, shapes: list[list[pd.Series]], flops: float, tensors: int) -> Columns:
    """Columns of an op over [B, H] that reads and writes `tensors` of that size."""
    elements = result["B"].to_numpy(float) * result["H"].to_numpy(float)  # [n]
    return {
        "op": op, "rows": result["B"], "columns": result["H"], "shapes": columns.shapes_json(shapes),
        "dtypes": columns.dtypes_json([DTYPE] * len(shapes)), "flops": flops * elements,
        "moved_bytes": tensors * elements * columns.ITEM_BYTES[DTYPE],
    }  # fmt: skip


def _convolution(result: pd.DataFrame, name: str) -> Columns:
    """Square images and windows.

    Sizes were called in random order, and calls took longer from size to size, whatever they convolved: at the end by
    300 us (V100) to 780 us (P100), as much for short kernels as for long ones. The row's number stands for the calls
    before it: rows that a table lacks (up to 4 % of a common list) are not counted.
    """
    names = {"batch": "B", "in_channels": "Input_Channel", "out_channels": "Output_Channel", "kernel": "Kernel_Szie",
             "in_size": "Input_Size", "stride": "Stride", "padding": "Padding"}  # fmt: skip
    size = {ours: result[theirs].to_numpy(float) for ours, theirs in names.items()}
    return {**columns.convolution_columns(size, DTYPE), "calls_before": np.arange(len(result))}


READERS: Mapping[str, tuple[Callable[[pd.DataFrame, str], Columns], tuple[str, ...]]] = {
    "bmm": (_batched, ("batch", "m", "n", "k")),
    "linear": (_linear, ("m", "n", "k")),
    "conv": (_convolution, ("batch", "in_channels", "out_channels", "kernel", "in_size", "stride")),
    "softmax": (_softmax, ("rows", "columns")),
    "ln": (_norm, ("rows", "columns")),
    **dict.fromkeys(ELEMENTWISE, (_elementwise, ("rows", "columns"))),
}
