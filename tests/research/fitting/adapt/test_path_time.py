"""What the longest path is made of: by hand, and as planes below the step time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toys import two_rank_graph

from gnnperf.core.errors import InputError
from gnnperf.core.schema import NodeType
from gnnperf.schedule import schedule
from research.fitting.adapt import PartOf, path_times_us

GRAPH = two_rank_graph()
LATENCY = np.nan_to_num(GRAPH.nodes["latency_us"].to_numpy())
HOST, KERNELS, WAITS = 0, 1, 2  # transfers are no part
node_types = GRAPH.nodes["node_type"].to_numpy().astype(str)
TIMED = GRAPH.edges["relation"].astype(str)
NODE = np.select([node_types == str(NodeType.HOST), node_types == str(NodeType.COMPUTE)], [HOST, KERNELS], -1)
PART = PartOf(NODE, np.where(TIMED == "waits", WAITS, -1))
NO_LAG = np.zeros(len(GRAPH.edges))
LAG = np.where(TIMED == "waits", 3.0, 0.0)
Factors = tuple[float, float, float]
FACTORS = st.tuples(st.floats(0.01, 100.0), st.floats(0.01, 100.0), st.floats(0.01, 100.0))


def linear_bounds(*factors: Factors, lag_us: np.ndarray = NO_LAG) -> np.ndarray:
    return path_times_us(GRAPH, LATENCY, lag_us, PART, np.array(factors))


def test_the_longest_path_by_hand() -> None:
    """T2 10, the gemm of 120 from the start of its launch, all-reduce 50, T1 5."""
    assert linear_bounds((1.0, 1.0, 1.0)).tolist() == [[15.0, 120.0, 0.0, 50.0]]


def test_a_slow_host_is_the_path() -> None:
    """T2, T4, T3 and T1 one after the other."""
    assert linear_bounds((100.0, 1.0, 1.0)).tolist() == [[30.0, 0.0, 0.0, 0.0]]


def test_lags_by_hand() -> None:
    """2 us on each edge: to the launch, the launch, arrival, joining and release are of no part; one wait."""
    timed = TIMED.isin(["follows", "launches", "waits", "joins", "releases"]).to_numpy()
    result = linear_bounds((1.0, 1.0, 1.0), lag_us=np.where(timed, 2.0, 0.0))
    assert result.tolist() == [[15.0, 120.0, 2.0, 50.0 + 5 * 2.0]]


@given(st.lists(FACTORS, min_size=1, max_size=4), st.data())
def test_linear_bounds_touch_the_step_time_from_below(choices: list[Factors], data: st.DataObject) -> None:
    result = linear_bounds(*choices, lag_us=LAG)
    requested = data.draw(FACTORS)
    for factors in (requested, choices[0]):
        factor = np.append(factors, 1.0)
        exact = schedule(GRAPH, LATENCY * factor[PART.node], LAG * factor[PART.edge]).makespan_us
        below = (result @ factor).max()
        assert below <= exact * (1 + 1e-9)
    assert below == pytest.approx(exact)


def test_an_unknown_latency_is_refused() -> None:
    with pytest.raises(InputError, match="latency_us"):
        path_times_us(GRAPH, np.full(GRAPH.num_nodes, np.nan), NO_LAG, PART, np.ones((1, 3)))
