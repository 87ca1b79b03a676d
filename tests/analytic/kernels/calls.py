"""Op calls of every family at a size, with the cost that the graph gives them."""

import json
from collections.abc import Sequence
from dataclasses import replace

from gnnperf.analytic.kernels.call import KernelCall
from gnnperf.graph.cost import op_cost

PROFILER = {"float32": "float", "bfloat16": "c10::BFloat16", "float16": "c10::Half", "int64": "long int"}


def call(op: str, shapes: Sequence[object], dtype: str = "float32", values: Sequence[str] | None = None) -> KernelCall:
    """A call whose arguments are tensors of one dtype ([] : a scalar), or one list of tensors."""
    is_list = bool(shapes) and isinstance(shapes[0], list) and bool(shapes[0]) and isinstance(shapes[0][0], list)
    types = ["TensorList"] if is_list else [PROFILER[dtype] if shape else "Scalar" for shape in shapes]
    texts = json.dumps(list(shapes)), json.dumps(types), json.dumps(list(values or [""] * len(shapes)))
    cost = op_cost(op, *texts)
    return KernelCall(op, texts[0], cost.dtype or dtype, str(cost.family), cost.flops, cost.bytes)


def of_every_family(rows: int, columns: int, dtype: str) -> list[KernelCall]:
    """One call for each form, all with `rows` times as much work as with one row."""
    r, c = rows, columns
    strides = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
    image, weight, window = [r, 8, 14, 14], [c, 8, 3, 3], [c, 8, 1, 1]
    convolution = [image, weight, [], [], [], [], [], [], []]
    heads = [r, 4, 96, 64]
    one_list = [[[c, 16]] * r]
    made: list[tuple[str, Sequence[object], Sequence[str] | None]] = [
        ("aten::mm", [[r, c], [c, 48]], None), ("aten::bmm", [[r, 33, c], [r, c, 48]], None),
        ("aten::addmm", [[48], [r, c], [c, 48]], None), ("aten::linear", [[r, 3, c], [48, c], [48]], None),
        ("triton_poi_fused_add_pow_0", [[r, c], [r, c]], None), ("triton_red_fused_sum_0", [[r, c], [r]], None),
        ("aten::convolution", convolution, strides),
        ("aten::convolution", [image, window, *convolution[2:]], strides),
        ("aten::convolution_backward", [[r, c, 14, 14], image, weight], None),
        ("aten::_scaled_dot_product_flash_attention", [heads, heads, heads], None),
        ("aten::_scaled_dot_product_flash_attention_backward", [heads, heads, heads, heads], None),
        ("aten::native_layer_norm", [[r, c], [], [c], [c]], None),
        ("aten::native_layer_norm_backward", [[r, c], [r, c], [], [r, 1], [r, 1], [c], [c]], None),
        ("aten::native_batch_norm", [[r, c, 7, 7], [c], [c], [c], [c]], None),
        ("aten::_softmax", [[r, c], [], []], None),
        ("aten::_log_softmax_backward_data", [[r, c], [r, c], [], []], None), ("aten::sum", [[r, c]], None),
        ("aten::mul", [[r, c], [r, c]], None), ("aten::pow", [[r, c], []], None),
        ("aten::copy_", [[r, c], [r, c]], None), ("aten::embedding", [[5000, c], [r]], None),
        ("aten::_foreach_add_", one_list, None), ("aten::native_dropout", [[r, c], [], []], None),
    ]  # fmt: skip
    return [call(op, shapes, dtype, values) for op, shapes, values in made]


def without_work(requested: KernelCall) -> KernelCall:
    """The same call, instructed to move nothing and to compute nothing."""
    return replace(requested, flops=0.0, moved_bytes=0.0)


def node_row(requested: KernelCall) -> dict[str, object]:
    """A compute node that is the whole call, in float32."""
    return {"op_name": requested.op_name, "input_dims": requested.input_dims, "dtype": "float32",
            "family": requested.family, "num_siblings": 1, "flops": requested.flops,
            "bytes": requested.moved_bytes}  # fmt: skip
