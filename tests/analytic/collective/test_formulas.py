"""Collectives by specification: NCCL's protocols by hand, trees, in-network reduction, and what must always hold."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.analytic.collective.constants import CollectiveConstants, MeasuredLink
from gnnperf.analytic.collective.formulas import collective_us, fitted_collective_us
from gnnperf.analytic.collective.model import CollectiveModel
from gnnperf.analytic.constants import AnalyticConstants
from gnnperf.hardware.spec import ClusterSpec, DeviceSpec, LinkSpec

# Round numbers: 100 GB/s inside a machine of 4, 10 GB/s for each rank's adapter; LL128 starts after 14 us.
DEVICE = DeviceSpec(
    name="round", kind="gpu", flops_per_s={"float32": 1e12}, memory_bandwidth_bytes_per_s=1e12, l2_bytes=1e6, num_sms=1,
    clock_hz=1e9, memory_bytes=1e10,
)  # fmt: skip
CLUSTER = ClusterSpec(
    name="round", device=DEVICE, ranks_per_node=4, intra=LinkSpec("inner", 100e9, 1.9, 1.0),
    inter=LinkSpec("outer", 10e9, 4.0, 1.0), host_link=LinkSpec("pcie", 10e9, 0.5, 1.0),
)  # fmt: skip
CONSTANTS = AnalyticConstants(collective_floor_us={"gpu": 14.0, "cpu": 50.0})
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send")
ANY_KIND, BYTES, RANKS = st.sampled_from(KINDS), st.floats(0, 1e12), st.integers(1, 64)


def latency(kind: str, message: float, ranks: int, cluster: ClusterSpec = CLUSTER) -> float:
    result = collective_us(np.array([kind], object), np.array([message]), np.array([ranks]), cluster, CONSTANTS)
    return float(result[0])


def fitted(
    start_us: float = 1.0, hop_us: float = 2.0, link: str = "nvlink", from_bytes: float = 0.0
) -> CollectiveConstants:
    model = CollectiveModel(start_us, hop_us, 1e12, 1e11, 0.0, (), from_bytes)
    links = MeasuredLink.of(CLUSTER.intra), MeasuredLink.of(CLUSTER.inter)
    return CollectiveConstants(*links, {("all_reduce", link): model}, inside=((4, "nvlink"),), between="network")


@pytest.mark.parametrize(
    ("kind", "message", "ranks", "expected"),
    [
        # LL: 6.6 us, hops of 0.6 us, a quarter of the bandwidth for what reduces, a third for the others
        ("all_reduce", 0.0, 4, 6.6 + 6 * 0.6),
        ("all_gather", 1e3, 4, 6.6 + 3 * 0.6 + 3 * 0.01 * 3),
        # Simple: 8.4 us, hops of 3.4 us, all of the bandwidth
        ("all_gather", 1e9, 4, 8.4 + 3 * 3.4 + 3 * 1e4),
        ("all_to_all", 4e9, 4, 8.4 + 3 * 3.4 + 3e4),
        ("send", 1e9, 2, 8.4 + 3.4 + 1e4),
        # two machines: 4 of 14 hops between them, the ring runs at 4 adapters x 10 GB/s
        ("all_reduce", 1e10, 8, 8.4 + 10 * 3.4 + 4 * 14 + 1.75 * 1e10 / 40e3),
    ],
)
def test_the_best_protocol_by_hand(kind: str, message: float, ranks: int, expected: float) -> None:
    assert latency(kind, message, ranks) == pytest.approx(expected, rel=0.05)  # the soft minimum is a little below
    assert latency(kind, message, ranks) <= expected * (1 + 1e-12)


@pytest.mark.parametrize(
    ("kind", "message", "own", "shared"),
    [
        # two machines of 4, adapters of 10 GB/s: four of them, or one that the four ranks share
        ("all_reduce", 1e10, 1.75 * 1e10 / 40e3, 1.75 * 1e10 / 10e3),
        # 7/8 of 1e10 bytes leave a rank, 4/7 of them its machine: 5e9 over its own, 4 x 5e9 over the shared adapter
        ("all_to_all", 1e10, 5e9 / 10e3, 4 * 5e9 / 10e3),
        ("send", 1e10, 1e10 / 10e3, 1e10 / 10e3),  # one message has the adapter to itself
    ],
)
def test_ranks_that_share_an_adapter_take_turns(kind: str, message: float, own: float, shared: float) -> None:
    one = replace(CLUSTER, adapters_per_node=1)
    assert latency(kind, message, 8) == pytest.approx(own, rel=0.01)
    assert latency(kind, message, 8, one) == pytest.approx(shared, rel=0.01)
    assert latency(kind, message, 4, one) == latency(kind, message, 4)  # inside a machine nothing is shared


def test_middle_sizes_go_by_ll128_and_the_best_rules() -> None:
    ll, ll128, simple = 6.6 + 6 * 0.6 + 1.5 * 4 * 10, 14 + 6 * 1.9 + 1.5 / 0.92 * 10, 8.4 + 6 * 3.4 + 1.5 * 10
    expected = (ll**-24 + ll128**-24 + simple**-24) ** (-1 / 24)
    assert latency("all_reduce", 1e6, 4) == pytest.approx(expected)


def test_many_machines_reduce_small_messages_by_a_tree() -> None:
    ring = 6.6 + (126 - 32) * 0.6 + 32 * 2.7  # 64 ranks, 16 machines
    tree = 6.6 + 6 * 0.6 + 8 * 2.7  # 3 hops up and down in a machine, 4 levels of machines
    assert tree * 0.9 <= latency("all_reduce", 0.0, 64) <= tree < ring


def test_a_switch_that_reduces_shortens_large_all_reduces_only() -> None:
    switch = replace(CLUSTER, metadata={"in_network_reduction": "nvls"})
    expected = 23 + 5 / 4 * 1e5 * 6 / 5  # (n+1)/n of the message, at 5/6 of the bandwidth: a tie with the ring of 4
    assert latency("all_reduce", 1e10, 4, switch) == pytest.approx(expected, rel=0.07)
    eight = replace(switch, ranks_per_node=8)
    assert latency("all_reduce", 1e10, 8, eight) == pytest.approx(23 + 9 / 8 * 1e5 * 6 / 5, rel=0.01)
    several = latency("all_reduce", 1e10, 8, switch)  # a tree between machines is longer than the ring
    assert several == pytest.approx(latency("all_reduce", 1e10, 8), rel=1e-4)
    assert latency("all_gather", 1e9, 4, switch) == latency("all_gather", 1e9, 4)


def test_without_a_switch_small_groups_have_fewer_rings() -> None:
    mesh = replace(CLUSTER, metadata={"topology": "hybrid_cube_mesh"}, ranks_per_node=8)
    assert latency("all_reduce", 1e10, 2, mesh) == pytest.approx(1e10 / (100e3 / 6), rel=0.01)  # 1 of 6 rings
    assert latency("all_reduce", 1e10, 8, mesh) == pytest.approx(1.75e5, rel=0.01)


def test_a_platforms_own_collective_models_come_first_and_specification_covers_the_rest() -> None:
    kinds = np.array(["all_reduce", "all_gather", "all_reduce", "all_reduce", "gossip"], object)
    size, ranks = np.array([1e6, 1e6, 1e6, np.nan, 1e6]), np.array([4, 4, 1, 4, 4])
    result = fitted_collective_us(kinds, size, ranks, CLUSTER, CONSTANTS, fitted())
    assert result[0] == pytest.approx(1 + 6 * 2 + 1 + 15)  # start, hops, passage, 1.5 MB at 100 GB/s
    assert result[1:3].tolist() == [latency("all_gather", 1e6, 4), latency("all_reduce", 1e6, 1)]
    assert np.isnan(result[3:]).all()


def test_a_table_states_nothing_of_adapters_that_ranks_share() -> None:
    requested = np.array(["all_reduce"] * 2, object), np.array([1e6, 1e6]), np.array([4, 8])
    one = replace(CLUSTER, adapters_per_node=1)
    inside, across = fitted_collective_us(*requested, one, CONSTANTS, fitted())
    assert inside == fitted_collective_us(*requested, CLUSTER, CONSTANTS, fitted())[0] != latency("all_reduce", 1e6, 4)
    assert across == latency("all_reduce", 1e6, 8, one)


@given(st.floats(0, 1e9), st.floats(1, 100), st.sampled_from([2, 4]), st.floats(1, 1e3), st.floats(1, 1e9))
def test_more_bytes_are_never_faster_across_the_smallest_measured_size(
    message: float, factor: float, ranks: int, start_us: float, from_bytes: float
) -> None:
    models = fitted(start_us, from_bytes=from_bytes)
    requested = np.array(["all_reduce"] * 2, object), np.array([message, message * factor]), np.array([ranks] * 2)
    one, more = fitted_collective_us(*requested, CLUSTER, CONSTANTS, models)
    assert more >= one * (1 - 1e-12)


@given(ANY_KIND, RANKS)
def test_zero_bytes_cost_the_floor(kind: str, ranks: int) -> None:
    least = min(latency(kind, message, ranks) for message in (0.0, 1.0, 1e3))
    assert least == latency(kind, 0.0, ranks) >= 6.6 * 0.9


@given(st.sampled_from(KINDS[:-1]), BYTES, st.integers(1, 32))
def test_doubling_peers_never_shortens_a_ring(kind: str, message: float, ranks: int) -> None:
    assert latency(kind, message, 2 * ranks) >= latency(kind, message, ranks) * (1 - 1e-12)


# 100 GB/s inside machines of 4, 10 GB/s for each rank's adapter, hops of 1.9 and 4 us, LL128 starts after 14 us
LEVELS = replace(CLUSTER, all_reduce="hierarchical")
SWITCHES = replace(CLUSTER, metadata={"in_network_reduction": "nvls"})


def test_three_stages_by_hand() -> None:
    """Simple: 3 starts of 8.4, 6 hops of 3.4 inside and 2 of 14 between; 1.5 S inside, all-reduce of S/4 over 2."""
    expected = 3 * 8.4 + 6 * 3.4 + 2 * 14 + 1.5 * 1e10 / 100e3 + 1.0 * 2.5e9 / 10e3
    assert latency("all_reduce", 1e10, 8, LEVELS) == pytest.approx(expected, rel=0.01)
    assert latency("all_reduce", 0.0, 8, LEVELS) == pytest.approx(3 * 6.6 + 6 * 0.6 + 2 * 2.7, rel=0.01)  # LL


def test_stages_between_machines_share_an_adapter_too() -> None:
    one = replace(LEVELS, adapters_per_node=1)
    assert latency("all_reduce", 1e10, 8, one) - latency("all_reduce", 1e10, 8, LEVELS) == pytest.approx(
        3 * 2.5e9 / 10e3, rel=0.01
    )


def test_levels_are_for_all_reduce_over_machines_only() -> None:
    assert latency("all_reduce", 1e9, 4, LEVELS) == latency("all_reduce", 1e9, 4, CLUSTER)
    assert latency("all_gather", 1e9, 8, LEVELS) == latency("all_gather", 1e9, 8, CLUSTER)
    assert latency("all_reduce", 1e3, 8, LEVELS) > latency("all_reduce", 1e3, 8, CLUSTER)  # three starts
    assert latency("all_reduce", 1e10, 8, LEVELS) < latency(
        "all_reduce", 1e10, 8, CLUSTER
    )  # the ring sends 1.75 S/4 over each adapter, not S/4


def test_switches_that_reduce_with_a_tree_between_machines() -> None:
    """2 x S/4 over adapters with 0.782 of 10 GB/s: longer than 1.25 S at 83 GB/s, than the ring longer as well."""
    between = 23 + 2 * 14 + 2 * 2.5e9 / (10e3 * 0.92 * 0.85)
    ring = 8.4 + 10 * 3.4 + 4 * 14 + 1.75 * 1e10 / 40e3
    assert ring < between
    assert latency("all_reduce", 1e10, 8, SWITCHES) == pytest.approx(ring, rel=0.01)
    fast = replace(SWITCHES, inter=replace(CLUSTER.inter, bandwidth_bytes_per_s=80e9))
    assert latency("all_reduce", 1e10, 8, fast) == pytest.approx(23 + 28 + 1.25 * 1e10 / (100e3 * 5 / 6), rel=0.01)


def test_a_collective_model_of_the_librarys_own_choice_does_not_apply_to_levels() -> None:
    models = fitted(hop_us=0.0, link="network")
    requested = np.array(["all_reduce"], object), np.array([1e6]), np.array([8])
    assert fitted_collective_us(*requested, LEVELS, CONSTANTS, models)[0] == latency("all_reduce", 1e6, 8, LEVELS)
    assert fitted_collective_us(*requested, CLUSTER, CONSTANTS, models)[0] != latency("all_reduce", 1e6, 8, CLUSTER)


@given(st.sampled_from([CLUSTER, LEVELS, SWITCHES]), ANY_KIND, BYTES, st.floats(1, 100), st.integers(1, 256),
       st.sampled_from(["intra", "inter"]))  # fmt: skip
def test_more_bytes_are_never_faster_and_more_bandwidth_never_slower(
    cluster: ClusterSpec, kind: str, message: float, factor: float, ranks: int, side: str
) -> None:
    link = getattr(cluster, side)
    wider = replace(cluster, **{side: replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * factor)})
    before = latency(kind, message, ranks, cluster)
    assert latency(kind, message, ranks, wider) <= before * (1 + 1e-12)
    assert latency(kind, message * factor, ranks, cluster) >= before * (1 - 1e-12)
