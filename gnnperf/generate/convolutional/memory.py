"""What a rank of a planned residual network holds."""

from __future__ import annotations

from gnnperf.generate.convolutional.layers import FLOAT
from gnnperf.generate.convolutional.network import COLORS, Passes, network_passes
from gnnperf.generate.convolutional.plan import ConvolutionalPlan, Gradients
from gnnperf.generate.convolutional.program import buckets, optimizer, uses
from gnnperf.generate.uses import Pair, RankTensors, Stretch
from gnnperf.graph import DTYPE_BYTES

FLOAT_BYTES, COUNTER_BYTES, LABEL_BYTES = DTYPE_BYTES[FLOAT], DTYPE_BYTES["int64"], DTYPE_BYTES["int64"]
ASSUMED = "Python's names hold no tensor beyond its last use, and a loader holds no batch besides the one of the step"


def replica_tensors(plan: ConvolutionalPlan) -> tuple[RankTensors, ...]:
    """The memory of rank 0, which all ranks have: parameters, momentum, DDP's buckets, and the passes."""
    passes = network_passes(plan)
    sizes = tuple(n * FLOAT_BYTES for n in passes.parameters)
    pair = Pair(uses(passes.forward), uses(passes.backward))
    stretches = (Stretch(pair, False), Stretch(pair, True), Stretch(Pair(uses(optimizer(plan, passes)), ()), False))
    copies = buckets(plan, passes) if plan.replicas.data > 1 else ()
    return (
        RankTensors(
            0, sizes, sizes if plan.training.gradients is Gradients.ZEROED else (), sizes, stretches,
            _inputs(plan, passes), tuple(sum(bucket) * FLOAT_BYTES for bucket in copies), (ASSUMED,),
        ),
    )  # fmt: skip


def _inputs(plan: ConvolutionalPlan, passes: Passes) -> tuple[int, ...]:
    """Images, labels, and the statistics and counters of norms."""
    batch, edge = plan.training.batch, plan.network.image
    buffers = [size for n in passes.norm_channels for size in (n * FLOAT_BYTES, n * FLOAT_BYTES, COUNTER_BYTES)]
    return (batch * COLORS * edge * edge * FLOAT_BYTES, batch * LABEL_BYTES, *buffers)
