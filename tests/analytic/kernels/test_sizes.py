"""Sizes that forms read off a call: what the recorded shapes, FLOPs and bytes say about it."""

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from round_device import CONSTANTS, DEVICE, ROUND

from gnnperf.analytic.attention import WARP_SHARE, Attentions, attentions_us, fused_rates, fused_us
from gnnperf.analytic.convolution.calls import BOTH, PASS_OF, convolution_size, convolved_us, passes, turned_share
from gnnperf.analytic.convolution.model import ConvolutionPass
from gnnperf.analytic.embedding.calls import DENSE_SIZES, SIZES
from gnnperf.analytic.gemm.constants import default_gemm_constants, of_tables, typical
from gnnperf.analytic.gemm.model import gemm_us, products
from gnnperf.analytic.kernels.call import KernelCall, sized
from gnnperf.analytic.kernels.dispatch import kernel_times
from gnnperf.analytic.kernels.nodes import compute_nodes_us, distinct_calls
from gnnperf.analytic.memory_bound.calls import _scan_steps, elementwise_calls_us, lists_us, reductions_us, streams_us
from gnnperf.analytic.memory_bound.constants import default_memory_constants
from gnnperf.analytic.memory_bound.streams import chain_us, elementwise_us, stream_us
from gnnperf.analytic.normalization import _rows_and_columns
from gnnperf.graph.cost import op_cost
from tests.analytic.kernels.calls import call, node_row

FORWARD, GRAD_INPUT, GRAD_WEIGHT = ConvolutionPass


def typed(op: str, shapes: Sequence[object], types: Sequence[str], values: Sequence[str]) -> KernelCall:
    texts = tuple(json.dumps(list(v)) for v in (shapes, types, values))
    cost = op_cost(op, *texts)
    return KernelCall(op, texts[0], cost.dtype, str(cost.family), cost.flops, cost.bytes)


# --- convolutions: images, channels in and out, H, W, R, S, P, Q, stride, groups


@pytest.mark.parametrize(
    ("image", "weight", "stride", "padding", "groups", "expected"),
    [
        ([2, 4, 10, 10], [8, 4, 3, 3], 1, 1, 1, (2, 4, 8, 10, 10, 3, 3, 10, 10, 1, 1)),
        ([2, 4, 10, 10], [8, 4, 3, 3], 1, 0, 1, (2, 4, 8, 10, 10, 3, 3, 8, 8, 1, 1)),
        ([2, 3, 224, 224], [64, 3, 7, 7], 2, 3, 1, (2, 3, 64, 224, 224, 7, 7, 112, 112, 2, 1)),
        ([2, 8, 10, 10], [8, 2, 1, 1], 1, 0, 4, (2, 8, 8, 10, 10, 1, 1, 10, 10, 1, 4)),
    ],
)
def test_the_result_of_a_convolution_follows_from_its_flops(
    image: list[int], weight: list[int], stride: int, padding: int, groups: int, expected: tuple[float, ...]
) -> None:
    values = ["", "", "", f"[{stride}, {stride}]", f"[{padding}, {padding}]", "[1, 1]", "False", "[0, 0]", str(groups)]
    requested = call("aten::convolution", [image, weight, *[[]] * 7], values=values)
    which, sizes = PASS_OF[requested.op_name]
    assert which is FORWARD and sizes(requested) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("op", "shapes", "result", "expected_pass", "expected"),
    [  # the image, of stride 2, follows from the bytes, the window of a weight from the FLOPs
        ("input", [[], [32, 8, 7, 7], [8, 16, 3, 3]], "[32, 16, 14, 14]", GRAD_INPUT,
         (32, 16, 8, 14, 14, 3, 3, 7, 7, 2, 1)),
        ("weight", [[], [32, 8, 14, 14], [32, 16, 14, 14]], "[8, 16, 5, 5]", GRAD_WEIGHT,
         (32, 16, 8, 14, 14, 5, 5, 14, 14, 1, 1)),
    ],
)  # fmt: skip
def test_the_size_that_a_gradient_writes_follows_from_its_costs(
    op: str, shapes: list[list[int]], result: str, expected_pass: object, expected: tuple[int, ...]
) -> None:
    requested = typed(f"aten::cudnn_convolution_backward_{op}", shapes, ["", "float", "float"], [result, "", ""])
    which, sizes = PASS_OF[requested.op_name]
    assert which is expected_pass
    assert sizes(requested) == pytest.approx(expected)


def test_flops_tell_whether_a_backward_gives_both_gradients() -> None:
    both = call(BOTH, [[2, 8, 5, 5], [2, 4, 10, 10], [8, 4, 3, 3]])
    assert passes(both) == (GRAD_INPUT, GRAD_WEIGHT)
    assert passes(replace(both, flops=both.flops / 2)) == (GRAD_WEIGHT,)  # a first layer
    assert convolution_size(both) == pytest.approx((2, 4, 8, 10, 10, 3, 3, 5, 5, 2, 1))


def test_kernels_show_which_products_have_turned_tensors() -> None:
    image, weight = [2, 4, 10, 10], [8, 4, 3, 3]
    both = call(BOTH, [[2, 8, 5, 5], image, weight])
    forward = replace(both, op_name="aten::cudnn_convolution", input_dims="[[2,4,10,10],[8,4,3,3]]")
    for one, shares in ((forward, {1: 0, 2: 0, 3: 1, 4: 1}), (both, {1: 0, 3: 0, 5: 0.5, 6: 1, 10: 1}),
                        (replace(both, flops=both.flops / 2), {2: 0, 5: 1})):  # fmt: skip
        assert {kernels: turned_share(replace(one, num_kernels=kernels)) for kernels in shares} == shares


def test_fewer_flops_than_all_pairs_take_are_a_causal_mask() -> None:
    head, flash = [2, 4, 256, 64], "aten::_scaled_dot_product_flash_attention"
    full, causal = (call(flash, [head, head, head, [], []], "float16", ["", "", "", "0.0", flag])
                    for flag in ("False", "True"))  # fmt: skip
    rates = fused_rates(ROUND, "float16", backward=False)
    expected = [
        fused_us(Attentions(*(np.array([v]) for v in (2.0, 4.0, 256.0, 256.0, 64.0, masked))), 2, DEVICE, CONSTANTS,
                 rates)[0] for masked in (False, True)
    ]  # fmt: skip
    assert attentions_us([full, causal], ROUND) == pytest.approx(expected)
    assert 0.75 < expected[1] / expected[0] < 0.8  # of two blocks by two, three


def test_positions_outside_the_last_block_cost_as_if_they_were_there() -> None:
    lengths = (129, 256, 257)
    calls = [call("aten::_flash_attention_forward", [[8, n, 4, 64]] * 3, "float16") for n in lengths]
    first, same, more = attentions_us(calls, ROUND)
    assert first == same < more


def test_exponentials_are_columns() -> None:
    # 8e12 FLOP/s x share on 10 SMs at 1 GHz are 800 FLOPs x share a clock; 16 exponentials a clock, 4 FLOPs a column
    share = typical(default_gemm_constants()["matrix"], "compute_share")
    rates = fused_rates(ROUND, "float16", backward=False)
    assert rates == pytest.approx((8e12 * share, 800 * share / 16 / 4))
    hopper = replace(ROUND, device=replace(DEVICE, architecture="hopper"))
    assert fused_rates(hopper, "float16", True)[0] == pytest.approx(
        8e12 * share * WARP_SHARE["hopper"] * ROUND.memory.attention["backward_share"]
    )


def test_the_attention_of_an_op_table_is_the_fused_one() -> None:
    heads_first, length_first = [2, 4, 256, 64], [2, 256, 4, 64]
    names = ("aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention")
    calls = [call(name, [heads_first] * 3, "float16") for name in names]
    calls.append(call("aten::_flash_attention_forward", [length_first] * 3, "float16"))
    first, *others = attentions_us(calls, ROUND)
    assert others == [first, first]


def test_attention_in_float32_needs_no_matrix_units_and_in_16_bits_does() -> None:
    calls = [call("aten::_flash_attention_forward", [[8, 64, 4, 64]] * 3, dtype) for dtype in ("float32", "bfloat16")]
    lanes, matrix = attentions_us(calls, ROUND)
    # 33.6e6 FLOPs, 1.25 times as long in waves of 10 SMs. 80 FLOPs a clock on 128 lanes: 62.5 on 100, at 1 GHz.
    assert lanes == pytest.approx(2.0 + 4 * 32 * 64**3 * 1.25 * (64 + 62.5 / 16 / 4) / 64 / 0.625e6)
    assert np.isnan(matrix)


def test_attention_in_float32_takes_three_products_of_tf32_or_what_an_sm_issues() -> None:
    share = typical(ROUND.gemm["matrix"], "compute_share")
    for tf32_flops_per_s, expected in ((0.6e12, 0.2e12 * share), (6e12, 80 * 10 * 1e9)):  # 10 SMs at 1 GHz
        device = replace(DEVICE, flops_per_s={**DEVICE.flops_per_s, "float32_matrix": tf32_flops_per_s})
        rate, columns = fused_rates(replace(ROUND, device=device), "float32", backward=True)
        assert (rate, columns) == pytest.approx((expected, expected / 1e10 / 16 / 10))


def test_kernels_of_cudnn_compute_two_blocks_on_a_diagonal() -> None:
    one, positions, columns = np.ones(1), np.array([512.0]), np.array([64.0])
    flash = Attentions(one, one, positions, positions, columns, causal=np.array([True]))
    assert replace(flash, cudnn=True).computed_pairs / flash.computed_pairs == pytest.approx((512 + 256) / (512 + 128))


@pytest.mark.parametrize(
    ("op", "shapes", "expected"),
    [
        ("aten::native_layer_norm", [[6, 4, 8], [], [4, 8], [4, 8]], (6, 32)),
        ("aten::native_layer_norm", [[6, 4, 8], [], [], []], (24, 8)),
        ("aten::_softmax", [[6, 4, 8], [], []], (24, 8)),
        ("aten::native_layer_norm_backward", [[6, 8], [6, 8], [], [6, 1], [6, 1], [8], [8]], (6, 8)),
        ("FusedLayerNormAffineFunction", [[2, 3, 8], [8], [8]], (6, 8)),
        ("FusedRMSNormAffineFunctionBackward", [[2, 3, 8]], (6, 8)),
    ],
)
def test_rows_and_columns(op: str, shapes: list[list[int]], expected: tuple[int, int]) -> None:
    assert _rows_and_columns(call(op, shapes)) == expected


def test_lookups_by_hand() -> None:
    bag = call("aten::_embedding_bag", [[1000, 16], [256], [64]])
    assert SIZES[bag.op_name](bag.parsed()) == (1000, 16, 256, 64)
    types = ["float", "long int", "Scalar"]
    dense = typed("aten::embedding_dense_backward", [[8, 32, 16], [8, 32], []], types, ["", "", "1000"])
    assert DENSE_SIZES[dense.op_name](dense) == (1000, 16, 256, 256)


def test_launches_of_a_list_are_counted_unless_the_graph_knows_them() -> None:
    many = call("aten::_foreach_add_", [[[4]] * 1000, []])  # 1,000 tensors of one list: 110 a launch, 10 launches
    one_us = stream_us(np.array([many.moved_bytes]), DEVICE, CONSTANTS)[0]
    assert lists_us([many, replace(many, num_kernels=10)], ROUND) == pytest.approx([one_us + 9 * 2.0, one_us])


def test_what_the_input_leaves_of_the_bytes_is_the_result() -> None:
    # 100 results on 10 SMs: one pass. 64 of a block's 128 columns are in use, so its threads walk half of the rows.
    columns = call("aten::sum", [[512, 100], []], values=["", "[0]"])
    whole = call("aten::sum", [[500, 100]])  # one result: blocks meet in a second pass
    one_us, other_us = stream_us(np.array([columns.moved_bytes, whole.moved_bytes]), DEVICE, CONSTANTS)
    assert reductions_us([columns, whole], ROUND) == pytest.approx([one_us + 8 * 0.5 + 0.256, other_us + 2.0])
    column = call("aten::sum", [[1_000_000, 1]])  # a whole sum: no rows that threads walk down
    assert reductions_us([column], ROUND)[0] < stream_us(np.array([column.moved_bytes]), DEVICE, CONSTANTS)[0] + 2.1
    images = call("aten::sum", [[512, 100, 7, 7], []], values=["", "[0, 2, 3]"])  # divides, 100 cycles of 10 x 64 lanes
    memory = replace(CONSTANTS, index_cycles={**CONSTANTS.index_cycles, "expanded": 100.0})
    us = reductions_us([images], replace(ROUND, memory=memory))
    assert us == pytest.approx([2.0 + 512 * 100 * 49 * 100 / (10 * 64 * 1e3)])


def test_what_instructions_bound_costs_their_cycles() -> None:
    cycles_per_us = 10 * 100 * 1e3  # 10 SMs of 100 lanes at 1 GHz
    setting = replace(ROUND, memory=default_memory_constants())
    calls = [call("aten::index_add_", [[10, 100], [], [1000], [1000, 100], []]), call("aten::cumsum", [[4096, 8], []])]
    image = call("aten::avg_pool2d", [[20, 40, 10, 10], [], [], []], values=["", "[2, 2]", "[2, 2]", "[0, 0]"])
    added_us, pooled_us = streams_us([calls[0], image], setting) - DEVICE.launch_floor_us
    assert added_us == pytest.approx(100_000 * setting.memory.lane_cycles["index_add"] / cycles_per_us)
    assert pooled_us == pytest.approx(20_000 * setting.memory.lane_cycles["avg_pool2d"] / cycles_per_us)
    assert elementwise_calls_us(calls[1:], ROUND)[0] == pytest.approx(DEVICE.launch_floor_us + 4096 * 300 / 1e3)


def test_indexing_issues_for_each_element_of_rows_or_starts_blocks_of_four_indices() -> None:
    rows = call("aten::scatter_add_", [[10, 100], [], [1000, 100], [1000, 100]], "int64")
    single = replace(call("aten::_index_put_impl_", [[8192, 27, 27], [], [8192, 351], [], []]), num_kernels=2)
    setting = replace(ROUND, memory=default_memory_constants())
    us = (streams_us([rows, single], setting) - DEVICE.launch_floor_us) * 10 * 64 * 1e3  # lane cycles
    cycles = setting.memory.index_cycles
    assert us == pytest.approx([100_000 * cycles["scatter_add"], 8192 * 88 * cycles["gather_row"]])


@pytest.mark.parametrize(
    ("shape", "steps"),
    [
        ([8192, 8], 8192),
        ([2, 300, 4], 300),  # down the middle axis
        ([4096, 512], 16),  # more than eight columns: along rows of 512, by 16 threads
        ([256, 4096], 32),  # along rows: 2^((9 + 12 - 8) // 2) = 64 threads of two elements each
        ([2, 100_000], 98),  # 512 threads at most
        ([4096, 4096], 128),  # 2^(9 // 2) = 16 threads
        ([4096], np.nan),  # one row: all blocks (cub)
    ],
)
def test_steps_of_a_scan(shape: list[int], steps: float) -> None:
    assert sized([call("aten::cumsum", [shape, []])], _scan_steps, 1)[0, 0] == pytest.approx(steps, nan_ok=True)


@pytest.mark.parametrize("op", ["aten::sum", "aten::mean", "aten::amax", "aten::topk", "aten::norm"])
def test_a_reduction_of_an_unknown_dtype_has_no_time(op: str) -> None:
    assert np.isnan(reductions_us([typed(op, [[512, 100], []], ["c10::quint8", ""], ["", ""])], ROUND)).all()


def test_gelu_takes_as_long_on_an_sm_of_half_the_float32_lanes() -> None:
    memory = replace(CONSTANTS, index_cycles={**CONSTANTS.index_cycles, "gelu": 6400.0})
    of_lanes = [replace(DEVICE, lanes_per_sm=lanes) for lanes in (64, 128)]
    one, chained = (
        [us(device) for device in of_lanes]
        for us in (
            lambda device: elementwise_us("gelu", np.array([1e6]), np.zeros(1), device, memory)[0],
            lambda device: chain_us(["gelu"], np.array([1e6]), np.zeros(1), device, memory)[0],
        )
    )
    issued_us = 1e6 * 6400 / (64 * DEVICE.num_sms * DEVICE.clock_hz) * 1e6
    assert one == pytest.approx([DEVICE.launch_floor_us + issued_us] * 2)
    assert chained == pytest.approx(one, rel=0.01)  # and loads on float32 lanes


def test_kernels_share_the_call_and_equal_calls_are_requested_once() -> None:
    requested = call("aten::mul", [[1000, 1000], [1000, 1000]])
    row = node_row(requested)
    half = {**row, "num_siblings": 2, "flops": requested.flops / 2, "bytes": requested.moved_bytes / 2}
    nodes = pd.DataFrame([row, half, half, row, {**row, "dtype": None, "input_dims": None, "op_name": None}])
    calls, code = distinct_calls(nodes)
    assert len(calls) == 3 and code[0] == code[3] and code[1] == code[2]
    isolated = kernel_times([requested], DEVICE, 4.0).latency_us[0]
    assert compute_nodes_us(nodes, DEVICE, 4.0)[:4] == pytest.approx([isolated, *[(isolated + 2.0) / 2] * 2, isolated])


def test_convolutions_multiply_as_all_libraries_do_in_the_mean() -> None:
    """Whatever the generation: cuDNN's kernels are not those that cuBLAS runs there."""
    requested = products(3136.0, 64.0, 576.0, 1, 4)
    us = [convolved_us(replace(ROUND, device=replace(DEVICE, architecture=name)), "float32")(requested)
          for name in ("pascal", "volta", "ampere")]  # fmt: skip
    single = [gemm_us(DEVICE, "float32", requested, constants={**ROUND.gemm, "vector": (replace(m, kernels="any"),)})
              for m in ROUND.gemm["vector"] if of_tables(m)]  # fmt: skip
    assert us[0] == us[1] == us[2] == pytest.approx(np.exp(np.mean(np.log(single))))


KEYS = ("mixed", "broadcast", "broadcast_mixed", "strided", "transposed", "expanded", "reduced_row", "gather_row")
INDEXED = replace(ROUND, memory=replace(CONSTANTS, index_cycles={
    **CONSTANTS.index_cycles, **{key: 640.0 * (place + 1) for place, key in enumerate(KEYS)}}))  # fmt: skip


@pytest.mark.parametrize(
    ("op", "shapes", "each_bytes", "key"),
    [
        ("aten::mul", [[100, 100], [100, 100]], 12, None),
        ("aten::mul", [[100, 100], [100, 100]], 10, "mixed"),  # 16 bits and 32 bits
        ("aten::mul", [[100, 100], [100, 100], [100, 100]], 12, None),  # out=
        ("aten::mul", [[100, 100], [100]], 8.04, "broadcast"),
        ("aten::mul", [[100, 100], [100]], 6.04, "broadcast_mixed"),
        ("aten::div", [[100, 10, 10], []], 8.0008, "expanded"),  # by a number
        ("aten::div", [[100, 10, 10], []], 8.0004, None),  # by a tensor of one element
        ("aten::div_", [[100, 10, 10], []], 8.0008, None),
        ("aten::div", [[100, 100], []], 8.0008, None),
        ("aten::div", [[100, 100], [100, 100]], 12, "broadcast"),  # counts
        ("aten::div", [[10_000], [10_000]], 12, None),
        ("aten::copy_", [[100, 5, 5, 4], [100, 5, 5, 4]], 8, "strided"),
        ("aten::copy_", [[8, 25, 50], [8, 25, 50]], 8, "strided"),  # an edge is shorter than a warp
        ("aten::copy_", [[5, 40, 50], [5, 40, 50]], 8, "transposed"),
        ("aten::copy_", [[100, 100], [100, 100]], 8, None),
        ("aten::cat", [[[10, 5, 100], [10, 5, 100]], []], 8, None),
    ],
)
def test_kernels_that_load_element_by_element(
    op: str, shapes: list[list[int]], each_bytes: float, key: str | None
) -> None:
    """10^4 elements on 640 integer lanes at 1 GHz: 640 cycles of an element are 10 us."""
    requested = replace(call(op, shapes), moved_bytes=each_bytes * 1e4)
    form = streams_us if op in ("aten::copy_", "aten::cat") else elementwise_calls_us
    issue_us = 10.0 * (KEYS.index(key) + 1) if key else 0.0
    assert form([requested], INDEXED) == pytest.approx([2.0 + max(issue_us, each_bytes * 1e4 / 0.5e6)])


def test_rows_that_a_warp_reduces_and_a_block_gathers() -> None:
    reduced = call("aten::mean", [[1000, 50], [], []], values=["", "[1]", ""])
    gathered = call("aten::gather", [[9, 8], [], [1000, 8], []])
    of_one_column = call("aten::gather", [[9, 1], [], [1000, 1], []])
    assert reductions_us([reduced], INDEXED) == pytest.approx([2.0 + 7.0])
    assert streams_us([gathered, of_one_column], INDEXED) == pytest.approx(
        [2.0 + 8.0, 2.0 + of_one_column.moved_bytes / 0.5e6]
    )
