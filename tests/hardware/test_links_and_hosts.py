"""Links, hosts and nodes: by name, changed in part, and what they do to a cluster."""

from pathlib import Path

import pytest
import yaml

from gnnperf.core.errors import InputError
from gnnperf.hardware import cluster_names, load_cluster, load_device, load_host, load_link, spread
from gnnperf.hardware.spec import MEDIA
from gnnperf.hardware.yaml_spec import cluster_from, conf_dir, link_from, names_in

LINK = {"name": "wire", "bandwidth_bytes_per_s": 1e9, "latency_us": 1.0}
RAW: dict[str, object] = {"name": "c", "device": "h100_sxm", "intra": LINK, "inter": LINK, "host_link": LINK}


def test_a_path_is_as_slow_as_its_slowest_link_and_as_late_as_all() -> None:
    far = {"name": "far", "bandwidth_bytes_per_s": 4e9, "latency_us": 5000.0, "sustained_bandwidth_share": 0.5}
    path = link_from({"path": ["pcie_gen4_x16", far, {**LINK, "bandwidth_bytes_per_s": 3e9}]}, "test")
    assert (path.name, path.sustained_bytes_per_s) == ("pcie_gen4_x16+far+wire", 2e9)
    assert path.latency_us == load_link("pcie_gen4_x16").latency_us + 5001.0


@pytest.mark.parametrize(
    ("change", "result"),
    [
        ({"collectives": None}, None), ({"collectives": "perlmutter"}, "perlmutter"),
        ({"collectives": {"h200": "perlmutter"}}, None), ({"collectives": {"h100_sxm": "mine.yaml"}}, "mine.yaml"),
    ],
)  # fmt: skip
def test_collective_models_of_collectives_by_device(change: dict[str, object], result: str | None) -> None:
    assert cluster_from({**RAW, **change}, load_device("h100_sxm"), "test").collective_models_name == result


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"collectives": "perlmuter"}, "no collective_models named 'perlmuter'; did you mean perlmutter"),
        ({"collectives": 3}, "collectives.any: bad value 3. Allowed: text"),
        ({"collectives": {"h200": 3}}, "collectives.h200: bad value 3. Allowed: text"),
        ({"all_reduce": "hierarchcal"}, "bad value 'hierarchcal'.*fastest, hierarchical"),
    ],
)  # fmt: skip
def test_bad_collective_models_and_algorithms_are_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        cluster_from({**RAW, **change}, load_device("h100_sxm"), "test")


@pytest.mark.parametrize("name", names_in("link"))
def test_link_is_named_after_its_file_and_cites_a_source(name: str) -> None:
    link = load_link(name)
    assert link.name == name and link.source and link.medium in MEDIA
    assert link.pair_bandwidth_bytes_per_s is None or link.pair_bandwidth_bytes_per_s < link.bandwidth_bytes_per_s


@pytest.mark.parametrize(
    ("name", "count", "each_bytes_per_s"),
    [
        ("nvlink1", 4, 20e9), ("nvlink2", 6, 25e9), ("nvlink3", 12, 25e9), ("nvlink4_nvswitch", 18, 25e9),
        ("nvlink5_nvswitch", 18, 50e9), ("infinity_fabric_mesh", 7, 64e9),
        ("pcie_gen3_x16", 16, 8e9 / 8 * 128 / 130), ("pcie_gen4_x16", 16, 16e9 / 8 * 128 / 130),
        ("pcie_gen5_x16_host", 16, 32e9 / 8 * 128 / 130), ("nvme_gen4_x4", 4, 16e9 / 8 * 128 / 130),
        ("infiniband_hdr", 4, 50e9 / 8), ("infiniband_ndr", 4, 100e9 / 8),
    ],
)  # fmt: skip
def test_bandwidth_is_lanes_times_rate(name: str, count: int, each_bytes_per_s: float) -> None:
    assert load_link(name).bandwidth_bytes_per_s == pytest.approx(count * each_bytes_per_s, rel=1e-3)


def test_switches_that_add_up() -> None:
    adding = {name for name in names_in("link") if load_link(name).in_network_reduction}
    assert {"nvlink4_nvswitch", "nvlink5_nvswitch", "infiniband_hdr", "infiniband_ndr"} <= adding
    assert not {"nvlink2", "nvlink3_nvswitch", "pcie_gen5_x16", "ethernet_400g", "loopback"} & adding


def test_a_shipped_link_changed_in_part() -> None:
    half = link_from({"link": "infiniband_ndr", "name": "half", "bandwidth_bytes_per_s": 25e9}, "here")
    ndr = load_link("infiniband_ndr")
    assert (half.name, half.bandwidth_bytes_per_s, half.latency_us) == ("half", 25e9, ndr.latency_us)
    assert half.in_network_reduction


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("infiniband_nrd", "no link named 'infiniband_nrd'; did you mean infiniband_ndr"),
        ({"link": "nvlink9"}, "no link named 'nvlink9'"),
        ({"path": []}, "at least one link"),
        ({"path": "nvlink1"}, "here.path: bad value 'nvlink1'. Allowed: a list"),
        ({"path": [LINK], "latency_us": 1}, "unknown key 'latency_us'"),
        ({"path": ["nvlinc1"]}, "did you mean nvlink1"),
        ({**LINK, "medium": "rope"}, "bad value 'rope'.*nvlink"),
        ({**LINK, "in_network_reduction": "yes, please"}, "bad value 'yes, please'.*true or false"),
        ({**LINK, "pair_bandwidth_bytes_per_s": 0}, "pair_bandwidth_bytes_per_s: bad value 0"),
        ({"link": "nvlink3", "speed": 1}, "unknown key 'speed'"),
        (7, "bad value 7. Allowed: a mapping of name, "),
    ],
)
def test_bad_links_are_named(raw: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        link_from(raw, "here")


@pytest.mark.parametrize("name", names_in("host"))
def test_host_is_named_after_its_file_and_its_speed_is_clock_times_work(name: str) -> None:
    host = load_host(name)
    assert host.name == name and host.source and host.aliases
    assert host.single_thread_speed == pytest.approx(host.clock_hz / 3e9 * host.work_per_clock)
    assert 0.5 < host.single_thread_speed < 3.0


def test_later_hosts_are_faster() -> None:
    speeds = [load_host(n).single_thread_speed for n in ("xeon_e5_2698_v4", "epyc_7742", "epyc_7763", "epyc_9654")]
    assert speeds == sorted(speeds)


@pytest.mark.parametrize("name", cluster_names())
def test_hosts_of_shipped_clusters_are_relative_to_the_one_that_overheads_hold_for(name: str) -> None:
    cluster, reference = load_cluster(name), load_host("epyc_7763").single_thread_speed
    assert cluster.host_speed == (1.0 if cluster.host is None else cluster.host.single_thread_speed / reference)


def test_another_host_moves_the_overheads(tmp_path: Path) -> None:
    device = load_cluster("single", "t4").device
    epyc, reference = load_host("epyc_9654"), load_host("epyc_7763")
    moved = cluster_from({**RAW, "host": "epyc_9654"}, device, "here")
    assert moved.host == epyc
    assert moved.host_speed == pytest.approx(epyc.single_thread_speed / reference.single_thread_speed)
    assert cluster_from({**RAW, "host": "grace", "host_speed": 2.0}, device, "here").host_speed == 2.0
    own = tmp_path / "own.yaml"
    own.write_text(yaml.safe_dump({"name": "own", "clock_hz": 3e9, "work_per_clock": 2.0, "num_cores": 4}))
    moved = cluster_from({**RAW, "host": str(own)}, device, "here")
    assert moved.host_speed == pytest.approx(2.0 * 3e9 / (3.5e9 * 1.25))
    with pytest.raises(InputError, match="no host named 'epyc_774'; did you mean epyc_7742"):
        cluster_from({**RAW, "host": "epyc_774"}, device, "here")


def test_ranks_are_divided_over_the_nodes_of_a_cluster() -> None:
    hgx = load_cluster("hgx8", "h200")
    assert (hgx.device.name, hgx.ranks_per_node, hgx.nodes) == ("h200", 8, None)
    assert spread(hgx, 64) is hgx
    four = cluster_from({**yaml.safe_load("{name: four, device: h200, nodes: 4, ranks_per_node: 8}"),
                         "intra": "nvlink4_nvswitch", "inter": "infiniband_ndr", "host_link": "pcie_gen5_x16_host"},
                        hgx.device, "here")  # fmt: skip
    assert [spread(four, ranks).ranks_per_node for ranks in (32, 16, 6, 1)] == [8, 4, 2, 1]
    with pytest.raises(InputError, match="33 ranks do not fit on 4 nodes of 8"):
        spread(four, 33)


def test_drives_and_sockets_are_stated_or_not() -> None:
    raw = {**yaml.safe_load((conf_dir("cluster") / "dgx_a100.yaml").read_text(encoding="utf-8")), "storage": None}
    device = load_device("a100_sxm_80gb")
    assert cluster_from(raw, device, "test").storage is None
    with_drive = cluster_from({**raw, "storage": "nvme_gen5_x4", "host_sockets": 1}, device, "test")
    assert with_drive.storage == load_link("nvme_gen5_x4")
    assert with_drive.host_memory_bytes_per_s == 204.8e9 / 8
    assert cluster_from({**raw, "host_sockets": None}, device, "test").host_memory_bytes_per_s is None


def test_memory_of_hosts_is_channels_times_eight_bytes() -> None:
    """DDR4 and DDR5 transfer 8 bytes a channel at a time, 2,400 to 5,600 million times a second."""
    transfers = {"xeon_e5_2698_v4": (4, 2.4e9), "xeon_platinum_8168": (6, 2.667e9), "epyc_7742": (8, 3.2e9),
                 "xeon_platinum_8480": (8, 4.8e9), "xeon_platinum_8570": (8, 5.6e9),
                 "epyc_9654": (12, 4.8e9)}  # fmt: skip
    for name, (channels, rate) in transfers.items():
        assert load_host(name).memory_bandwidth_bytes_per_s == pytest.approx(channels * rate * 8, rel=1e-3), name
