"""Arithmetic on the host by hand."""

from dataclasses import replace

import numpy as np
import pytest

from gnnperf.analytic.copies import host_work_us
from gnnperf.hardware import load_cluster


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
