"""Small plans on a cluster of two machines, which the tests of the search share."""

from dataclasses import replace

from gnnperf.generate import Parallelism, Schedule, TransformerPlan
from gnnperf.generate.transformer.block import Experts
from gnnperf.generate.transformer.plan import Transformer
from gnnperf.hardware import ClusterSpec, default_cluster, load_device
from tests.generate.transformer import test_block

LLAMA = replace(test_block.LLAMA, width=512)
MODEL = Transformer(layers=4, hidden=512, heads=4, sequence=512, vocabulary=1000, dtype="bfloat16")


def base(*, experts: bool = False, batch: int = 8) -> TransformerPlan:
    """A plan of eight devices."""
    some = Experts(4) if experts else None
    return TransformerPlan("small", MODEL, Parallelism(data=8), Schedule(batch, 1), LLAMA, some)


def cluster(count: int = 8) -> ClusterSpec:
    """Machines of four A100."""
    assert count >= 1
    return replace(default_cluster(load_device("a100_sxm_80gb")), ranks_per_node=4)
