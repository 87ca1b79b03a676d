from __future__ import annotations

from dataclasses import replace

import pytest

from gnnperf.hardware import Placement, load_cluster, placed, placement_of
from gnnperf.hardware.placement import with_bucket


def test_a_card_names_hosts_and_the_rate_between_them() -> None:
    card: dict[str, object] = {"link": {"medium": "veth", "hosts": 2, "rate_gbit_per_s": 1.0}}
    assert placement_of(card) == Placement(2, 125e6)


@pytest.mark.parametrize(
    "card", [None, {}, {"link": {}}, {"link": "lo"}, {"link": {"hosts": "two"}}, {"link": {"hosts": 0}}]
)
def test_cards_that_do_not_say(card: dict[str, object] | None) -> None:
    assert placement_of(card) is None


def test_a_link_without_a_limit_has_no_rate() -> None:
    assert placement_of({"link": {"hosts": 2, "rate_gbit_per_s": None}}) == Placement(2, None)


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


def test_where_a_card_names_a_rate_only_its_bucket_may_be_reported() -> None:
    assert with_bucket(Placement(2, 125e6), 7e4) == Placement(2, 125e6, 7e4)
    for placement in (None, Placement(2), Placement(1, 125e6), Placement(2, 125e6, 5e4)):
        assert with_bucket(placement, 7e4) == placement
    assert with_bucket(Placement(2, 125e6), None) == Placement(2, 125e6)


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
