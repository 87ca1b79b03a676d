"""Calls made from points compute what the op computes."""

from typing import Any

import pytest
import torch

from gnnperf.core.errors import InputError
from gnnperf.record.calibrate.call import _tensors, calls, overload_of, random_tensor
from gnnperf.record.calibrate.point import Direction, OpPoint, op_point
from gnnperf.record.calibrate.suite import CPU, CUDA, Lookup, Sizes, grouped, lookups, points

HERE = torch.device("cpu")
TINY = Sizes(products={"float32": (4,)}, stream_bytes=(64,), lookups=(Lookup(2, 10, 4, 3, 2, 2.0),),
             oblong=((2, 3, 4),), batched=((2, 3),), backward=(4,))  # fmt: skip


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def run(point: OpPoint) -> list[Any]:
    return [call() for call in calls(point, HERE, generator())]


@pytest.mark.parametrize(
    ("point", "shape"),
    [
        (op_point("aten::mm", [(2, 3), (3, 5)], "float32"), (2, 5)),
        (op_point("aten::mm", [(2, 3), (3, 5)], "float32", transposed=(1,)), (2, 5)),
        (op_point("aten::cat", [(2, 3), (4, 3)], "float32"), (6, 3)),
        (op_point("aten::add.out", [(8,)] * 3, "float32", arguments=(("alpha", 3.0),)), (8,)),  # into its third tensor
        (op_point("aten::_int_mm", [(32, 16), (16, 8)], "int8", transposed=(1,)), (32, 8)),
        (OpPoint("aten::add_", ((100, 4), (3, 4)), ("float32", "sparse_float32")), (100, 4)),  # to its rows only
    ],
)
def test_a_result_has_its_shape_and_no_graph(point: OpPoint, shape: tuple[int, ...]) -> None:
    (result,) = run(point)
    assert isinstance(result, torch.Tensor) and not result.is_sparse
    assert (result.shape, result.requires_grad) == (shape, False)


def test_equal_groups_of_rows_are_multiplied_by_matrices_of_their_own() -> None:
    point = grouped(2, 8, 16, 16)
    rows, weights, ends = (tensor for tensor in _tensors(point, HERE, generator()) if tensor is not None)
    assert ends.tolist() == [4, 8]
    expected = torch.cat([rows[:4].float() @ weights[0].float(), rows[4:].float() @ weights[1].float()])
    (result,) = run(point)
    torch.testing.assert_close(result.float(), expected, rtol=0.02, atol=0.05)
    assert (point.flops, point.moved_bytes) == (2 * 8 * 16 * 16, 2 * (8 * 16 + 2 * 16 * 16 + 8 * 16))


def test_products_of_8_bits_and_of_groups_are_measured_where_their_units_are() -> None:
    ops = [[point.op for point in points(CUDA, fp8)] for fp8 in (False, True)]
    assert [sum(op in ("aten::_int_mm", "aten::_grouped_mm") for op in suite) for suite in ops] == [0, 7]


def test_a_gradient_has_one_part_per_floating_input_and_can_be_repeated():
    (call,) = calls(op_point("aten::mm", [(2, 3), (3, 5)], "float32", direction=Direction.BACKWARD), HERE, generator())
    first, second = call(), call()
    assert isinstance(first, tuple) and isinstance(second, tuple)
    assert [g.shape for g in first] == [(2, 3), (3, 5)]
    assert torch.equal(first[0], second[0])


def test_lookups_run_forward_backward_dense_and_sparse():
    forward, dense, sparse = (run(point) for point in lookups(Lookup(2, 10, 4, 3, 2, 2.0)))
    assert len(forward) == 2  # tables
    assert forward[0][0].shape == (3, 4)
    assert dense[0][0].shape == (10, 4) and not dense[0][0].is_sparse
    assert sparse[0][0].is_sparse


def test_skewed_rows_are_in_range_and_smaller():
    uniform, skewed = (random_tensor((4000,), torch.int64, HERE, generator(), 100, skew) for skew in (1.0, 4.0))
    assert int(skewed.min()) >= 0 and int(skewed.max()) <= 99
    assert float(uniform.double().mean()) == pytest.approx(49.5, abs=3)  # 100 / (1 + skew), rounded down
    assert float(skewed.double().mean()) == pytest.approx(19.5, abs=3)


def test_shapes_that_do_not_fit_are_refused_with_the_schema_and_ops_without_gradient():
    with pytest.raises(InputError, match=r"aten::mm does not run.*aten::mm\(Tensor self"):
        calls(op_point("aten::mm", [(2, 3), (4, 5)], "float32"), HERE, generator())
    with pytest.raises(InputError, match="gradient"):
        calls(op_point("aten::zeros_like", [(2,)], "float32", direction=Direction.BACKWARD), HERE, generator())


def test_every_op_of_the_suites_has_an_overload():
    for point in points(CPU, fp8=True):
        overload_of(point)
    for point in points(TINY):
        run(point)


@pytest.mark.parametrize("op", ["aten::sqrt", "aten::log.out"])
def test_roots_and_logarithms_are_of_positive_numbers(op: str) -> None:
    shapes = [(64,)] * (2 if op.endswith("out") else 1)
    (result,) = run(op_point(op, shapes, "float32"))
    assert isinstance(result, torch.Tensor) and not result.isnan().any()
