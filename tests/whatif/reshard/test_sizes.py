"""Shapes of calls that serve another part, by hand."""

from __future__ import annotations

import pytest

from gnnperf.whatif.costs import Cost
from gnnperf.whatif.reshard.edit import Reshape, Sizes

OLD, NEW = Sizes(rows=100, columns=8, pooling=5, lookups=40), Sizes(rows=30, columns=16, pooling=2, lookups=16)
LOOKS = Reshape(OLD, NEW, samples=8, ranks=2, looks=True)
UPDATES = Reshape(OLD, NEW, samples=8, ranks=2, looks=False)


@pytest.mark.parametrize(
    ("name", "dims", "expected"),
    [
        ("aten::reshape", "[[2,20],[]]", ((2, 8), ())),
        ("aten::remainder", "[[8,5],[]]", ((8, 2), ())),
        ("aten::cumsum", "[[8],[],[]]", ((8,), (), ())),  # samples stay
        ("aten::embedding_bag", "[[100,8],[40],[8]]", ((30, 16), (16,), (8,))),
    ],
)
def test_calls_before_and_of_the_lookup(name: str, dims: str, expected: object) -> None:
    assert LOOKS.arguments(name, dims) == expected


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        ("[[8,8],[40],[8]]", ((8, 16), (16,), (8,))),  # gradients of vectors, indices, offsets
        ("[[1,40],[40,8]]", ((1, 16), (16, 16))),  # a sparse tensor's indices and values
        ("[[100,8]]", ((30, 16),)),
        ("[[7,3]]", ((7, 3),)),  # of something else
    ],
)
def test_calls_after_the_lookup(dims: str, expected: object) -> None:
    assert UPDATES.arguments("aten::x", dims) == expected


def test_a_sparse_update_costs_what_is_looked_up() -> None:
    dims = "[[100,8],[100,8],[]]"
    new = UPDATES.arguments("aten::add_", dims)
    cost = UPDATES.cost("aten::add_", dims, new, Cost(640.0, 3200.0), "float32")
    assert (cost.flops, cost.bytes) == (640.0 * 16 * 16 / (40 * 8), 3200.0 * 16 * 16 / (40 * 8))


def test_more_lookups_cost_more_though_the_table_is_as_large() -> None:
    same = Reshape(OLD, Sizes(100, 8, 10, 80), samples=8, ranks=2, looks=False)
    dims = "[[100,8],[100,8],[]]"
    assert same.cost("aten::add_", dims, same.arguments("aten::add_", dims), Cost(640.0, 3200.0), None).bytes == 6400.0


def test_what_keeps_its_shapes_keeps_its_cost() -> None:
    dims = "[[7,3]]"
    assert UPDATES.cost("aten::x", dims, ((7, 3),), Cost(1.0, 2.0), None) == Cost(1.0, 2.0)
