"""All-reduce in levels by hand, and when it answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.analytic.collective.constants import CollectiveConstants, MeasuredLink
from gnnperf.analytic.collective.formulas import collective_us, fitted_collective_us
from gnnperf.analytic.collective.model import CollectiveModel
from gnnperf.hardware.spec import ClusterSpec
from tests.analytic.collective.test_formulas import CLUSTER, CONSTANTS

# 100 GB/s inside machines of 4, 10 GB/s for each rank's adapter, hops of 1.9 and 4 us, LL128 starts after 14 us
LEVELS = replace(CLUSTER, all_reduce="hierarchical")
SWITCHES = replace(CLUSTER, metadata={"in_network_reduction": "nvls"})


def latency(cluster: ClusterSpec, message: float, ranks: int, kind: str = "all_reduce") -> float:
    result = collective_us(np.array([kind], object), np.array([message]), np.array([ranks]), cluster, CONSTANTS)
    return float(result[0])


def test_three_stages_by_hand() -> None:
    """Simple: 3 starts of 8.4, 6 hops of 3.4 inside and 2 of 14 between; 1.5 S inside, all-reduce of S/4 over 2."""
    expected = 3 * 8.4 + 6 * 3.4 + 2 * 14 + 1.5 * 1e10 / 100e3 + 1.0 * 2.5e9 / 10e3
    assert latency(LEVELS, 1e10, 8) == pytest.approx(expected, rel=0.01)
    assert latency(LEVELS, 0.0, 8) == pytest.approx(3 * 6.6 + 6 * 0.6 + 2 * 2.7, rel=0.01)  # LL


def test_stages_between_machines_share_an_adapter_too() -> None:
    one = replace(LEVELS, adapters_per_node=1)
    assert latency(one, 1e10, 8) - latency(LEVELS, 1e10, 8) == pytest.approx(3 * 2.5e9 / 10e3, rel=0.01)


def test_levels_are_for_all_reduce_over_machines_only() -> None:
    assert latency(LEVELS, 1e9, 4) == latency(CLUSTER, 1e9, 4)
    assert latency(LEVELS, 1e9, 8, "all_gather") == latency(CLUSTER, 1e9, 8, "all_gather")
    assert latency(LEVELS, 1e3, 8) > latency(CLUSTER, 1e3, 8)  # three starts
    assert latency(LEVELS, 1e10, 8) < latency(CLUSTER, 1e10, 8)  # the ring sends 1.75 S/4 over each adapter, not S/4


def test_many_machines_and_a_slow_line_are_what_levels_are_for() -> None:
    """A ring of 64 ranks crosses 32 times between machines at 5 ms, levels 30 times; a tree 8 times."""
    far = replace(CLUSTER, inter=replace(CLUSTER.inter, latency_us=5000.0))
    tree = 8 * 5000 * 2.7 / 4
    assert latency(far, 0.0, 64) == pytest.approx(tree, rel=0.01)
    assert latency(replace(far, all_reduce="hierarchical"), 0.0, 64) == pytest.approx(30 * 5000 * 2.7 / 4, rel=0.01)


def test_switches_that_reduce_with_a_tree_between_machines() -> None:
    """2 x S/4 over adapters with 0.782 of 10 GB/s: longer than 1.25 S at 83 GB/s, than the ring longer as well."""
    between = 23 + 2 * 14 + 2 * 2.5e9 / (10e3 * 0.92 * 0.85)
    ring = 8.4 + 10 * 3.4 + 4 * 14 + 1.75 * 1e10 / 40e3
    assert ring < between
    assert latency(SWITCHES, 1e10, 8) == pytest.approx(ring, rel=0.01)
    fast = replace(SWITCHES, inter=replace(CLUSTER.inter, bandwidth_bytes_per_s=80e9))
    assert latency(fast, 1e10, 8) == pytest.approx(23 + 28 + 1.25 * 1e10 / (100e3 * 5 / 6), rel=0.01)


def test_a_collective_model_of_the_librarys_own_choice_does_not_answer_for_levels() -> None:
    collective_model = CollectiveModel(1.0, 0.0, 1e12, 1e11, 0.0, ())
    links = MeasuredLink.of(CLUSTER.intra), MeasuredLink.of(CLUSTER.inter)
    collective_models = CollectiveConstants(*links, {("all_reduce", "network"): collective_model}, between="network")
    requested = np.array(["all_reduce"], object), np.array([1e6]), np.array([8])
    assert fitted_collective_us(*requested, LEVELS, CONSTANTS, collective_models)[0] == latency(LEVELS, 1e6, 8)
    assert fitted_collective_us(*requested, CLUSTER, CONSTANTS, collective_models)[0] != latency(CLUSTER, 1e6, 8)


@given(st.sampled_from([LEVELS, SWITCHES]), st.floats(0, 1e12), st.floats(1, 100), st.integers(5, 256),
       st.sampled_from(["intra", "inter"]))  # fmt: skip
def test_more_bandwidth_is_never_slower_and_more_bytes_never_faster(
    cluster: ClusterSpec, message: float, factor: float, ranks: int, side: str
) -> None:
    link = getattr(cluster, side)
    wider = replace(cluster, **{side: replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * factor)})
    before = latency(cluster, message, ranks)
    assert latency(wider, message, ranks) <= before * (1 + 1e-12)
    assert latency(cluster, message * factor, ranks) >= before * (1 - 1e-12)
