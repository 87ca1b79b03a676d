from __future__ import annotations

import pandas as pd

from gnnperf.gnn.training.look import parity

NODES = pd.DataFrame(
    {
        "run": ["a", "a", "b"],
        "node_type": ["compute", "host", "compute"],
        "op_name": ["aten::mm", None, "aten::add"],
        "measured_us": [100.0, 3.0, 20.0],
        "predicted_us": [110.0, 2.0, 25.0],
    }
)


def test_parity_is_predicted_against_measured_on_log_axes() -> None:
    figure = parity(NODES, "what is shown")
    points = {trace.name: trace for trace in figure.data if trace.mode == "markers"}
    assert list(points["compute"].x) == [100.0, 20.0]
    assert list(points["compute"].y) == [110.0, 25.0]
    assert list(points["compute"].text) == ["aten::mm<br>a", "aten::add<br>b"]
    assert list(points["host"].text) == ["<br>a"]
    assert (figure.layout.xaxis.type, figure.layout.yaxis.type) == ("log", "log")
    assert figure.layout.title.text == "what is shown"


def test_the_diagonal_and_ten_percent_with_it() -> None:
    lines = [trace for trace in parity(NODES, "").data if trace.mode == "lines"]
    assert [list(line.x) for line in lines] == [[2.0, 110.0]] * 3
    assert sorted(round(line.y[1] / line.x[1], 9) for line in lines) == [0.9, 1.0, 1.1]


def test_no_nodes_is_an_empty_figure() -> None:
    assert [trace.mode for trace in parity(NODES[:0], "").data] == ["lines"] * 3
