from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from toys import two_rank_graph

from gnnperf.core.errors import InputError
from gnnperf.gnn.data.floors import BaseKind, base_us, fit_floors

NODES = two_rank_graph().nodes


def test_medians_by_segment_then_type_then_all() -> None:
    floors = fit_floors([NODES])
    assert floors.by_segment_us["compute/"] == 110.0  # of 100 and 120
    assert floors.by_segment_us["comm/arrive"] == 0.0
    assert floors.by_type_us["host"] == 7.5  # 10 5 10 5, twice
    other = NODES.iloc[[0, 3]].assign(segment=["T5", None], node_type=["host", "memory"])
    assert floors.floor_us(other).tolist() == [7.5, floors.overall_us]


def test_the_base_is_the_analytical_answer_where_there_is_one() -> None:
    analytic = np.full(len(NODES), np.nan)
    analytic[3], analytic[4], analytic[0] = 80.0, 0.0, 0.0
    base, kinds = base_us(NODES, analytic, fit_floors([NODES]))
    assert base[[3, 10, 4, 0]].tolist() == [80.0, 110.0, 0.0, 10.0]  # an answer of 0 is no base for a host node
    assert kinds[[3, 10]].tolist() == [BaseKind.COSTED, BaseKind.FLOOR]


def test_without_a_residual_target_the_base_is_the_floor_everywhere() -> None:
    floors = replace(fit_floors([NODES]), residual=False)
    base, kinds = base_us(NODES, np.full(len(NODES), 80.0), floors)
    assert base.tolist() == floors.floor_us(NODES).tolist()
    assert base[[3, 0]].tolist() == [110.0, 10.0]
    assert set(kinds) == {BaseKind.FLOOR}


def test_no_label_at_all() -> None:
    with pytest.raises(InputError, match="no node of the training runs has a measured latency"):
        fit_floors([NODES.assign(latency_us=np.nan)])
