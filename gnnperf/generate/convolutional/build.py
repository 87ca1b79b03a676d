"""ConvolutionalPlan -> ExecutionGraph: one replica, which stands for all of them."""

from collections.abc import Iterator, Sequence

from gnnperf.core import Phase
from gnnperf.generate.convolutional.layers import FLOAT, B, F, Lines
from gnnperf.generate.convolutional.network import COLORS, Passes, network_passes
from gnnperf.generate.convolutional.plan import MEBIBYTE, ConvolutionalPlan, NetworkOptimizer
from gnnperf.generate.transformer.build import planned_graph
from gnnperf.generate.transformer.items import Group, Line, Placed, Transfer, collective, items_of, op, used, uses_of
from gnnperf.generate.transformer.memory import one_per_stage
from gnnperf.generate.transformer.plan import Parallelism
from gnnperf.generate.transformer.rank_nodes import rank_nodes
from gnnperf.generate.uses import Pair, RankTensors, Stretch, Use
from gnnperf.graph import DTYPE_BYTES, ExecutionGraph, Tensor

INPUTS = "Batches are taken to be on the device: loading and copying them is not part of the prediction."


def build_network(plan: ConvolutionalPlan) -> ExecutionGraph:
    """The graph of one step; every latency, start and lag is NaN. Collectives know the size of their group."""
    passes = network_passes(plan)
    lines = (*passes.forward, *passes.backward)
    if plan.replicas.data > 1:
        lines = (*_buffers(passes), *passes.forward, *_reducing(plan, passes))
    program = [Placed(item) for item in items_of((*lines, *optimizer(plan, passes)))]
    ways = Parallelism(data=plan.replicas.data)
    return planned_graph(plan.name, {0: rank_nodes(program, ways)}, one_per_stage(ways), ways, plan, (INPUTS,))


# What a rank of a planned residual network holds.

FLOAT_BYTES, COUNTER_BYTES, LABEL_BYTES = DTYPE_BYTES[FLOAT], DTYPE_BYTES["int64"], DTYPE_BYTES["int64"]
ASSUMED = "Python's names hold no tensor beyond its last use, and a loader holds no batch besides the one of the step"


def replica_tensors(plan: ConvolutionalPlan) -> tuple[RankTensors, ...]:
    """The memory of rank 0, which all ranks have: parameters, momentum, DDP's buckets, and the passes."""
    passes = network_passes(plan)
    sizes = tuple(n * FLOAT_BYTES for n in passes.parameters)
    pair = Pair(uses_of(passes.forward), uses_of(passes.backward))
    stretches = (Stretch(pair, False), Stretch(pair, True), Stretch(Pair(uses_of(optimizer(plan, passes)), ()), False))
    copies = buckets(plan, passes) if plan.replicas.data > 1 else ()
    copies_bytes = tuple(sum(bucket) * FLOAT_BYTES for bucket in copies)
    batch, edge = plan.training.batch, plan.network.image
    # images, labels, and the statistics and counters of norms
    buffers = [size for n in passes.norm_channels for size in (n * FLOAT_BYTES, n * FLOAT_BYTES, COUNTER_BYTES)]
    inputs = (batch * COLORS * edge * edge * FLOAT_BYTES, batch * LABEL_BYTES, *buffers)
    return (RankTensors(0, sizes, (), sizes, stretches, inputs, copies_bytes, (ASSUMED,)),)


# A rank's step: DDP's buffers, passes, buckets of gradients on their way while the backward pass goes on, SGD.

O = Phase.OPTIMIZER  # noqa: E741
FIRST_BUCKET_BYTES = MEBIBYTE  # torch/nn/parallel/distributed.py: kDefaultFirstBucketBytes


def _final_elements(line: Line) -> tuple[int, ...]:
    """Of the parameters whose gradients are final after a line."""
    return tuple(n // FLOAT_BYTES for n in line.gradients_bytes) if isinstance(line, Use) else ()


def buckets(plan: ConvolutionalPlan, passes: Passes) -> tuple[tuple[int, ...], ...]:
    """Elements of the parameters of each bucket, in the order in which their gradients come.

    A bucket is closed by the gradient that fills it; the first one is small, so that something is under way early
    (torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size).
    """
    result: list[list[int]] = [[]]
    for elements in (n for line in passes.backward for n in _final_elements(line)):
        limit = min(FIRST_BUCKET_BYTES, plan.training.bucket_bytes) if len(result) == 1 else plan.training.bucket_bytes
        if sum(result[-1]) * FLOAT_BYTES >= limit:
            result.append([])
        result[-1].append(elements)
    return tuple(tuple(bucket) for bucket in result)


def _buffers(passes: Passes) -> Iterator[Line]:
    """Statistics of norms, then their counters, as rank 0 has them: before every forward pass of DDP.

    torch/nn/parallel/distributed.py, _sync_buffers: one flat message per dtype, copied back buffer by buffer.
    """
    counters = [(1,)] * len(passes.norm_channels)
    statistics = [(channels,) for channels in passes.norm_channels for _ in range(2)]
    for shapes, dtype in ((statistics, FLOAT), (counters, "int64")):
        flat = Tensor((sum(n for (n,) in shapes),), dtype)
        yield from used(op("aten::cat", F, shapes, None))
        yield Transfer("broadcast", Group.DATA, float(flat.num_bytes), dtype, F, awaited=True)
        for shape in shapes:
            yield from used(op("aten::copy_", F, Tensor(shape, dtype), Tensor(shape, dtype)))


def _reducing(plan: ConvolutionalPlan, passes: Passes) -> Iterator[Line]:
    """The backward pass with gradients divided into buckets; at its end they are copied back."""
    sizes = buckets(plan, passes)
    left, place = len(sizes[0]), 0
    for line in passes.backward:
        yield line
        for elements in _final_elements(line):
            yield from used(op("aten::mul", B, _flat(elements), None))  # by 1 / replicas, into the bucket
            left -= 1
            if left == 0:
                last = place == len(sizes) - 1
                yield collective("all_reduce", Group.DATA, _flat(sum(sizes[place])), B, awaited=last)
                place += 1
                left = len(sizes[place]) if not last else 0
    for elements in (n for bucket in sizes for n in bucket):
        yield from used(op("aten::copy_", B, _flat(elements), _flat(elements)))


def _flat(elements: int) -> Tensor:
    return Tensor((elements,), FLOAT)


def optimizer(plan: ConvolutionalPlan, passes: Passes) -> Lines:
    """SGD with momentum (torch/optim/sgd.py)."""
    lists: Sequence[tuple[int, ...]] = [(elements,) for elements in passes.parameters]
    if plan.training.optimizer is NetworkOptimizer.FUSED:
        return used(op("aten::_fused_sgd_", O, lists, lists, lists))
    add, decay = op("aten::_foreach_add_", O, lists, lists), plan.training.weight_decay
    decayed = used(op("aten::_foreach_add", O, lists, lists), decayed=_flat(sum(passes.parameters))) if decay else ()
    return (*decayed, *used(op("aten::_foreach_mul_", O, lists)), *used(add, "decayed" if decay else ""), *used(add))
