"""The model of a platform's collectives by hand, and what holds whatever its constants are."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.analytic import AnalyticPredictor, default_constants
from gnnperf.analytic.collective.constants import (
    CollectiveConstants,
    MeasuredLink,
    collective_models_of,
    shipped_collectives,
)
from gnnperf.analytic.collective.formulas import collective_us, fitted_collective_us
from gnnperf.analytic.collective.model import HYBRID_CUBE_MESH_RINGS, CollectiveModel, ProtocolSwitch, calls_of
from gnnperf.core import InputError, NodeType
from gnnperf.graph.tables import node_table
from gnnperf.hardware import ClusterSpec, cluster_names, load_cluster
from gnnperf.hardware.yaml_spec import COLLECTIVES_GROUP, names_in

POSITIVE = st.floats(1e-3, 1e3)
RATE = st.floats(1e6, 1e13)
SWITCHES = st.lists(
    st.builds(ProtocolSwitch, POSITIVE, POSITIVE, st.floats(1e2, 1e9), st.floats(-1, 2), st.floats(0.4, 12)), max_size=2
)
MODELS = st.builds(CollectiveModel, POSITIVE, POSITIVE, RATE, RATE, st.floats(0, 3), SWITCHES.map(tuple))
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
    # twice the ranks, twice the size
    assert latency(collective_model, "all_reduce", 2e6, 8) == pytest.approx((8 + 14) / 2, rel=1e-4)
    assert latency(collective_model, "all_reduce", 3e6, 4) == pytest.approx(14 * 9 / 10, rel=1e-4)
    assert latency(collective_model, "all_reduce", 0.0, 4) == pytest.approx(0.0, abs=1e-9)


@given(MODELS, KINDS, st.floats(0, 1e12), st.floats(1, 1e3), st.integers(1, 16))
def test_more_bytes_are_never_faster(
    collective_model: CollectiveModel, kind: str, size: float, factor: float, ranks: int
) -> None:
    less, more = (latency(collective_model, kind, message, ranks) for message in (size, size * factor))
    assert more >= less * (1 - 1e-9)


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


HGX = load_cluster("hgx_h100")
NVLINK, NETWORK = MeasuredLink.of(HGX.intra), MeasuredLink.of(HGX.inter)
# start 10, hops of 1 us, memory 1 MB/us, wire 0.1 MB/us; a change of protocol that costs 2 us per hop
LAW = CollectiveModel(10.0, 1.0, 1e12, 1e11, 0.0, (ProtocolSwitch(3.0, 2.0, 1e3, 0.0, 12.0),))
LAWS = CollectiveConstants(
    NVLINK, NETWORK, {("all_reduce", "nvlink"): LAW, ("all_reduce", "network"): LAW}, inside=((8, "nvlink"),),
    between="network",
)  # fmt: skip


def fitted_us(collective_models: CollectiveConstants, message: float, ranks: int, nodes: int) -> float:
    one = np.array(["all_reduce"], object), np.array([message]), np.array([ranks]), np.array([nodes])
    return float(collective_models.latency_us(*one, np.array([np.nan]))[0])


def test_on_its_own_links_a_collective_model_is_as_fitted() -> None:
    assert LAWS.on(HGX) == LAWS
    assert fitted_us(LAWS, 1e6, 4, 1) == pytest.approx(10 + 6 + 3 + 12 + 1 + 15)


def test_another_link_moves_hops_and_wire_only() -> None:
    """Twice the bandwidth, three times the latency: 6 hops of 3 us, 12 us of extra become 36, the wire 7.5 us."""
    link = HGX.intra
    other = replace(
        HGX, intra=replace(link, bandwidth_bytes_per_s=2 * link.bandwidth_bytes_per_s, latency_us=3 * link.latency_us)
    )
    moved = LAWS.on(other)
    assert fitted_us(moved, 1e6, 4, 1) == pytest.approx(10 + 18 + 3 + 36 + 1 + 7.5)
    assert fitted_us(moved, 1e6, 16, 2) == fitted_us(LAWS, 1e6, 16, 2)  # between machines nothing changed


def test_another_medium_is_predicted_by_specification() -> None:
    ethernet = load_cluster("hgx_h100")
    ethernet = replace(ethernet, intra=load_cluster("pcie_gen5_8").intra)
    kinds, size, ranks = np.array(["all_reduce"], object), np.array([1e6]), np.array([8])
    collective_models = LAWS.on(ethernet)
    result = fitted_collective_us(kinds, size, ranks, ethernet, default_constants("gpu"), collective_models)
    assert result == collective_us(kinds, size, ranks, ethernet, default_constants("gpu"))
    assert ("all_reduce", "network") in collective_models.collective_models and (
        "all_reduce",
        "nvlink",
    ) not in collective_models.collective_models


@given(st.sampled_from(["h100_sxm_nccl_2_29", "perlmutter", "a100_dgx_vidur"]), st.floats(1, 1e11), st.floats(1, 50),
       st.sampled_from([(2, 1), (8, 1), (16, 2)]), st.sampled_from(["intra", "inter"]))  # fmt: skip
def test_more_bandwidth_is_never_slower_and_more_bytes_never_faster(
    name: str, message: float, factor: float, group: tuple[int, int], side: str
) -> None:
    collective_models = shipped_collectives(name)
    cluster = _where_fitted(collective_models)
    link = getattr(cluster, side)
    wider = replace(cluster, **{side: replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * factor)})
    before = fitted_us(collective_models.on(cluster), message, *group)
    assert not fitted_us(collective_models.on(wider), message, *group) > before * (1 + 1e-9)
    assert not fitted_us(collective_models.on(cluster), message * factor, *group) < before * (1 - 1e-9)


def _where_fitted(collective_models: CollectiveConstants) -> ClusterSpec:
    names = ("hgx_h100", "dgx_a100", "perlmutter_a100")
    return next(c for c in map(load_cluster, names) if MeasuredLink.of(c.intra) == collective_models.measured_inside)


@pytest.mark.parametrize("name", names_in(COLLECTIVES_GROUP))
def test_shipped_collective_models_say_where_they_come_from(name: str) -> None:
    collective_models = shipped_collectives(name)
    assert collective_models.collective_models and collective_models.groups
    for sentences in (
        ("MIT", "Apache-2.0"),
        ("rows",),
        ("gnnperf",),
        ("unseen sizes",),
        ("research.fitting.collectives",),
    ):
        assert any(word in collective_models.provenance for word in sentences)


@pytest.mark.parametrize("name", cluster_names())
def test_every_shipped_cluster_names_collective_models_of_its_own_links(name: str) -> None:
    """Models that are moved as shipped would be models of other machines."""
    cluster = load_cluster(name)
    for device in cluster.collectives:
        collective_models = collective_models_of(load_cluster(name, device))
        assert collective_models is not None and collective_models == shipped_collectives(cluster.collectives[device])


def test_a_cluster_without_collective_models_and_a_name_that_is_none() -> None:
    assert collective_models_of(load_cluster("hgx_h100", "h800")) is None
    with pytest.raises(InputError, match="did you mean h100_sxm_nccl_2_29"):
        collective_models_of(replace(HGX, collectives={"any": "h100_sxm_nccl"}))


BYTES = 1e9


def _us(cluster: ClusterSpec, size: int, first: int, stride: int) -> float:
    """An all-reduce; rank numbers of the group as given."""
    nodes = node_table(
        1, node_type=str(NodeType.COLLECTIVE), collective="all_reduce", message_bytes=BYTES, group_size=size,
        group_first=first, group_stride=stride,
    )  # fmt: skip
    return float(AnalyticPredictor().latency_us(nodes, cluster)[0])


def test_replicas_of_machines_have_one_adapter_each() -> None:
    """16 groups of 8 ranks, one of each machine: as one rank on each of 8 machines, not as 8 ranks of one machine."""
    cluster = load_cluster("dgx_a100")  # 8 ranks per machine
    apart = _us(cluster, 8, 0, 8)
    assert apart == _us(replace(cluster, ranks_per_node=1), 8, -1, -1)
    share = 2 * 7 / 8 * BYTES / cluster.inter.sustained_bytes_per_s * 1e6
    assert apart > 0.8 * share > 3 * _us(cluster, 8, 0, 1)


def test_groups_that_fill_machines_are_as_before() -> None:
    cluster = load_cluster("dgx_a100")
    for size in (2, 4, 8, 16, 24):
        assert _us(cluster, size, 0, 1) == _us(cluster, size, -1, -1)


def test_neighbors_on_two_machines_talk_over_the_network() -> None:
    cluster = load_cluster("dgx_a100")
    assert _us(cluster, 2, 7, 1) > 2 * _us(cluster, 2, 6, 1)
    assert np.isfinite(_us(cluster, 2, 7, 1))
