"""Laws on other links than they were fitted on, and the laws that ship."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.analytic.collective.constants import (
    CollectiveConstants,
    MeasuredLink,
    collective_models_of,
    shipped_collectives,
)
from gnnperf.analytic.collective.formulas import collective_us, fitted_collective_us
from gnnperf.analytic.collective.model import CollectiveModel, ProtocolSwitch
from gnnperf.analytic.constants import default_constants
from gnnperf.core.errors import InputError
from gnnperf.hardware import ClusterSpec, cluster_names, load_cluster
from gnnperf.hardware.yaml_spec import LAWS_GROUP, names_in

HGX = load_cluster("hgx_h100")
NVLINK, NETWORK = MeasuredLink.of(HGX.intra), MeasuredLink.of(HGX.inter)
# start 10, hops of 1 us, memory 1 MB/us, wire 0.1 MB/us; a change of protocol that costs 2 us per hop
LAW = CollectiveModel(10.0, 1.0, 1e12, 1e11, 0.0, (ProtocolSwitch(3.0, 2.0, 1e3, 0.0, 12.0),))
LAWS = CollectiveConstants(
    NVLINK, NETWORK, {("all_reduce", "nvlink"): LAW, ("all_reduce", "network"): LAW}, inside=((8, "nvlink"),),
    between="network",
)  # fmt: skip


def latency(collective_models: CollectiveConstants, message: float, ranks: int, nodes: int) -> float:
    one = np.array(["all_reduce"], object), np.array([message]), np.array([ranks]), np.array([nodes])
    return float(collective_models.latency_us(*one, np.array([np.nan]))[0])


def test_on_its_own_links_a_collective_model_is_as_fitted() -> None:
    assert LAWS.on(HGX) == LAWS
    assert latency(LAWS, 1e6, 4, 1) == pytest.approx(10 + 6 + 3 + 12 + 1 + 15)


def test_another_link_moves_hops_and_wire_only() -> None:
    """Twice the bandwidth, three times the latency: 6 hops of 3 us, 12 us of extra become 36, the wire 7.5 us."""
    link = HGX.intra
    other = replace(
        HGX, intra=replace(link, bandwidth_bytes_per_s=2 * link.bandwidth_bytes_per_s, latency_us=3 * link.latency_us)
    )
    moved = LAWS.on(other)
    assert latency(moved, 1e6, 4, 1) == pytest.approx(10 + 18 + 3 + 36 + 1 + 7.5)
    assert latency(moved, 1e6, 16, 2) == latency(LAWS, 1e6, 16, 2)  # between machines nothing changed


def test_another_medium_is_answered_by_specification() -> None:
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
    before = latency(collective_models.on(cluster), message, *group)
    assert not latency(collective_models.on(wider), message, *group) > before * (1 + 1e-9)
    assert not latency(collective_models.on(cluster), message * factor, *group) < before * (1 - 1e-9)


def _where_fitted(collective_models: CollectiveConstants) -> ClusterSpec:
    names = ("hgx_h100", "dgx_a100", "perlmutter_a100")
    return next(c for c in map(load_cluster, names) if MeasuredLink.of(c.intra) == collective_models.measured_inside)


@pytest.mark.parametrize("name", names_in(LAWS_GROUP))
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
    """Laws that are moved as shipped would be laws of other machines."""
    cluster = load_cluster(name)
    for device in cluster.collectives:
        collective_models = collective_models_of(load_cluster(name, device))
        assert collective_models is not None and collective_models == shipped_collectives(cluster.collectives[device])


def test_a_cluster_without_collective_models_and_a_name_that_is_none() -> None:
    assert collective_models_of(load_cluster("hgx_h100", "h800")) is None
    with pytest.raises(InputError, match="did you mean h100_sxm_nccl_2_29"):
        collective_models_of(replace(HGX, collectives={"any": "h100_sxm_nccl"}))
