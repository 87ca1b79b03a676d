"""By hand: roofs (1e12 bytes/s, 1e12 FLOP/s in float32), and arithmetic on the host."""

from dataclasses import replace

import numpy as np
import pytest
from round_device import DEVICE

from gnnperf.analytic import Roof, rate_key_of, roofs_of
from gnnperf.analytic.memory_bound.constants import default_memory_constants
from gnnperf.analytic.memory_bound.streams import sustained_bytes_per_s
from gnnperf.analytic.predictor import host_work_us
from gnnperf.hardware import Measured, load_cluster, load_device


def test_on_nvidias_gpus_the_sustained_shares_are_the_fitted_ones() -> None:
    device = load_device("h100_sxm")
    roofs = roofs_of(device)
    assert roofs.bandwidth.peak == device.memory_bandwidth_bytes_per_s
    assert roofs.bandwidth.sustained == pytest.approx(sustained_bytes_per_s(device, default_memory_constants()))
    assert roofs.flops.keys() == device.flops_per_s.keys()
    assert all(0.5 * roof.peak < roof.sustained <= roof.peak for roof in roofs.flops.values() if roof.peak)
    assert roofs.ridge("float32") < roofs.ridge("bfloat16_matrix")


def test_outside_they_are_those_of_the_specification() -> None:
    device = replace(DEVICE, kind="cpu", sustained_flops_share=0.5, sustained_bandwidth_share=0.25)
    roofs = roofs_of(device)
    assert (roofs.bandwidth, roofs.flops["float32"]) == (Roof(0.25e12, 1e12), Roof(0.5e12, 1e12))
    assert roofs.ridge("float32") == pytest.approx(2.0)


def test_what_was_measured_is_sustained_and_has_no_peak() -> None:
    roofs = roofs_of(replace(DEVICE, measured={"flops_per_s.float32": Measured(1e12, 0.9e12, 1.1e12)}))
    assert (roofs.bandwidth, roofs.flops["float16_matrix"]) == (Roof(1e12, None), Roof(8e12, None))


def test_ops_run_on_the_units_that_their_family_and_dtype_can_use() -> None:
    keys = [rate_key_of(DEVICE, *pair) for pair in (("gemm", "float16"), ("norm", "float16"), ("gemm", "bfloat16"))]
    assert keys == ["float16_matrix", "float16", "float32"]
    assert rate_key_of(DEVICE, "copy", None) == "float32"


def test_bytes_over_a_ranks_share_of_the_sockets() -> None:
    """3.2 GB over 2 x 204.8 GB/s x 0.8 / 8 = 40.96 GB/s: 78.125 ms."""
    assert host_work_us(np.array([3.2e9]), load_cluster("dgx_a100")) == pytest.approx([78125.0])


@pytest.mark.parametrize("unknown", [{"host": None}, {"host_sockets": None}])
def test_an_unknown_host_has_no_price(unknown: dict[str, None]) -> None:
    cluster = replace(load_cluster("dgx_a100"), **unknown)  # type: ignore[arg-type]
    assert np.isnan(host_work_us(np.array([1.0]), cluster)).all()


def test_more_ranks_share_and_more_sockets_help() -> None:
    cluster, moved = load_cluster("dgx_a100"), np.array([1e9])
    one = host_work_us(moved, cluster)
    assert host_work_us(moved, replace(cluster, ranks_per_node=4)) == pytest.approx(one / 2)
    assert host_work_us(moved, replace(cluster, host_sockets=4)) == pytest.approx(one / 2)
