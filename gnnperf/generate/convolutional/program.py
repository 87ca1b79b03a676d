"""A rank's step: DDP's buffers, passes, buckets of gradients on their way while the backward pass goes on, SGD."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gnnperf.core import Phase
from gnnperf.generate.convolutional.layers import FLOAT, B, F, Named, Step, step
from gnnperf.generate.convolutional.network import Passes
from gnnperf.generate.convolutional.plan import MEBIBYTE, ConvolutionalPlan, Gradients, NetworkOptimizer
from gnnperf.generate.transformer.items import Group, Item, Transfer, all_reduce, op
from gnnperf.generate.uses import Use
from gnnperf.graph import DTYPE_BYTES, Tensor

O = Phase.OPTIMIZER  # noqa: E741
FIRST_BUCKET_BYTES = MEBIBYTE  # torch/nn/parallel/distributed.py: kDefaultFirstBucketBytes


def step_program(plan: ConvolutionalPlan, passes: Passes) -> tuple[Step, ...]:
    """All steps of a rank."""
    if plan.replicas.data == 1:
        return (*_zeroed(plan, passes), *passes.forward, *passes.backward, *optimizer(plan, passes))
    backward = _reducing(plan, passes)
    return (*_zeroed(plan, passes), *_buffers(passes), *passes.forward, *backward, *optimizer(plan, passes))


def buckets(plan: ConvolutionalPlan, passes: Passes) -> tuple[tuple[int, ...], ...]:
    """Elements of the parameters of each bucket, in the order in which their gradients come.

    A bucket is closed by the gradient that fills it; the first one is small, so that something is under way early
    (torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size).
    """
    result: list[list[int]] = [[]]
    for elements in (n for each in passes.backward for n in each.parameters):
        limit = min(FIRST_BUCKET_BYTES, plan.training.bucket_bytes) if len(result) == 1 else plan.training.bucket_bytes
        if sum(result[-1]) * DTYPE_BYTES[FLOAT] >= limit:
            result.append([])
        result[-1].append(elements)
    return tuple(tuple(bucket) for bucket in result)


def _buffers(passes: Passes) -> Iterator[Step]:
    """Statistics of norms, then their counters, as rank 0 has them: before every forward pass of DDP.

    torch/nn/parallel/distributed.py, _sync_buffers: one flat message per dtype, copied back buffer by buffer.
    """
    counters = [(1,)] * len(passes.norm_channels)
    statistics = [(channels,) for channels in passes.norm_channels for _ in range(2)]
    for shapes, dtype in ((statistics, FLOAT), (counters, "int64")):
        flat = Tensor((sum(n for (n,) in shapes),), dtype)
        yield step(op("aten::cat", F, shapes, None))
        yield Step(Transfer("broadcast", Group.DATA, float(flat.num_bytes), dtype, F, awaited=True))
        yield from (step(op("aten::copy_", F, Tensor(shape, dtype), Tensor(shape, dtype))) for shape in shapes)


def _reducing(plan: ConvolutionalPlan, passes: Passes) -> Iterator[Step]:
    """The backward pass with gradients divided into buckets; at its end they are copied back."""
    sizes = buckets(plan, passes)
    left, place = len(sizes[0]), 0
    for each in passes.backward:
        yield each
        for elements in each.parameters:
            flat = Tensor((elements,), FLOAT)
            yield step(op("aten::mul", B, flat, None))  # by 1 / replicas, into the bucket
            left -= 1
            if left == 0:
                last = place == len(sizes) - 1
                yield Step(all_reduce(Group.DATA, Tensor((sum(sizes[place]),), FLOAT), B, awaited=last))
                place += 1
                left = len(sizes[place]) if not last else 0
    for elements in (n for bucket in sizes for n in bucket):
        flat = Tensor((elements,), FLOAT)
        yield step(op("aten::copy_", B, flat, flat))


def _zeroed(plan: ConvolutionalPlan, passes: Passes) -> tuple[Step, ...]:
    if plan.training.gradients is Gradients.RELEASED:
        return ()
    return tuple(step(op("aten::zero_", O, Tensor((elements,), FLOAT))) for elements in passes.parameters)


def optimizer(plan: ConvolutionalPlan, passes: Passes) -> tuple[Step, ...]:
    """SGD with momentum (torch/optim/sgd.py)."""
    if plan.training.optimizer is NetworkOptimizer.ONE_BY_ONE:
        return tuple(each for elements in passes.parameters for each in _one(plan, elements))
    lists = [(elements,) for elements in passes.parameters]
    if plan.training.optimizer is NetworkOptimizer.FUSED:
        return (step(op("aten::_fused_sgd_", O, lists, lists, lists)),)
    decayed = Named("decayed", Tensor((sum(passes.parameters),), FLOAT))
    decay = [step(op("aten::_foreach_add", O, lists, lists), (), decayed)] if plan.training.weight_decay else []
    with_decay = ("decayed",) if decay else ()
    return (
        *decay, step(op("aten::_foreach_mul_", O, lists)), step(op("aten::_foreach_add_", O, lists, lists), with_decay),
        step(op("aten::_foreach_add_", O, lists, lists)),
    )  # fmt: skip


def _one(plan: ConvolutionalPlan, elements: int) -> tuple[Step, ...]:
    flat = Tensor((elements,), FLOAT)
    decay = [step(op("aten::add", O, flat, flat), (), Named("decayed", flat))] if plan.training.weight_decay else []
    with_decay = ("decayed",) if decay else ()
    return (*decay, step(op("aten::mul_", O, flat, None)), step(op("aten::add_", O, flat, flat), with_decay),
            step(op("aten::add_", O, flat, flat)))  # fmt: skip


def items(steps: Sequence[Step]) -> tuple[Item, ...]:
    """What the graph is made of."""
    return tuple(each.item for each in steps)


def uses(steps: Sequence[Step]) -> tuple[Use, ...]:
    """What memory is made of."""
    return tuple(each.use for each in steps if each.use is not None)
