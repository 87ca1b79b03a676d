from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.hardware import Placement, load_cluster, placed, placement_of
from gnnperf.hardware.contention import Contention
from gnnperf.hardware.placement import UNKNOWN, machines_of, progression, ranks_per_machine


def test_a_card_names_hosts_and_the_rate_between_them() -> None:
    stated: dict[str, object] = {"medium": "veth", "hosts": 2, "rate_gbit_per_s": 1.0}
    assert placement_of({"link": stated}) == Placement(2, 125e6)
    assert placement_of({"link": stated | {"rate_gbit_per_s": None}}) == Placement(2, None)
    for link in ({}, "lo", {"hosts": "two"}, {"hosts": 0}):
        assert placement_of({"link": link}) is None
    assert placement_of(None) is None and placement_of({}) is None


def test_ranks_are_placed_in_equal_blocks_over_the_declared_link() -> None:
    default = load_cluster("loopback_cpu")
    cluster = placed(default, Placement(2, 31.25e6), world_size=4)
    assert (cluster.ranks_per_node, cluster.inter.bandwidth_bytes_per_s) == (2, 31.25e6)
    assert cluster.intra == default.intra
    assert (cluster.adapters, cluster.ranks_per_adapter) == (1, 2)  # the rate is that of a host's one link


def test_gpus_have_adapters_of_their_own_unless_the_card_or_the_cluster_states_otherwise() -> None:
    default = load_cluster("hgx_h100")
    assert (default.adapters, default.ranks_per_adapter) == (8, 1)
    assert placed(default, Placement(2, None), world_size=8).adapters == 4
    assert placed(default, Placement(2, 31.25e6), world_size=8).adapters == 1
    three = replace(default, adapters_per_node=3)
    assert (three.adapters, three.ranks_per_adapter) == (3, 3)
    assert replace(three, ranks_per_node=2).adapters == 2


CORES: dict[str, object] = {
    "link": {"hosts": 2},
    "hosts": [{"fingerprint": "a"}, {"fingerprint": "a"}, {"fingerprint": "b"}],
    "ranks": [
        {"rank": 1, "host": 2, "cores": [0]},
        {"rank": 0, "host": 1, "cores": [0, 1]},
        {"rank": 2, "host": 0, "cores": [1]},
    ],
}


def test_cores_are_numbered_over_machines_and_two_hosts_may_be_one() -> None:
    result = placement_of(CORES)
    assert result is not None
    assert result.core_sets == ((0, 1), (131072,), (1,))
    assert placed(load_cluster("loopback_cpu"), result, 3).core_sets == result.core_sets


@pytest.mark.parametrize("ranks", [[], [{"rank": 1, "host": 0, "cores": [0]}], [{"rank": 0, "host": 0}]])
def test_cores_that_a_card_does_not_say(ranks: list[dict[str, object]]) -> None:
    result = placement_of({**CORES, "ranks": ranks})
    assert result is not None
    assert result.core_sets == ()


def test_one_host_or_none_known_is_the_default() -> None:
    default = load_cluster("loopback_cpu")
    assert placed(default, Placement(1), 4) == placed(default, None, 4) == default


def test_a_card_may_name_the_bucket_that_limits_its_link() -> None:
    link = {"hosts": 2, "rate_gbit_per_s": 1.0}
    assert placement_of({"link": {**link, "bucket_bytes": 70_000}}) == Placement(2, 125e6, 70_000.0)
    for odd in (None, "70 kB", 0, -1, float("inf"), float("nan"), True):
        assert placement_of({"link": {**link, "bucket_bytes": odd}}) == Placement(2, 125e6, None)


def test_a_limit_brings_its_own_bucket_or_none() -> None:
    default = load_cluster("loopback_cpu")
    given = replace(default, inter=replace(default.inter, bucket_bytes=5e4))
    assert placed(given, Placement(2, 125e6), 2).inter.bucket_bytes is None
    assert placed(given, Placement(2, 125e6, 7e4), 2).inter.bucket_bytes == 7e4
    assert placed(given, Placement(2), 2).inter.bucket_bytes == 5e4  # not limited, or not stated: the link's own


@pytest.mark.parametrize(
    "broken",
    [{"hosts": [[]]}, {"hosts": {}}, {"ranks": [[]]}, {"ranks": [{"rank": [0], "host": 0, "cores": [0]}]},
     {"ranks": [{"rank": 0, "host": "0", "cores": [0]}]}, {"ranks": [{"rank": 0, "host": 0, "cores": [[0]]}]},
     {"ranks": [{"rank": 0, "host": 9, "cores": [0]}]}, {"ranks": [{"rank": 0, "host": 0, "cores": [0]}] * 2}],
)  # fmt: skip
def test_a_card_of_wrong_types_names_no_cores(broken: dict[str, object]) -> None:
    card: dict[str, object] = {
        "link": {"hosts": 1}, "hosts": [{"fingerprint": "a"}], "ranks": [{"rank": 0, "host": 0, "cores": [3]}],
    }  # fmt: skip
    whole, damaged = placement_of(card), placement_of(card | broken)
    assert whole is not None and whole.core_sets == ((3,),)
    assert damaged is not None and damaged.core_sets == ()


def _machines(size: int, first: int, stride: int, ranks_per_node: int) -> int:
    return int(machines_of(np.array([size]), np.array([first]), np.array([stride]), ranks_per_node)[0])


def _together(size: int, first: int, stride: int, ranks_per_node: int) -> int:
    return int(ranks_per_machine(np.array([size]), np.array([first]), np.array([stride]), ranks_per_node)[0])


@pytest.mark.parametrize(
    ("ranks", "place"),
    [([4, 0, 8], (0, 4)), ([3, 5], (3, 2)), ([0, 1, 3], (0, UNKNOWN)), ([7], (7, UNKNOWN)), ([], (UNKNOWN, UNKNOWN))],
)
def test_progressions(ranks: list[int], place: tuple[int, int]) -> None:
    assert progression(ranks) == place


@given(size=st.integers(1, 40), first=st.integers(0, 30), stride=st.integers(1, 20), per_node=st.integers(1, 12))
def test_machines_are_counted(size: int, first: int, stride: int, per_node: int) -> None:
    counted = len({(first + stride * i) // per_node for i in range(size)})
    assert _machines(size, first, stride, per_node) == counted


def test_groups_that_do_not_say_where_they_are_fill_machines() -> None:
    assert [_machines(size, -1, -1, 8) for size in (-1, 1, 8, 9, 17)] == [1, 1, 1, 2, 3]
    assert _together(17, -1, -1, 8) == 8


def test_who_shares_a_machine() -> None:
    assert _together(128, 0, 8, 8) == 1  # replicas of tensor-parallel machines
    assert _together(16, 0, 4, 8) == 2
    assert _together(4, 0, 1, 8) == 8  # inside one machine: its links are all there
    assert _together(2, 7, 1, 8) == 1  # neighbors on two machines


# --- what sharing does to what a node usually takes, by hand ----------------------------------------------------------


def test_a_node_shorter_than_a_turn_usually_meets_none() -> None:
    """Twice as long on average: of 1 us nothing is usual, of 1 ms the root, of 1 s nearly all, of transfers all."""
    cores = Contention(cores_per_node=2.0)
    moves = np.array([False, False, False, True])
    result = cores.usual_stretch(moves, np.array([1.0, 1000.0, 1e6, 1.0]), np.full(4, 2.0))
    assert result == pytest.approx([2 ** (1 / 1001), 2**0.5, 2 ** (1000 / 1001), 2.0])
    assert cores.usual_stretch(moves, np.full(4, 10.0), np.ones(4)).tolist() == [1.0] * 4


def test_kernels_of_a_gpu_share_it_at_every_moment() -> None:
    stretch = np.array([1.5, 3.0])
    result = Contention().usual_stretch(np.zeros(2, dtype=bool), np.array([1.0, 5.0]), stretch)
    assert result.tolist() == [1.5, 3.0]
