"""Pieces of the hybrid's benchmark, on a few numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from toys import two_rank_graph

from research.benchmarks._hybrid_answers import errors
from research.benchmarks._hybrid_unknown import strange


def test_errors_by_time_count_what_nodes_took() -> None:
    table = pd.DataFrame({"measured": [1.0, 3.0, 9.0], "gnn": [1.1, 6.0, 9.0], "analytic": [2.0, 3.3, np.nan],
                          "hybrid": [1.1, 3.3, 9.0]})  # fmt: skip
    alike, by_time = errors(table, by_time=False), errors(table, by_time=True)  # the last has no analytical answer
    assert [alike[name] for name in ("gnn", "hybrid")] == pytest.approx([np.sqrt(0.1 * 1.0), 0.1])
    assert by_time["gnn"] == pytest.approx(0.1 ** (1 / 4) * 1.0 ** (3 / 4))
    assert np.isnan(errors(table[2:], by_time=True)["gnn"])


def test_strange_kernels_have_neither_shapes_nor_costs() -> None:
    kernel = strange(two_rank_graph()).nodes.loc[3]
    assert str(kernel["op_name"]).startswith(("triton_poi_fused_", "my_extension::op_"))
    assert np.isnan(kernel["flops"])
    assert kernel["input_dims"] is np.nan or pd.isna(kernel["input_dims"])
