"""Rows in groups, by position."""

from __future__ import annotations

import pandas as pd

from gnnperf.gnn.pretrain.groups import grouped


def test_positions_of_every_group_whatever_the_index() -> None:
    rows = pd.DataFrame({"device": ["b", "a", "b"], "op": ["mm", "mm", "mm"]}, index=[7, 7, 9])
    found = [(key, places.tolist()) for key, places in grouped(rows, ("device", "op"))]
    assert found == [(("a", "mm"), [1]), (("b", "mm"), [0, 2])]
