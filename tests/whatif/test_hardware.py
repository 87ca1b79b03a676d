"""Other devices, links and clusters."""

import numpy as np
import pytest

from gnnperf.core import InputError, NodeType
from gnnperf.hardware import ClusterSpec, load_cluster, load_device, load_host, load_link
from gnnperf.whatif import ChangeCluster, ChangeDevice, ChangeLink, Edit, apply, cluster_after
from tests.toys import two_rank_graph
from tests.whatif.programs import layer

GEMM_0, GEMM_1, TRANSFER = 3, 10, 14


def after(*edits: Edit) -> ClusterSpec:
    """The DGX-1 of the toy after edits."""
    edited = apply(two_rank_graph(), edits)
    return cluster_after(load_cluster("dgx1_v100"), edited.hardware)


def test_what_a_device_touches_and_does_not_know() -> None:
    edited = ChangeDevice("h100_sxm")(two_rank_graph())
    assert np.flatnonzero(edited.touched).tolist() == [GEMM_0, GEMM_1, TRANSFER]
    assert edited.graph.nodes["latency_us"][[GEMM_0, GEMM_1, TRANSFER]].isna().all()
    assert any("fits into the 80 GiB" in sentence for sentence in edited.unknown)
    assert any("what a cpu does otherwise" in s for s in ChangeDevice("cpu_generic")(two_rank_graph()).unknown)
    changed = after(ChangeDevice("h100_sxm"))
    assert (changed.name, changed.device) == ("dgx1_v100", load_device("h100_sxm"))


def test_links_in_numbers() -> None:
    """NVLink 2 of a DGX-1 at half the bandwidth and three times the latency; a rate is bits per second."""
    before = load_cluster("dgx1_v100")
    half = after(ChangeLink(bandwidth_factor=0.5, latency_factor=3.0, link="intra"))
    assert half.intra.bandwidth_bytes_per_s == 0.5 * before.intra.bandwidth_bytes_per_s
    assert half.intra.latency_us == 3.0 * before.intra.latency_us
    assert half.inter == before.inter
    rate = after(ChangeLink(rate_gbit_per_s=8.0))
    assert [rate.intra.bandwidth_bytes_per_s, rate.inter.bandwidth_bytes_per_s] == pytest.approx([1e9, 1e9])
    other = after(ChangeLink("infiniband_ndr", link="inter"))
    assert other.inter == load_link("infiniband_ndr")


def test_edits_compose_in_order() -> None:
    """Another cluster takes its links along; what is stated of links afterwards holds for those."""
    slow, moved = ChangeLink(bandwidth_factor=0.5), ChangeCluster("hgx_h100")
    theirs = load_cluster("hgx_h100").intra.bandwidth_bytes_per_s
    assert after(slow, moved).intra.bandwidth_bytes_per_s == theirs
    assert after(moved, slow).intra.bandwidth_bytes_per_s == 0.5 * theirs
    twice = after(slow, slow).intra.bandwidth_bytes_per_s
    assert twice == 0.25 * load_cluster("dgx1_v100").intra.bandwidth_bytes_per_s
    device = ChangeDevice("h100_sxm")
    assert after(device, moved) == after(moved, device)


def test_hosts_move_by_their_single_thread_speeds() -> None:
    old, new = load_host("xeon_e5_2698_v4"), load_host("xeon_platinum_8480")
    results, before = after(ChangeCluster("hgx_h100")), load_cluster("dgx1_v100").host_speed
    assert results.host_speed / before == pytest.approx(new.single_thread_speed / old.single_thread_speed)
    assert after(ChangeCluster(host="xeon_platinum_8480")).host_speed == pytest.approx(results.host_speed)
    assert after(ChangeCluster("hgx_h100"), ChangeCluster("dgx1_v100")).host_speed == before
    edited = ChangeCluster("hgx_h100")(two_rank_graph())
    is_host = (edited.graph.nodes["node_type"] == NodeType.HOST).to_numpy()
    assert edited.touched[is_host].all()
    assert not ChangeCluster(nodes=2)(two_rank_graph()).touched[is_host].any()


def test_ranks_on_several_nodes() -> None:
    assert after(ChangeCluster(nodes=2)).ranks_per_node == 1
    with pytest.raises(InputError, match="2 ranks do not fit on 1 node of 1"):
        after(ChangeCluster(nodes=1, ranks_per_node=1))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: ChangeDevice("h100_smx"), "no hardware named 'h100_smx'; did you mean h100_sxm"),
        (lambda: ChangeLink(), "no change"),
        (lambda: ChangeLink(bandwidth_factor=2.0, link="outer"), "intra, inter, host"),
        (lambda: ChangeLink(rate_gbit_per_s=0.0), "above 0"),
        (lambda: ChangeCluster(), "no change"),
        (lambda: ChangeCluster("hgx_h10"), "did you mean hgx_h100"),
        (lambda: ChangeLink(bandwidth_factor=2.0)(layer(2, 3, 5, 7).step(9)), "no collective"),
    ],
)
def test_refusals(made: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        made()  # type: ignore[operator]
