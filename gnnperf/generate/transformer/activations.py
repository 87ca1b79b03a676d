"""What layers keep for their backward pass, and where it lies in between."""

from collections.abc import Iterator

from gnnperf.core import Phase
from gnnperf.generate.transformer.block import Activation, Attention
from gnnperf.generate.transformer.gradients import Around, Items, Unit, UnitKind, Visit
from gnnperf.generate.transformer.items import Await, Item, Lane, Record, copy_in, copy_out, fetching, stored
from gnnperf.generate.transformer.plan import Recompute, TransformerPlan
from gnnperf.generate.transformer.sizes import routed, sizes
from gnnperf.graph import DTYPE_BYTES

# What a layer keeps for its backward pass, by the tensors that its gradients need.
#
# GPT's layer of s positions, batch b, h hidden columns, a heads, t tensor ranks: s b h (10 + 24 / t) + 5 a s^2 b / t
# bytes in 16 bits, the 10 over t as well with sequence parallelism (Korthikanti et al. 2022, equations 2 and 4); 2 s
# b h where all of it is computed again.


def retained_bytes(plan: TransformerPlan, layer: int) -> float:
    """Of a layer of the model on one rank, for one micro-batch, as the plan recomputes it."""
    if recomputed(plan, layer):
        return float(sizes(plan).stream.num_bytes)
    s, experts = sizes(plan), plan.has_experts(layer)
    item, stream = DTYPE_BYTES[s.dtype], float(s.stream.num_bytes)
    masks = 2.0 * s.stream.numel if plan.block.dropout else 0.0
    # inputs of two norms and two masks; input of the first product, queries, keys, values and context
    attention = 2.0 * stream + masks + (stream + s.tokens * (s.projected + s.shard) * item) + _score_bytes(plan)
    inner = 3 if plan.block.activation is Activation.SWIGLU else 2  # gate and up, or one; and their product
    if not experts:
        return attention + (stream + inner * s.tokens * s.width * item)
    r = routed(plan)
    weighed = r.sent * s.hidden * item  # for the gradients of the router's weights
    return attention + (stream + r.local * r.computed * (s.hidden + inner * r.width) * item + weighed)


def recomputed(plan: TransformerPlan, layer: int) -> bool:
    """Whether all of a layer is computed again before its backward pass."""
    limit = plan.schedule.recomputed_layers
    chosen = limit is None or layer % plan.layers_per_chunk < limit
    return plan.schedule.recompute is Recompute.FULL and chosen


def _score_bytes(plan: TransformerPlan) -> float:
    """Scores, or the logarithms of their sums."""
    s = sizes(plan)
    if plan.block.attention is Attention.FLASH:
        return float(s.batch_heads * s.sequence * DTYPE_BYTES["float32"])
    if plan.schedule.recompute is Recompute.SELECTIVE:
        return 0.0
    item = DTYPE_BYTES[s.dtype]
    return float(s.scores.numel * (2 * item + 1 if plan.block.dropout else item))  # softmax; dropout and its mask


# What layers keep, copied out behind their forward pass and fetched before their backward pass.
#
#     compute  |- layer 0 -|- layer 1 -|..waits for out 0..|- layer 2 -|    ...  |- back 2 -|- back 1 -|
#     out                  |== out 0 ==|== out 1 ==|
#     in                                                                         |== in 1 ==|== in 0 ==|
#
# A layer begins when what the layer before the last kept has left the device, so that at most two layers' activations
# lie there; backward, the layer before is fetched while one runs (TransformerEngine, cpu_offload.py: double buffers).

COMPUTED, LEFT, FETCHED, STARTED = "computed", "left the device", "fetched", "backward started"


class ActivationOffload(Around):
    """Activations on the host or on its drives between forward and backward."""

    def after_forward(self, at: Visit) -> Items:
        """Out; then compute waits for the one before, whose place is taken next."""
        size = self._retained(at.unit)
        if not size:
            return ()
        store = self.plan.offload.activations
        return (
            Record(Lane.COMPUTE, COMPUTED),
            Await(Lane.OUT, COMPUTED),
            *copy_out(store, size, self.plan.model.dtype, Phase.FORWARD),
            Await(Lane.COMPUTE, LEFT),  # of the layer before: this one's event is recorded below
            Record(Lane.OUT, LEFT),
            Record(stored(store), _stored(at, at.unit)),
        )

    def before_backward(self, at: Visit) -> Items:
        """The unit's own, fetched before; then the one of the unit before it."""
        result: list[Item] = []
        if at.place == len(at.units) - 1 and self._retained(at.unit):
            result += self._fetch(at, at.unit)  # no one came before who could have
        if self._retained(at.unit):
            result.append(Await(Lane.COMPUTE, FETCHED))
        if at.before is not None and self._retained(at.before):
            result += [Record(Lane.COMPUTE, STARTED), Await(fetching(self.plan.offload.activations), STARTED)]
            result += self._fetch(at, at.before)
        return result

    def _fetch(self, at: Visit, unit: Unit) -> Iterator[Item]:
        store = self.plan.offload.activations
        yield Await(fetching(store), _stored(at, unit))
        yield from copy_in(store, self._retained(unit), self.plan.model.dtype, Phase.BACKWARD)
        yield Record(Lane.IN, FETCHED)

    def _retained(self, unit: Unit) -> float:
        """Bytes; 0 of the ends, whose backward pass follows at once or needs token numbers only."""
        return retained_bytes(self.plan, unit.layer) if unit.kind is UnitKind.LAYER else 0.0


def _stored(at: Visit, unit: Unit) -> str:
    return f"{LEFT}: micro-batch {at.micro_batch}, layer {unit.layer}"
