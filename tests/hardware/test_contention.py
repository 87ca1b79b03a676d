"""What sharing does to what a node usually takes, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gnnperf.hardware.contention import Contention


def test_a_node_shorter_than_a_turn_usually_meets_none() -> None:
    """Twice as long on average: of 1 us nothing is usual, of 1 ms the root, of 1 s nearly all, of transfers all."""
    cores = Contention(cores_per_node=2.0)
    moves = np.array([False, False, False, True])
    result = cores.usual_stretch(moves, np.array([1.0, 1000.0, 1e6, 1.0]), np.full(4, 2.0))
    assert result == pytest.approx([2 ** (1 / 1001), 2**0.5, 2 ** (1000 / 1001), 2.0])
    assert cores.usual_stretch(moves, np.full(4, 10.0), np.ones(4)).tolist() == [1.0] * 4


def test_kernels_of_a_gpu_share_it_at_every_moment() -> None:
    stretch = np.array([1.5, 3.0])
    result = Contention(compute_slowdown=1.5).usual_stretch(np.zeros(2, dtype=bool), np.array([1.0, 5.0]), stretch)
    assert result.tolist() == [1.5, 3.0]
