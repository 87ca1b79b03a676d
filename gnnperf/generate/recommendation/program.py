"""What one rank does in a step, item by item.

    indices to holders | look up | vectors begin ......... arrive |
                                 | bottom perceptron ------------ | interaction, top, loss, backward of both |
    gradients of vectors begin ......... arrive |
    | backward of the bottom perceptron ------- | update rows | optimizer of what is replicated

Lookups before the bottom perceptron, so that vectors travel beside it, and their gradients beside its backward pass
(Naumov et al. 2019, section 2.3; facebookresearch/dlrm, extend_distributed.py). Indices go to their holders within
the step, lengths first, for which the host waits (torchrec's KJTAllToAll without a pipeline). All collectives share one
stream, as of one process group.
"""

from __future__ import annotations

from collections.abc import Iterator

from gnnperf.core import Phase
from gnnperf.generate.recommendation.items import Await, Item, Transfer, equal, exchange
from gnnperf.generate.recommendation.lookups import dense_gradient, input_items, look_up, update_rows
from gnnperf.generate.recommendation.messages import even_bytes, summed_width
from gnnperf.generate.recommendation.parts import Travel, here
from gnnperf.generate.recommendation.plan import FLOAT_BYTES
from gnnperf.generate.recommendation.shared import Shared
from gnnperf.generate.transformer.items import fused
from gnnperf.graph import Tensor

F, B = Phase.FORWARD, Phase.BACKWARD
VECTORS, SUMS = "vectors", "sums"
GRADIENTS, SUM_GRADIENTS, TABLE_GRADIENTS = "gradients of vectors", "gradients of sums", "gradients of tables"


def rank_program(shared: Shared, rank: int) -> tuple[Item, ...]:
    """All items of a step."""
    travels = tuple(_begun(shared, rank))
    back = tuple(_gradients_begun(shared, rank))
    return (
        *input_items(shared, rank),
        *(item for travel in Travel for item in look_up(shared, rank, travel)),
        *travels,
        *shared.bottom,
        *_awaited(travels),
        *_added_up(shared),
        *shared.rest,
        *back,
        *shared.bottom_backward,
        *_awaited(back),
        *(item for travel in Travel for item in update_rows(shared, rank, travel)),
        *_replicated_gradients(shared, rank),
        *shared.update,
    )


def _awaited(begun: tuple[Transfer, ...]) -> Iterator[Item]:
    if begun:
        yield Await(tuple(transfer.name for transfer in begun))


def _begun(shared: Shared, rank: int) -> Iterator[Transfer]:
    plan, summed = shared.plan, summed_width(shared.parts)
    if shared.elements.any():
        yield exchange(VECTORS, even_bytes(shared.elements, plan.samples, FLOAT_BYTES), rank, F)
    if summed:
        yield equal(SUMS, "reduce_scatter", plan.batch * summed * FLOAT_BYTES, F)


def _gradients_begun(shared: Shared, rank: int) -> Iterator[Transfer]:
    plan, summed = shared.plan, summed_width(shared.parts)
    if shared.elements.any():
        yield exchange(GRADIENTS, even_bytes(shared.elements, plan.samples, FLOAT_BYTES), rank, B)
    if summed:
        yield equal(SUM_GRADIENTS, "all_gather", plan.samples * summed * FLOAT_BYTES, B)


def _added_up(shared: Shared) -> Iterator[Item]:
    """Partial sums of rows that lie on a part of the ranks."""
    width, samples = sum(p.dim * (p.added_up + 1) for p in shared.parts if p.added_up > 1), shared.plan.samples
    if width:
        yield fused("sum_of_parts", F, Tensor((samples, width), "float32"))


def _replicated_gradients(shared: Shared, rank: int) -> Iterator[Item]:
    """Dense gradients of replicated tables, summed over ranks in one bucket; the optimizer waits for all sums."""
    plan = shared.plan
    held = here(shared.parts, rank, Travel.STAYS) if plan.ranks > 1 else ()
    for part in held:
        yield dense_gradient(part, plan)
    if held:
        moved = sum(float(part.rows * part.dim * FLOAT_BYTES) for part in held)
        yield equal(TABLE_GRADIENTS, "all_reduce", moved, B)
    names = [i.name for i in (*shared.rest, *shared.bottom_backward) if isinstance(i, Transfer)]
    if names or held:
        yield Await((*names, *((TABLE_GRADIENTS,) if held else ())))
