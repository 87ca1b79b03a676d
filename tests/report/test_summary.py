"""Measured slices of calls that wait."""

import numpy as np
import pandas as pd
import pytest

from gnnperf.report.json_document import document
from gnnperf.report.page.breakdown import PARTS, occupancy
from gnnperf.report.page.path import longest_in_order, op_stretches, path_nodes
from gnnperf.report.summary import by_node_type, family_errors, measured_slices, nodes_table, top_ops, work_table
from tests.predict.predictions import GEMM_0, GEMM_1, toy_prediction

T1_OF_RANK_0 = 6  # starts at 180 us, for 5


@pytest.mark.parametrize(("own_us", "start_us", "end_us"), [(5.0, 150.0, 185.0), (np.nan, 180.0, 210.0)])
def test_a_wait_comes_before_the_own_time_of_a_call_or_is_all_there_is(
    own_us: float, start_us: float, end_us: float
) -> None:
    """Of a call that waits 30 us; whose peers are not traced, its own time is not known."""
    estimate = toy_prediction()
    estimate.prediction.graph.nodes.loc[T1_OF_RANK_0, ["blocked_us", "latency_us"]] = (30.0, own_us)
    slices = measured_slices(estimate).set_index("node_id")
    assert slices.loc[T1_OF_RANK_0, ["start_us", "end_us"]].tolist() == pytest.approx([start_us, end_us])


def test_waits_for_untraced_ranks_are_apart_from_host_work_and_collectives_have_their_name() -> None:
    """The last host node of rank 0, 5 us by the schedule, waits 30 us in the trace."""
    estimate, nodes = (toy := toy_prediction()), toy.prediction.graph.nodes
    nodes["op_name"] = nodes["op_name"].astype(object).mask(nodes["collective"].notna(), "record_param_comms")
    nodes["segment"] = nodes["segment"].astype(object)
    nodes.loc[T1_OF_RANK_0, ["segment", "blocked_us", "latency_us"]] = ("peer_wait", 30.0, np.nan)
    ops = top_ops(estimate, 99).set_index("op_name")
    assert ops.loc["wait for untraced ranks", ["predicted_us", "measured_us"]].tolist() == [5.0, 30.0]
    assert "all_reduce" in ops.index and "record_param_comms" not in ops.index
    kinds = by_node_type(work_table(nodes_table(estimate))).set_index("node_type")
    assert kinds["num_nodes"].to_dict() == {"host": 7, "compute": 2, "comm": 4, "collective": 1, "peer_wait": 1}


def test_errors_of_sums_and_of_nodes() -> None:
    """gemm: 150 for 100 and 90 for 120, so 240 for 220; the nodes are off by 50 and 25 %."""
    gemm = (
        family_errors(work_table(nodes_table(toy_prediction({GEMM_0: 150.0, GEMM_1: 90.0}))))
        .set_index("family")
        .loc["gemm"]
    )
    assert gemm["num_nodes"] == 2
    assert gemm["sum_error"] == pytest.approx(240.0 / 220.0 - 1.0)
    assert gemm["median_error"] == pytest.approx(0.375)
    assert gemm["p90_error"] == pytest.approx(0.25 + 0.9 * 0.25)


def test_nodes_without_a_prediction_or_a_measurement_are_left_out() -> None:
    result = family_errors(work_table(nodes_table(toy_prediction({GEMM_0: np.nan})))).set_index("family")
    assert result.loc["gemm", "num_nodes"] == 1
    assert result.loc["gemm", "measured_us"] == 120.0
    assert "arrival and exit" not in result.index  # measured as 0 us: no relative error


COLUMNS = ("rank", "node_type", "segment", "transfer", "start_us", "mean_latency_us")


def _nodes(*rows: tuple[object, ...]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=list(COLUMNS))


def _predicted(kind: str, step_us: float, makespan_us: float) -> dict[str, object]:
    return {"step_time_us": step_us, "step_makespan_us": makespan_us, "step_time_kind": kind, "traced_ranks": [0]}


def test_the_toy_by_hand() -> None:
    """Rank 0: gemm 10..110, wait to 130, transfer to 180; the host by itself before 10 and from 180 to 185."""
    estimate = toy_prediction()
    result = occupancy(nodes_table(estimate), document(estimate)).set_index("rank")
    assert result.loc[0].to_dict() == pytest.approx(
        {"active_us": 100.0, "transfer_us": 50.0, "wait_us": 20.0, "host_us": 15.0, "idle_us": 0.0, "hidden_us": 0.0}
    )
    assert result.loc[1].to_dict() == pytest.approx(
        {"active_us": 120.0, "transfer_us": 50.0, "wait_us": 0.0, "host_us": 15.0, "idle_us": 0.0, "hidden_us": 0.0}
    )


def test_a_transfer_with_work_is_hidden() -> None:
    """Transfer 10..40, gemm 20..30 and 35..50: 15 of 30 us are hidden; nothing runs from 0 to 10 and after 50."""
    nodes = _nodes(
        (0, "compute", None, -1, 20.0, 10.0), (0, "compute", None, -1, 35.0, 15.0), (0, "comm", "arrive", 3, 10.0, 0.0),
        (-1, "collective", None, -1, 10.0, 30.0), (0, "comm", "exit", 3, 40.0, np.nan),
    )  # fmt: skip
    row = occupancy(nodes, _predicted("makespan", 60.0, 60.0)).iloc[0]
    assert [row[part] for part in PARTS] == [25.0, 15.0, 0.0, 0.0, 20.0]
    assert row["hidden_us"] == 15.0


def test_what_begins_before_a_period_begins_again_inside_it() -> None:
    """A kernel from 10 to 50 of a step that ends at 100, 60 after the one before: 40..50, and of the next 70..100."""
    nodes = _nodes((0, "compute", None, -1, 10.0, 40.0), (0, "host", "T5", -1, 95.0, 5.0))
    row = occupancy(nodes, _predicted("period", 60.0, 100.0)).iloc[0]
    assert row["active_us"] == 40.0
    assert sum(row[part] for part in PARTS) == 60.0
    once = occupancy(nodes, _predicted("window", 60.0, 100.0)).iloc[0]
    assert once["active_us"] == 10.0


def test_a_rank_without_nodes_is_idle() -> None:
    given = {**_predicted("makespan", 60.0, 60.0), "traced_ranks": [1]}
    assert occupancy(_nodes((0, "compute", None, -1, 0.0, 10.0)), given).iloc[0]["idle_us"] == 60.0


def _path() -> pd.DataFrame:
    estimate = toy_prediction()
    return path_nodes(nodes_table(estimate), document(estimate))


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


def test_short_stretches_are_added_up_between_long_ones() -> None:
    lasts = (1.0, 9.0, 2.0, 1.0, 8.0, 7.0, 1.0)
    result = op_stretches(_made(*((0, f"op{n}", "forward", us) for n, us in enumerate(lasts))))
    given = longest_in_order(result, 3)
    assert given["critical_us"].tolist() == [1.0, 9.0, 3.0, 8.0, 7.0, 1.0]
    assert given["num_stretches"].tolist() == [1, 1, 2, 1, 1, 1]
    assert given["is_long"].tolist() == [False, True, False, True, True, False]
    assert given["begin_us"].tolist() == [0.0, 1.0, 10.0, 13.0, 21.0, 28.0]
    assert given["critical_us"].sum() == sum(lasts)
