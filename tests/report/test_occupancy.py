"""What ranks do with the step, on the toy and on spans written down here."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gnnperf.report.json_document import document
from gnnperf.report.page.breakdown import PARTS, occupancy
from gnnperf.report.summary import nodes_table
from tests.predict.answers import toy_answer

COLUMNS = ("rank", "node_type", "segment", "transfer", "start_us", "mean_latency_us")


def _nodes(*rows: tuple[object, ...]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=list(COLUMNS))


def _predicted(kind: str, step_us: float, makespan_us: float) -> dict[str, object]:
    return {"step_time_us": step_us, "step_makespan_us": makespan_us, "step_time_kind": kind, "traced_ranks": [0]}


def test_the_toy_by_hand() -> None:
    """Rank 0: gemm 10..110, wait to 130, transfer to 180; the host by itself before 10 and from 180 to 185."""
    answer = toy_answer()
    result = occupancy(nodes_table(answer), document(answer)).set_index("rank")
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
