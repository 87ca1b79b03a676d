"""The law of a platform's collectives by hand, and what holds whatever its constants are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.analytic.collective.model import HYBRID_CUBE_MESH_RINGS, CollectiveModel, ProtocolSwitch, calls_of

POSITIVE = st.floats(1e-3, 1e3)
RATE = st.floats(1e6, 1e13)
SWITCHES = st.lists(
    st.builds(ProtocolSwitch, POSITIVE, POSITIVE, st.floats(1e2, 1e9), st.floats(-1, 2), st.floats(0.4, 12)), max_size=2
)
LAWS = st.builds(CollectiveModel, POSITIVE, POSITIVE, RATE, RATE, st.floats(0, 3), SWITCHES.map(tuple))
KINDS = st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"])


def latency(collective_model: CollectiveModel, kind: str, message: float, ranks: int, nodes: int = 1) -> float:
    calls = calls_of(np.array([kind], object), np.array([message]), np.array([ranks]), np.array([nodes]), {})
    return float(collective_model.latency_us(calls)[0])


@pytest.mark.parametrize(
    ("kind", "message", "ranks", "nodes", "expected"),
    [
        # start 10, hops of 1 us, memory at 1 MB/us, wire at 0.1 MB/us
        ("all_reduce", 1e6, 4, 1, 10 + 6 + 1 + 15),
        ("all_gather", 1e6, 4, 1, 10 + 3 + 4 + 30),  # a rank's memory takes the whole output
        ("all_to_all", 1e6, 4, 1, 10 + 3 + 1 + 7.5),
        ("send_recv", 1e6, 2, 1, 10 + 1 + 1 + 10),
        ("all_reduce", 1e6, 4, 4, 10 + 6 + 1 + 15),  # one rank on each of four machines
        ("all_reduce", 1e6, 4, 2, 10 + 4 + 1 + 7.5),  # 2 x 2 hops between two machines, two adapters each
    ],
)
def test_latency_and_bandwidth_by_hand(kind: str, message: float, ranks: int, nodes: int, expected: float) -> None:
    assert latency(CollectiveModel(10.0, 1.0, 1e12, 1e11, 0.0, ()), kind, message, ranks, nodes) == pytest.approx(
        expected
    )


def test_ranks_that_share_a_bus_take_from_each_other() -> None:
    collective_model = CollectiveModel(0.0, 0.0, 1e18, 1e11, 2.0, ())
    assert latency(collective_model, "all_reduce", 1e6, 2) == pytest.approx(10)
    assert latency(collective_model, "all_reduce", 1e6, 8) == pytest.approx(17.5 * 4**2)  # four times as many on it


def test_a_change_of_protocol_is_half_made_at_its_size() -> None:
    switch = ProtocolSwitch(extra_us=8.0, extra_hop_us=1.0, at_bytes=1e6, growth=1.0, sharpness=2.0)
    collective_model = CollectiveModel(0.0, 0.0, 1e18, 1e18, 0.0, (switch,))
    assert latency(collective_model, "all_reduce", 1e6, 4) == pytest.approx((8 + 6) / 2, rel=1e-4)
    assert latency(collective_model, "all_reduce", 2e6, 8) == pytest.approx(
        (8 + 14) / 2, rel=1e-4
    )  # twice the ranks, twice the size
    assert latency(collective_model, "all_reduce", 3e6, 4) == pytest.approx(14 * 9 / 10, rel=1e-4)
    assert latency(collective_model, "all_reduce", 0.0, 4) == pytest.approx(0.0, abs=1e-9)


@given(LAWS, KINDS, st.floats(0, 1e12), st.floats(1, 1e3), st.integers(1, 16))
def test_more_bytes_are_never_faster(
    collective_model: CollectiveModel, kind: str, size: float, factor: float, ranks: int
) -> None:
    assert latency(collective_model, kind, size * factor, ranks) >= latency(collective_model, kind, size, ranks) * (
        1 - 1e-9
    )


@given(LAWS, KINDS, st.integers(2, 16))
def test_no_bytes_cost_start_and_hops(collective_model: CollectiveModel, kind: str, ranks: int) -> None:
    plain = CollectiveModel(collective_model.start_us, collective_model.hop_us, 1.0, 1.0, 0.0, ())
    assert latency(collective_model, kind, 0.0, ranks) == pytest.approx(latency(plain, kind, 0.0, ranks), rel=1e-6)


@given(LAWS, KINDS.filter(lambda kind: kind != "send_recv"), st.floats(0, 1e12), st.integers(1, 16))
def test_doubling_peers_never_shortens_a_ring(
    collective_model: CollectiveModel, kind: str, size: float, ranks: int
) -> None:
    ring = CollectiveModel(
        collective_model.start_us,
        collective_model.hop_us,
        collective_model.pass_bytes_per_s,
        collective_model.wire_bytes_per_s,
        collective_model.sharing_power,
        (),
    )
    assert latency(ring, kind, size, 2 * ranks) >= latency(ring, kind, size, ranks) * (1 - 1e-9)


@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 7, 8])
def test_rings_of_a_hybrid_cube_mesh_by_search(ranks: int) -> None:
    double = {(0, 3), (1, 2), (2, 3), (4, 7), (5, 6), (6, 7), (0, 4), (1, 5)}
    single = {(0, 1), (0, 2), (1, 3), (4, 5), (4, 6), (5, 7), (2, 6), (3, 7)}
    links = dict.fromkeys(double, 2) | dict.fromkeys(single, 1)
    inside = {edge: width for edge, width in links.items() if max(edge) < ranks}
    both_ways = 1 if ranks == 2 else 2  # a ring of two uses its link in both directions at once
    assert _most_rings(inside, _circles(ranks)) * both_ways == HYBRID_CUBE_MESH_RINGS[ranks]


def _circles(ranks: int) -> list[tuple[tuple[int, int], ...]]:
    """Edges of every circle through all ranks, each once."""
    if ranks == 2:
        return [((0, 1),)]
    paths = [(0, *rest) for rest in itertools.permutations(range(1, ranks)) if rest[0] < rest[-1]]
    return [tuple((min(a, b), max(a, b)) for a, b in itertools.pairwise((*path, 0))) for path in paths]


def _most_rings(links: dict[tuple[int, int], int], circles: list[tuple[tuple[int, int], ...]]) -> int:
    """Most circles that fit side by side; each takes one link of every edge."""
    possible = [circle for circle in circles if all(links.get(edge, 0) > 0 for edge in circle)]
    best = 0
    for i, circle in enumerate(possible):
        left = {edge: width - (edge in circle) for edge, width in links.items()}
        best = max(best, 1 + _most_rings(left, possible[i:]))
    return best
