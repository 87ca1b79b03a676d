"""FLOPs of ops against torch's flop counter, and by hand where that does not know."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from gnnperf.core.schema import OpFamily
from tests.graph.op_calls import cost, recorded_calls


def counted_flops(run: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def _backward(result: torch.Tensor) -> None:
    result.sum().backward()


def _image(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, requires_grad=True)


CASES: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "mm": (lambda: torch.mm(torch.ones(3, 4), torch.ones(4, 5)), ("aten::mm",)),
    "addmm": (lambda: torch.addmm(torch.ones(5), torch.ones(3, 4), torch.ones(4, 5)), ("aten::addmm",)),
    "bmm": (lambda: torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 4, 5)), ("aten::bmm",)),
    "baddbmm": (
        lambda: torch.baddbmm(torch.ones(2, 3, 5), torch.ones(2, 3, 4), torch.ones(2, 4, 5)),
        ("aten::baddbmm",),
    ),
    "linear and its backward": (
        lambda: _backward(functional.linear(_image(6, 4), _image(5, 4), _image(5))),
        ("aten::addmm", "aten::mm"),
    ),
    "convolution, stride and padding": (
        lambda: functional.conv2d(torch.ones(2, 3, 9, 8), torch.ones(4, 3, 3, 3), stride=2, padding=1),
        ("aten::convolution",),
    ),
    "convolution, groups and dilation": (
        lambda: functional.conv2d(torch.ones(2, 4, 9, 9), torch.ones(8, 2, 3, 3), dilation=2, groups=2),
        ("aten::convolution",),
    ),
    "transposed convolution": (
        lambda: functional.conv_transpose2d(
            torch.ones(2, 4, 5, 5), torch.ones(4, 3, 3, 3), stride=2, padding=1, output_padding=1
        ),
        ("aten::convolution",),
    ),
    "one-dimensional convolution": (
        lambda: functional.conv1d(torch.ones(2, 3, 9), torch.ones(4, 3, 3), padding=1),
        ("aten::convolution",),
    ),
    "convolution backward": (
        lambda: _backward(functional.conv2d(_image(2, 4, 9, 9), _image(6, 4, 3, 3), stride=2)),
        ("aten::convolution", "aten::convolution_backward"),
    ),
    "convolution backward, weight only": (
        lambda: _backward(functional.conv2d(torch.ones(2, 4, 9, 9), _image(6, 4, 3, 3))),
        ("aten::convolution", "aten::convolution_backward"),
    ),
    "transposed convolution backward": (
        lambda: _backward(functional.conv_transpose2d(_image(2, 4, 5, 5), _image(4, 3, 3, 3), stride=2)),
        ("aten::convolution", "aten::convolution_backward"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_flops_of_recorded_ops_equal_torchs_flop_counter(case: str, tmp_path: Path) -> None:
    run, names = CASES[case]
    calls = [(name, results) for name, results in recorded_calls(run, tmp_path) if name in names]
    assert {name for name, _ in calls} == set(names)
    assert sum(results.flops for _, results in calls) == counted_flops(run)
    assert all(results.dtype == "float32" and results.assumed == () for _, results in calls)


def test_backward_of_a_grouped_convolution_is_twice_its_forward() -> None:
    """By hand, because torch's counter (2.13) forgets the groups in the weight gradient."""
    grad, x, weight = [2, 6, 4, 4], [2, 4, 9, 9], [6, 2, 3, 3]
    types = ["float"] * 3 + ["ScalarList"] * 4 + ["Scalar", "ScalarList", "Scalar", "ScalarList"]
    values = ["", "", "", "[0]", "[2, 2]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "2", "[True, True, False]"]
    results = cost("aten::convolution_backward", [grad, x, weight, *[[]] * 8], types, values)
    assert results.flops == 2 * (2 * (2 * 6 * 4 * 4) * (2 * 3 * 3))


def test_convolution_has_the_same_cost_in_the_backends_argument_orders() -> None:
    x, weight = [8, 4, 16, 16], [6, 2, 3, 3]
    types = ["float"] * 3 + ["ScalarList"] * 3 + ["Scalar"] * 6
    aten = cost("aten::convolution", [x, weight, [], [], [], [], [], [], []], types,
                ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "2"])  # fmt: skip
    cudnn = cost("aten::cudnn_convolution", [x, weight, [], [], [], []], ["float", "float"] + ["ScalarList"] * 4,
                 ["", "", "[1, 1]", "[2, 2]", "[1, 1]", "2"])  # fmt: skip
    with_bias = ([x, weight, *[[]] * 5], ["float", "float", "", *["ScalarList"] * 4],
                 ["", "", "", "[1, 1]", "[2, 2]", "[1, 1]", "2"])  # fmt: skip
    onednn = cost("aten::mkldnn_convolution", *with_bias)
    miopen = cost("aten::miopen_convolution", *with_bias)
    assert aten.flops == cudnn.flops == onednn.flops == miopen.flops == 2 * (8 * 6 * 8 * 8) * (2 * 3 * 3)


def test_a_recurrent_layer_is_its_gates_of_all_steps(tmp_path: Path) -> None:
    """3 steps x 2 samples of 4 numbers, states of 2: four gates of weights [2, 4] and [2, 2] each."""
    lstm, x = torch.nn.LSTM(4, 2), torch.zeros(3, 2, 4)
    calls = recorded_calls(lambda: lstm(x)[0].sum().backward(), tmp_path)
    results = {name: cost for name, cost in calls if cost.family == OpFamily.GEMM and "rnn" in name}
    forward = results["aten::mkldnn_rnn_layer"]
    assert forward.flops == 2 * 6 * (8 * 4 + 8 * 2) + 10 * 6 * 2
    assert forward.bytes == 4 * (24 + 8 * 4 + 8 * 2 + 2 * 12)
    backward = results["aten::mkldnn_rnn_layer_backward"]
    assert (backward.flops, backward.bytes) == (2 * forward.flops, 2 * forward.bytes)


def test_a_recurrent_stack_counts_matrices_of_all_layers() -> None:
    """Two layers of one gate, states of 2; biases are no products."""
    weights = [[2, 4], [2, 2], [2], [2], [2, 2], [2, 2], [2], [2]]
    types = ["float", "TensorList"]
    results = cost("aten::_cudnn_rnn", [[3, 2, 4], weights], types)
    assert results.flops == 2 * 6 * (8 + 4 + 4 + 4) + 10 * 6 * (2 + 2)
    assert math.isnan(cost("aten::_cudnn_rnn", [[3, 2, 4], []], types).flops)
