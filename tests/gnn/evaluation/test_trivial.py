from __future__ import annotations

import math

import pandas as pd
from toys import two_rank_graph

from gnnperf.gnn.evaluation.trivial import fit_nearest_run, fit_op_medians


def nodes(keys: list[int], latencies: list[float], op: str = "aten::mm") -> pd.DataFrame:
    count = len(keys)
    return pd.DataFrame(
        {
            "node_type": ["compute"] * count, "segment": [None] * count, "op_name": [op] * count,
            "content_key": keys, "latency_us": latencies,
        }
    )  # fmt: skip


def test_one_constant_per_op() -> None:
    toy = two_rank_graph().nodes
    answer = fit_op_medians([toy]).predict(toy)
    assert answer[[0, 1, 3, 10, 14]].tolist() == [10.0, 5.0, 110.0, 110.0, 50.0]
    assert math.isnan(answer[4])  # a latency of 0 is no measurement
    assert math.isnan(fit_op_medians([toy]).predict(nodes([1], [1.0], op="aten::new"))[0])


def test_the_run_that_shares_most_work_is_copied() -> None:
    runs = {
        "near": [nodes([1, 2, 3], [10.0, 20.0, 30.0]), nodes([1, 2, 3], [12.0, 20.0, 30.0])],
        "far": [nodes([1, 9], [5.0, 6.0])],
    }
    model = fit_nearest_run(runs)
    requested = nodes([1, 3, 7], [0.0, 0.0, 0.0])
    assert model.nearest(requested) == "near"
    assert model.predict(requested).tolist() == [11.0, 30.0, 16.0]  # 7 is unknown there: median of all
    assert model.nearest(nodes([77], [0.0])) == "far"  # a tie goes to the first name
