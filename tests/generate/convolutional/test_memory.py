"""What a rank of a residual network holds, by hand."""

from __future__ import annotations

import pytest

from gnnperf.generate.convolutional.build import replica_tensors
from gnnperf.generate.convolutional.plan import ConvolutionalPlan, NetworkOptimizer
from gnnperf.generate.uses import Stretch
from gnnperf.memory.measured import Part, PeakMemory
from gnnperf.memory.planned import ASKED, KEPT, courses, in_blocks, planned_peak
from tests.generate.convolutional.networks import shipped, tiny

PARAMETERS = 435


def _peak(plan: ConvolutionalPlan) -> PeakMemory:
    return planned_peak(*replica_tensors(plan))


def test_between_the_passes_of_tiny() -> None:
    """Five images of 4 channels (three convolutions' results, their norms' where ReLU and sum are in place, less one).

    stem, its norm; conv 0, norm 0; conv 1, norm 1: six of 2 x 4 x 8 x 8 float32; mean and deviation of three norms;
    the mean over the image [2, 4] and the logarithms [2, 3].
    """
    first = replica_tensors(tiny())[0].stretches[0]
    assert isinstance(first, Stretch)
    forward, backward, _ = courses(first.pair, in_blocks(lambda n: n))
    image = 4 * 2 * 4 * 8 * 8
    assert forward.net[ASKED] == 6 * image + 3 * 2 * 4 * 4 + 4 * (2 * 4 + 2 * 3)
    assert (forward.net + backward.net)[ASKED] == 0
    assert backward.net[KEPT] == 4 * PARAMETERS


def test_what_is_always_there() -> None:
    """Parameters and momentum; images, labels, statistics and counters; DDP's copies of gradients."""
    result = _peak(tiny(replicas=2))
    assert result.parts_bytes[Part.PARAMETERS] == result.parts_bytes[Part.OPTIMIZER_STATE] == 4 * PARAMETERS
    assert result.parts_bytes[Part.INPUTS] == 4 * 2 * 3 * 8 * 8 + 2 * 8 + 3 * (4 + 4) * 4 + 3 * 8
    assert result.buckets_bytes == 2048  # 1740 bytes in blocks of 512
    assert _peak(tiny()).buckets_bytes == 0


@pytest.mark.parametrize("optimizer", list(NetworkOptimizer))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_all_is_let_go_at_the_end(optimizer: NetworkOptimizer, dtype: str) -> None:
    """`planned_peak` asserts it."""
    plan = shipped("resnet18", replicas=2, optimizer=optimizer, dtype=dtype)
    assert _peak(plan).peak_bytes > 3 * 4 * 11_689_512


def test_memory_grows_with_the_batch_and_falls_with_the_dtype() -> None:
    one, two = (_peak(shipped("resnet50", batch=n)).parts_bytes[Part.ACTIVATIONS] for n in (32, 64))
    assert two == pytest.approx(2 * one, rel=1e-3)
    half = _peak(shipped("resnet50", batch=32, dtype="float16")).parts_bytes[Part.ACTIVATIONS]
    assert 0.5 < half / one < 0.6  # and copies of parameters
