"""Which tensors a layer and the ends of a transformer take and make, forward and backward.

What is alive between a layer's forward and its backward pass is what Korthikanti et al. 2022 (arXiv 2205.05198) count
in section 4, with s tokens, b samples, a heads, h hidden, t tensor ranks, in bytes of 2-byte activations:

    nothing recomputed    sbh (10 + 24/t + 5as/(ht))      34 + 5as/h on one rank
    sequence parallel     sbh (34/t + 5as/(ht))           section 4.2.2
    selective             sbh (10 + 24/t)
    full                  2sbh

On top of it are the statistics of layer norms (8 sb per norm), which they leave out. Python's names hold nothing
beyond the last use; a stage's output goes when it is sent (ibid., appendix B).
"""

from __future__ import annotations

from gnnperf.generate.transformer.ends import embedding_backward, embedding_forward, head_backward, head_forward
from gnnperf.generate.transformer.items import uses_of
from gnnperf.generate.transformer.layer import layer_backward, layer_forward
from gnnperf.generate.transformer.plan import Recompute, TransformerPlan
from gnnperf.generate.transformer.sizes import sizes
from gnnperf.generate.uses import Pair


def layer_uses(plan: TransformerPlan, layer: int = 0, *, recomputed: bool | None = None) -> Pair:
    """One layer of the model.

    Args:
        plan: see there.
        layer: from 0; it decides whether there are experts.
        recomputed: whether all of it is computed again before its backward pass; None: as in the plan, for all layers.
    """
    again = plan.schedule.recompute is Recompute.FULL if recomputed is None else recomputed
    forward, backward = uses_of(layer_forward(plan, layer)), uses_of(layer_backward(plan, layer))
    stream = sizes(plan).stream.num_bytes
    return Pair(forward, (*(forward if again else ()), *backward), {"x": stream, "dy": stream})


def embedding_uses(plan: TransformerPlan) -> Pair:
    """Before the first layer."""
    forward, backward = uses_of(embedding_forward(plan)), uses_of(embedding_backward(plan))
    return Pair(forward, backward, {"dy": sizes(plan).stream.num_bytes})


def head_uses(plan: TransformerPlan) -> Pair:
    """After the last layer."""
    return Pair(uses_of(head_forward(plan)), uses_of(head_backward(plan)), {"x": sizes(plan).stream.num_bytes})
