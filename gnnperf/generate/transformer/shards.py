"""What tensor-parallel ranks exchange around a pair of products.

f goes in, g comes out (Shoeybi et al. 2019, figure 4; with sequence parallelism Korthikanti et al. 2022, figure 5):

                       forward                      backward
    f  tensor          nothing                      all-reduce of the input's gradient
       sequence        all-gather of the input      it is gathered once more beside the input gradient's product, whose
                                                    result is reduce-scattered beside the weight gradient's
    g  tensor          all-reduce of the result     nothing
       sequence        reduce-scatter of it         all-gather of its gradient

The overlap of f backward is that of Megatron-LM's LinearWithGradAccumulationAndAsyncCommunication.
"""

from __future__ import annotations

from collections.abc import Sequence

from gnnperf.core import Phase
from gnnperf.generate.transformer.items import (
    Await,
    Group,
    Item,
    Lane,
    Record,
    all_gather,
    all_reduce,
    op,
    reduce_scatter,
)
from gnnperf.generate.transformer.mlp import B, input_gradient, product_backward, weight_gradient
from gnnperf.generate.transformer.plan import TransformerPlan
from gnnperf.generate.transformer.sizes import sizes

GATHERED_AGAIN, SCATTERED = "input gathered again", "input gradient scattered"


def into_products(plan: TransformerPlan, phase: Phase) -> tuple[Item, ...]:
    """f: what the ranks hold of the sequence, on all of them."""
    return (all_gather(Group.TENSOR, sizes(plan).stream, phase),) if plan.splits_sequence else ()


def out_of_products(plan: TransformerPlan, phase: Phase) -> tuple[Item, ...]:
    """g: the sum over ranks, or each rank's part of it."""
    x = sizes(plan).x
    if plan.splits_sequence:
        return (reduce_scatter(Group.TENSOR, x, phase),)
    return (all_reduce(Group.TENSOR, x, phase),) if plan.parallelism.tensor > 1 else ()


def out_of_products_backward(plan: TransformerPlan) -> tuple[Item, ...]:
    """g backward."""
    return (all_gather(Group.TENSOR, sizes(plan).stream, B),) if plan.splits_sequence else ()


def first_product_backward(
    plan: TransformerPlan, depth: int, columns: Sequence[int], after: tuple[Item, ...]
) -> tuple[Item, ...]:
    """Gradients of the products behind f, and f backward.

    Args:
        plan: the configuration.
        depth: columns of their input.
        columns: of the result of each.
        after: more of their gradients.
    """
    s = sizes(plan)
    added = op("aten::add", B, s.x, s.x)  # their input's gradients
    if not plan.splits_sequence:
        summed = (all_reduce(Group.TENSOR, s.x, B),) if plan.parallelism.tensor > 1 else ()
        both = [(*product_backward(s, s.tokens, depth, c), *((added,) if i else ())) for i, c in enumerate(columns)]
        return (*(item for each in both for item in each), *after, *summed)
    inputs = [(*input_gradient(s, s.tokens, depth, c), *((added,) if i else ())) for i, c in enumerate(columns)]
    return (
        all_gather(Group.TENSOR, s.stream, B, awaited=False),
        Record(Lane.TENSOR, GATHERED_AGAIN),
        *(item for each in inputs for item in each),
        reduce_scatter(Group.TENSOR, s.x, B, awaited=False),
        Record(Lane.TENSOR, SCATTERED),
        Await(Lane.COMPUTE, GATHERED_AGAIN),
        *(item for c in columns for item in weight_gradient(s, s.tokens, depth, c)),
        *after,
        Await(Lane.COMPUTE, SCATTERED),
    )


def around(plan: TransformerPlan) -> Item:
    """The gradient that went around a layer's half, added."""
    s = sizes(plan)
    return op("aten::add", B, s.stream, s.stream)
