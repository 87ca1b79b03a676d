"""Which hardware a prediction is for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gnnperf.core.errors import InputError
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.hardware import load_cluster, load_device
from gnnperf.predict.target import choose_target, closest, traced_name
from tests.toys import make_graph, two_rank_graph


def _named(*names: str) -> ExecutionGraph:
    return replace(two_rank_graph(), device_names=names)


def _cpu_graph(*names: str) -> ExecutionGraph:
    graph = make_graph([{"node_type": "compute", "thread": 0, "op_name": "aten::mm"}], [], device_name="")
    return replace(graph, device_names=names)


def test_default_is_the_traces_own_device() -> None:
    target = choose_target(two_rank_graph(), None, None)
    assert target.cluster.device.name == "v100_sxm2_32gb"
    assert target.same_hardware


def test_links_are_assumed_aloud_unless_named() -> None:
    target = choose_target(two_rank_graph(), None, None)
    assert any("links are assumed" in warning for warning in target.warnings)
    assert choose_target(two_rank_graph(), None, target.cluster).warnings == ()


def test_requested_hardware_is_other_hardware() -> None:
    target = choose_target(two_rank_graph(), load_device("h100_sxm"), None)
    assert target.cluster.device.name == "h100_sxm"
    assert not target.same_hardware


def test_asking_for_the_traces_own_hardware_is_the_same() -> None:
    assert choose_target(two_rank_graph(), load_device("v100_sxm2_32gb"), None).same_hardware


def test_unknown_device_of_the_trace_names_the_closest_and_the_remedy() -> None:
    with pytest.raises(InputError, match=r"'Tesla V100-FHHL-16GB' is not in the catalog; closest: v100") as refused:
        choose_target(_named("Tesla V100-FHHL-16GB", "Tesla V100-FHHL-16GB"), None, None)
    assert "hardware=NAME" in str(refused.value) and "conf/hardware" in str(refused.value)


def test_unknown_device_of_the_trace_may_be_predicted_outside_but_not_compared() -> None:
    target = choose_target(_named("Abacus 9", "Abacus 9"), load_device("h100_sxm"), None)
    assert not target.same_hardware
    assert closest("Abacus 9") == []


def test_changed_numbers_are_other_hardware() -> None:
    faster = replace(load_device("v100_sxm2_32gb"), memory_bandwidth_bytes_per_s=2e12)
    assert not choose_target(two_rank_graph(), faster, None).same_hardware


def test_requested_cluster_gives_the_links_and_keeps_the_device() -> None:
    target = choose_target(two_rank_graph(), None, load_cluster("single"))
    assert (target.cluster.name, target.cluster.device.name) == ("single", "v100_sxm2_32gb")
    assert target.same_hardware


def test_gpu_trace_without_a_name_must_be_reported() -> None:
    with pytest.raises(InputError, match="does not say which device"):
        choose_target(_named("", ""), None, None)


def test_ranks_on_different_devices_must_be_reported() -> None:
    graph = _named("Tesla V100-SXM2-32GB", "NVIDIA H100 80GB HBM3")
    with pytest.raises(InputError, match="different devices"):
        choose_target(graph, None, None)
    assert traced_name(graph) == "Tesla V100-SXM2-32GB, NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize("name", ["", "Some CPU @ 2 GHz"])
def test_cpu_trace_takes_the_generic_cpu_and_states_so(name: str) -> None:
    target = choose_target(_cpu_graph(name), None, None)
    assert target.cluster.device.name == "cpu_generic"
    assert target.same_hardware
    assert any("cpu_generic is assumed" in warning for warning in target.warnings)


def test_a_cluster_of_several_nodes_divides_the_ranks() -> None:
    two = replace(load_cluster("hgx8"), nodes=2)
    assert choose_target(two_rank_graph(), None, two).cluster.ranks_per_node == 1
    with pytest.raises(InputError, match="2 ranks do not fit on 1 nodes of 1"):
        choose_target(two_rank_graph(), None, replace(load_cluster("single"), nodes=1))
