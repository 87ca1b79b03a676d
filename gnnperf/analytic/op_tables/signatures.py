"""From a row of an op table to an op call as a profiler records it: every argument in its place.

A row lists tensors only, a recorded call all arguments. Where an op takes something else before its last tensor, or its
cost depends on it, its schema is here (native_functions.yaml of PyTorch 2): "*" stands for a tensor.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gnnperf.analytic.kernels.call import KernelCall
from gnnperf.analytic.op_tables.read_tables import OpRow
from gnnperf.graph import PROFILER_DTYPES, op_cost

_CONVOLUTION = "* * * stride padding dilation transposed output_padding groups"
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {  # of arguments that a cost depends on
    "aten::convolution": {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "transposed": False,
                          "output_padding": [0, 0], "groups": 1},
    "aten::conv2d": {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "groups": 1},
    "aten::conv1d": {"stride": [1], "padding": [0], "dilation": [1], "groups": 1},
    "aten::conv3d": {"stride": [1, 1, 1], "padding": [0, 0, 0], "dilation": [1, 1, 1], "groups": 1},
    "aten::max_pool2d_with_indices": {"stride": [], "padding": [0, 0]},
    "aten::avg_pool2d": {"stride": [], "padding": [0, 0]},
}  # fmt: skip
SIGNATURES: Mapping[str, str] = {
    "aten::convolution": _CONVOLUTION,
    **dict.fromkeys(("aten::conv1d", "aten::conv2d", "aten::conv3d"), "* * * stride padding dilation groups"),
    **dict.fromkeys(("aten::native_layer_norm", "aten::layer_norm"), "* normalized_shape * * eps"),
    **dict.fromkeys(("aten::rms_norm", "aten::_fused_rms_norm"), "* normalized_shape * eps"),
    "aten::native_batch_norm": "* * * * * training momentum eps",
    **dict.fromkeys(("aten::_softmax", "aten::_log_softmax"), "* dim half_to_float"),
    **dict.fromkeys(("aten::sum", "aten::mean", "aten::amax", "aten::amin"), "* dim keepdim"),
    "aten::index_select": "* dim *",
    "aten::gather": "* dim *",
    **dict.fromkeys(("aten::scatter", "aten::scatter_add", "aten::index_add", "aten::index_copy"), "* dim * *"),
    "aten::scaled_dot_product_attention": "* * * * dropout_p is_causal",
    "aten::_scaled_dot_product_flash_attention": "* * * dropout_p is_causal",
    "aten::_scaled_dot_product_efficient_attention": "* * * * compute_log_sumexp dropout_p is_causal",
    "aten::max_pool2d_with_indices": "* kernel_size stride padding",
    "aten::avg_pool2d": "* kernel_size stride padding",
    "aten::_adaptive_avg_pool2d": "* output_size",
    "aten::_sparse_semi_structured_linear": "* * * * activation",
    "aten::embedding_dense_backward": "* * num_weights",
    "aten::_embedding_bag_dense_backward": "* * offset2bag bag_size maximum_indices num_weights",
}
LISTS = ("aten::cat", "aten::stack", "aten::concat")  # one argument holds all tensors
_PROFILER_NAME = {torch_name: name for name, torch_name in reversed(PROFILER_DTYPES.items())}


def recorded_call(row: OpRow) -> KernelCall:
    """The call of a row's forward, with the cost that a graph would give it."""
    dims, types, values = _recorded(row)
    texts = json.dumps(dims), json.dumps(types), json.dumps(values)
    return costed_call(row.op, *texts, row)


def costed_call(op: str, dims: str, types: str, values: str, row: OpRow) -> KernelCall:
    """A call of `op` with its cost; the dtype is the row's where the recorded inputs have none (lists)."""
    cost = op_cost(op, dims, types, values)
    dtype = cost.dtype or next(iter(row.dtypes), None)
    return KernelCall(op, dims, dtype, str(cost.family), cost.flops, cost.bytes, tf32=row.tf32, turns=row.turns,
                      access=row.access)  # fmt: skip


def tensor_call(op: str, shapes: Sequence[Sequence[int]], row: OpRow, dtypes: Sequence[str] = ()) -> KernelCall:
    """A call whose arguments are tensors of the row's first dtype, or of `dtypes`."""
    types = [_PROFILER_NAME[dtype] for dtype in (dtypes or [row.dtypes[0]] * len(shapes))]
    dims = json.dumps([*map(list, shapes)])
    return costed_call(op, dims, json.dumps(types), json.dumps([""] * len(shapes)), row)


def _recorded(row: OpRow) -> tuple[list[Any], list[str], list[str]]:
    tensors = [([] if s is None else list(s), "" if s is None else _PROFILER_NAME[d])
               for s, d in zip(row.shapes, row.dtypes, strict=True)]  # fmt: skip
    if row.op.removesuffix("_") in LISTS or "::_foreach_" in row.op:
        return [[shape for shape, _ in tensors], []], ["TensorList", "Scalar"], ["", ""]
    given = {**_DEFAULTS.get(row.op, {}), **row.arguments}
    dims: list[Any] = []
    types, values = [], []
    names = SIGNATURES.get(row.op, "").split()
    for name in (*names, *["*"] * (len(tensors) - names.count("*"))):  # more than the schema names: kept behind
        shape, dtype = (tensors.pop(0) if tensors else ([], "")) if name == "*" else ([], "Scalar")
        dims.append(shape)
        types.append(dtype)
        value = given.get(name, "")
        values.append(str(list(value) if isinstance(value, tuple) else value))
    return dims, types, values
