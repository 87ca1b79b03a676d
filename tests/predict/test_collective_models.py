"""Which laws of collectives a prediction goes by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gnnperf.core.errors import InputError
from gnnperf.hardware import load_cluster, load_device
from gnnperf.predict.request import Mode, Request, check
from gnnperf.predict.target import choose_target, collective_models_text, with_collective_models
from tests.toys import two_rank_graph


def test_a_cluster_has_its_own_collective_models_by_device() -> None:
    for device, name in (("h100_sxm", "h100_sxm_nccl_2_29"), ("h200", "h200_nccl_2_29")):
        sentences = collective_models_text(choose_target(two_rank_graph(), load_device(device), None).cluster)
        assert sentences.startswith(f"{name}: ") and "Apache-2.0" in sentences
    assert collective_models_text(load_cluster("dgx1_v100")) == "by specification: the links of cluster dgx1_v100"


def test_collective_models_that_are_requested_for_come_first() -> None:
    target = choose_target(two_rank_graph(), load_device("h100_sxm"), None)
    assert target.with_collective_models(None) == target
    assert target.with_collective_models("specification").cluster.collective_models_name is None
    assert collective_models_text(target.with_collective_models("a100_vtrain").cluster).startswith("a100_vtrain: ")


def test_collective_models_of_another_medium_are_not_used_and_say_so() -> None:
    cluster = replace(load_cluster("hgx_h100"), intra=load_cluster("pcie_gen4_8").intra)
    cluster = replace(cluster, inter=replace(cluster.inter, medium="loopback"))
    assert "links of another kind" in collective_models_text(with_collective_models(cluster, "a100_vtrain"))


def test_a_name_that_is_none_is_refused_before_the_trace_is_read(tmp_path: Path) -> None:
    (tmp_path / "toy.json").write_text("{}")
    with pytest.raises(InputError, match="did you mean a100_vtrain"):
        check(Request(trace=tmp_path / "toy.json", collectives="a100_vtrai"))
    with pytest.raises(InputError, match="cannot be read"):
        check(Request(trace=tmp_path / "toy.json", collectives=str(tmp_path / "mine.yaml")))
    with pytest.raises(InputError, match="collectives: has no use in mode=replay"):
        check(Request(trace=tmp_path / "toy.json", mode=Mode.replay, collectives="a100_vtrain"))
    check(Request(trace=tmp_path / "toy.json", collectives="specification"))
