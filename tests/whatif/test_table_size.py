"""Larger and smaller tables: what is looked up stays, what touches every row grows."""

import numpy as np
import pytest

from gnnperf.core.errors import InputError
from gnnperf.graph.execution_graph import TableCounts
from gnnperf.whatif.table_size import ResizeTables
from tests.whatif.programs import DENSE, FUSED, LOOKUP, SEND, STACK, TABLE_UPDATE, layer, lookups
from tests.whatif.test_batch import assert_same


def test_by_hand() -> None:
    result = ResizeTables(4.0)(lookups(100))
    nodes, before = result.graph.nodes, lookups(100).nodes
    assert nodes["input_dims"][LOOKUP].startswith("[[400,8],[40],[10]")
    assert nodes["input_dims"][TABLE_UPDATE] == "[[400,8],[400,8],[]]"
    looked_up = [LOOKUP, DENSE, TABLE_UPDATE]
    np.testing.assert_array_equal(nodes["bytes"][looked_up], before["bytes"][looked_up])
    assert nodes["flops"][FUSED] / before["flops"][FUSED] == pytest.approx((3200 + 7) / (800 + 7))
    assert np.isnan(nodes["latency_us"][LOOKUP])
    assert nodes["latency_us"][STACK] == 5.0
    assert result.result == ("tables [100, 8] become [400, 8]; 0.0032 MB of float32 become 0.0128 MB",)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_edited_is_what_the_program_would_be(dense: bool, factor: float) -> None:
    edited = ResizeTables(factor)(lookups(100, dense=dense)).graph
    assert_same(edited, lookups(round(100 * factor), dense=dense))


def test_counts_of_the_tables_follow() -> None:
    graph = lookups(100)
    counted = TableCounts(200, 8, 40, 1, (20, 10))  # two ranks hold half of the rows each
    other = TableCounts(999, 16, 40, 1, (20, 10))
    graph = type(graph)(**{**graph.__dict__, "tables": (counted, other)})
    result = ResizeTables(2.0)(graph)
    assert [one.rows for one in result.graph.tables] == [400, 999]
    assert "as was counted" in result.unknown[0]


def test_refusals() -> None:
    with pytest.raises(InputError, match=r"no embedding table of 7 rows.*100"):
        ResizeTables(2.0, of=7)(lookups(100))
    with pytest.raises(InputError, match="no whole number of rows"):
        ResizeTables(0.003)(lookups(100))
    with pytest.raises(InputError, match="above 0"):
        ResizeTables(0.0)
    assert ResizeTables(2.0)(layer(2, 3, 5, 7)).touched[SEND] == np.False_
