"""A sparse gradient added to a table costs its own rows."""

from __future__ import annotations

import numpy as np
import pytest
from traces import Event, op, trace

from gnnperf.graph.event_columns import rank_events
from gnnperf.graph.op_costs import sparse_sum_cost, sparse_sums, whole_op_costs

TABLE, TYPES = "[[1000,4],[1000,4],[]]", '["float","float","Scalar"]'


def sparse_update(values: str | None = "[[6,4],[],[]]") -> list[Event]:
    """add_ > add > _nnz, to(values)."""
    return [
        op("aten::add_", 0, 100, input_dims=TABLE, input_types=TYPES),
        op("aten::add", 10, 90, input_dims=TABLE, input_types=TYPES),
        op("aten::_nnz", 20, 21, input_dims="[[1000,4]]"),
        op("aten::to", 30, 31, input_dims=values),
    ]


def test_rows_of_the_values_count() -> None:
    events = rank_events(trace(*sparse_update()), 0)
    assert sparse_sums(events, np.arange(4)) == {0: 24, 1: 24}
    costs = whole_op_costs(events, np.array([0]))
    assert (costs.flops[0], costs.bytes[0], costs.family[0]) == (48.0, 24 * (12 + 0.25), "embedding")


def test_a_dense_sum_keeps_its_cost() -> None:
    events = rank_events(trace(op("aten::add_", 0, 100, input_dims=TABLE, input_types=TYPES)), 0)
    costs = whole_op_costs(events, np.array([0]))
    assert (costs.bytes[0], costs.family[0]) == (3 * 4000 * 4.0, "elementwise")


@pytest.mark.parametrize("values", [None, "[[],[],[]]"])
def test_values_that_were_not_recorded_change_nothing(values: str | None) -> None:
    events = rank_events(trace(*sparse_update(values)), 0)
    assert sparse_sums(events, np.arange(4)) == {}


def test_an_op_that_requests_for_rows_outside_is_no_sum() -> None:
    events = rank_events(trace(op("aten::coalesce", 0, 9), op("aten::_nnz", 2, 3), op("aten::to", 4, 5)), 0)
    assert sparse_sums(events, np.arange(3)) == {}


def test_a_sum_that_writes_a_new_tensor_stays_dense() -> None:
    events = rank_events(trace(*sparse_update()[1:]), 0)
    assert sparse_sums(events, np.arange(3)) == {}


def test_half_precision_moves_half() -> None:
    assert sparse_sum_cost(32, "bfloat16") == (64.0, 32 * 6.25)
