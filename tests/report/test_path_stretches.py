"""The critical path as a list: it adds up to the step, in the order of time."""

from __future__ import annotations

import pandas as pd

from gnnperf.report.json_document import document
from gnnperf.report.page.path import longest_in_order, op_stretches, path_nodes, phase_stretches
from gnnperf.report.summary import nodes_table
from tests.predict.answers import toy_answer


def _path() -> pd.DataFrame:
    answer = toy_answer()
    return path_nodes(nodes_table(answer), document(answer))


def _made(*rows: tuple[int, str, str, float]) -> pd.DataFrame:
    """(rank, op, phase, us) one after the other."""
    path = pd.DataFrame(list(rows), columns=["rank", "op_name", "phase", "critical_us"])
    begin = path["critical_us"].cumsum() - path["critical_us"]
    return path.assign(node_type="compute", source="gnn", begin_us=begin)


def test_the_toy_in_the_order_of_time() -> None:
    """Rank 1 is the slower one: host 10, gemm 120, transfer 50, host 5."""
    path = _path()
    assert path["begin_us"].tolist() == [0.0, 10.0, 130.0, 180.0]
    assert path["critical_us"].tolist() == [10.0, 120.0, 50.0, 5.0]
    assert path["rank"].tolist()[:2] == [1, 1]
    assert op_stretches(path)["num_nodes"].tolist() == [1, 1, 1, 1]


def test_equal_neighbors_are_one_stretch() -> None:
    result = op_stretches(_made((0, "mm", "forward", 5.0), (0, "mm", "forward", 3.0), (1, "mm", "forward", 1.0)))
    assert result["critical_us"].tolist() == [8.0, 1.0]
    assert result["num_nodes"].tolist() == [2, 1]


def test_a_transfer_belongs_to_the_rank_before_it() -> None:
    path = _made((0, "mm", "forward", 5.0), (-1, "all_reduce", "forward", 9.0), (0, "mm", "forward", 5.0),
                 (0, "mm", "backward", 2.0))  # fmt: skip
    result = phase_stretches(path)
    assert result[["rank", "phase"]].to_numpy().tolist() == [[0, "forward"], [0, "backward"]]
    assert result["critical_us"].tolist() == [19.0, 2.0]
    assert result["op_name"].tolist() == ["mm", "mm"] and result["op_us"].tolist() == [10.0, 2.0]


def test_short_stretches_are_added_up_between_long_ones() -> None:
    lasts = (1.0, 9.0, 2.0, 1.0, 8.0, 7.0, 1.0)
    result = op_stretches(_made(*((0, f"op{n}", "forward", us) for n, us in enumerate(lasts))))
    given = longest_in_order(result, 3)
    assert given["critical_us"].tolist() == [1.0, 9.0, 3.0, 8.0, 7.0, 1.0]
    assert given["num_stretches"].tolist() == [1, 1, 2, 1, 1, 1]
    assert given["is_long"].tolist() == [False, True, False, True, True, False]
    assert given["begin_us"].tolist() == [0.0, 1.0, 10.0, 13.0, 21.0, 28.0]
    assert given["critical_us"].sum() == sum(lasts)
