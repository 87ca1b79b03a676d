"""Pieces of the hybrid's benchmark, on a few numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from toys import two_rank_graph

from research.benchmarks._hybrid_answers import errors
from research.benchmarks._hybrid_energy import energy
from research.benchmarks._hybrid_plots import coverage_figure, score_figure
from research.benchmarks._hybrid_scores import error_coverage, false_positives, renamed
from research.benchmarks._hybrid_unknown import strange


def test_false_positives_pass_where_nineteen_of_twenty_like_nodes_do() -> None:
    like = pd.Series(np.arange(1.0, 21.0))  # the 95 % quantile, upwards, is 20
    assert false_positives(like, pd.Series([5.0, 20.0, 21.0, np.inf])) == 0.5


def test_errors_by_time_count_what_nodes_took() -> None:
    table = pd.DataFrame({"measured": [1.0, 3.0, 9.0], "gnn": [1.1, 6.0, 9.0], "analytic": [2.0, 3.3, np.nan],
                          "hybrid": [1.1, 3.3, 9.0]})  # fmt: skip
    alike, by_time = errors(table, by_time=False), errors(table, by_time=True)  # the last has no analytical answer
    assert [alike[name] for name in ("gnn", "hybrid")] == pytest.approx([np.sqrt(0.1 * 1.0), 0.1])
    assert by_time["gnn"] == pytest.approx(0.1 ** (1 / 4) * 1.0 ** (3 / 4))
    assert np.isnan(errors(table[2:], by_time=True)["gnn"])


def test_errors_of_the_least_doubtful_come_first() -> None:
    share, error = error_coverage(np.array([3.0, 1.0, 2.0]), np.array([0.9, 0.1, 0.2]))
    assert share.tolist() == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert error.tolist() == pytest.approx([0.1, 0.15, 0.4])


def test_energy_is_low_where_a_logit_is_high() -> None:
    assert energy(torch.tensor([[0.0, 0.0], [9.0, 0.0]])).tolist() == pytest.approx([-np.log(2), -9.000123], abs=1e-5)


def test_renamed_ops_keep_everything_else() -> None:
    graph = two_rank_graph()
    other = renamed(graph)
    assert other.nodes["op_name"][3] == "renamed::aten::mm"
    assert other.nodes["op_name"][17] == graph.nodes["op_name"][17]  # a link's class is no op
    assert other.nodes.drop(columns="op_name").equals(graph.nodes.drop(columns="op_name"))


def test_strange_kernels_have_neither_shapes_nor_costs() -> None:
    kernel = strange(two_rank_graph()).nodes.loc[3]
    assert str(kernel["op_name"]).startswith(("triton_poi_fused_", "my_extension::op_"))
    assert np.isnan(kernel["flops"])
    assert kernel["input_dims"] is np.nan or pd.isna(kernel["input_dims"])


def test_figures_hold_what_they_are_given() -> None:
    scores = pd.DataFrame({"state": np.linspace(0, 9, 100)})
    curve = coverage_figure(scores, np.full(100, 0.25), ["state"])
    assert set(curve.data[0].y) == {0.25}
    shown = score_figure(scores["state"], pd.Series(["gemm"] * 99 + [None]))
    assert [trace.name for trace in shown.data] == ["gemm", "none"]
    assert max(shown.data[0].x) == 6.0
