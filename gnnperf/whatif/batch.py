"""The same program with another batch on every rank.

before   embedding [8,64]    linear [512,128] x [384,128]    all_reduce of gradients      alltoall [4,512,4]
after    embedding [16,64]   linear [1024,128] x [384,128]   the same message             alltoall [4,1024,4]

Shapes, FLOPs, bytes and messages change; latencies are the predictor's.
"""

from collections import Counter
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from gnnperf.core import NodeType, Phase, Relation, require
from gnnperf.generate import Argument, parse, tensors
from gnnperf.graph import DTYPE_BYTES, ExecutionGraph
from gnnperf.whatif import edit
from gnnperf.whatif.batch_shapes import Batch, all_shapes, check_whole, find_batch, scale_call
from gnnperf.whatif.costs import NAMED_OPS, Changed, Cost, DistinctCall, Doubts, change_calls, listed, with_shapes

OF_PARAMETERS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")  # where the message is flat
LAUNCH_US = 10.0  # kernels of unknown shapes that take at most so long are bound by their launch
UNSHAPED = "kernels and copies without shapes ({:,}, {:.3g} ms): they are assumed to change as the rest of their family"
NO_SHAPES = ("no shapes were recorded: kernels and copies of forward and backward above {:g} us, and messages but "
             "those of parameters, are assumed to take {:g} times as long")  # fmt: skip
NO_NEW_OPS = ("whether another {} makes the program run other ops (another kernel, bucket, number of micro-batches): "
              "the ops stay")  # fmt: skip
BY_DATA = "sizes that data decide ({}): they are assumed to grow with the {}"


@dataclass(frozen=True)
class ScaleBatch:
    """Every rank's batch is larger or smaller by a factor."""

    factor: float  # new batch / old batch

    def __post_init__(self) -> None:
        require(self.factor > 0, "factor of the batch", self.factor, "above 0")

    def __call__(self, graph: ExecutionGraph) -> edit.Edited:
        """Apply the edit."""
        if self.factor == 1:
            return edit.unedited(graph)
        nodes = graph.nodes
        if graph.runs_on_gpu and nodes["input_dims"].isna().all():
            # Work and messages of data take so many times as long: no bound but arithmetic or bandwidth is known.
            works = _unshaped(graph) & (nodes["latency_us"] > LAUNCH_US).to_numpy()
            works |= edit.chosen(nodes, NodeType.COLLECTIVE) & ~nodes["collective"].isin(OF_PARAMETERS).to_numpy()
            unknown = (NO_SHAPES.format(LAUNCH_US, self.factor), NO_NEW_OPS.format("batch"))
            return edit.rewritten(graph, works, unknown, change=edit.latency_change(works, self.factor))
        batch = find_batch(graph)
        by_data = check_whole(batch, self.factor)
        doubts = Doubts("batch")
        changed = change_calls(nodes, lambda call: _scaled(call, batch, self.factor, doubts))
        return with_traffic(graph, changed, self.factor, doubts, by_data)


def _unshaped(graph: ExecutionGraph) -> np.ndarray:
    """[num_nodes] bool: device work of forward and backward of unknown shapes and cost."""
    nodes = graph.nodes
    unknown = nodes[["input_dims", "flops", "bytes"]].isna().all(axis=1) & (nodes["stream"] >= 0)
    of_data = nodes["phase"].isin([str(Phase.FORWARD), str(Phase.BACKWARD)])
    return edit.chosen(nodes, *edit.ON_DEVICE) & (unknown & of_data).to_numpy()


def _scaled(
    call: DistinctCall, batch: Batch, factor: float, doubts: Doubts
) -> tuple[tuple[Argument, ...], Cost] | None:
    """New shapes and cost of a call; None where nothing changes."""
    table = tensors(call.arguments[0]) if call.arguments else ()
    if call.is_sparse_update and table and call.recorded.flops / 2.0 / table[0][-1] in batch.sizes:
        return call.arguments, Cost(call.recorded.flops * factor, call.recorded.bytes * factor)
    new, is_alike = scale_call((call.name, call.phase, call.arguments), batch, factor)
    if new == call.arguments:
        doubts.without[call.name] += call.count * call.works_on_data(batch.parameters)
        return None
    cost = with_shapes(call.name, call.arguments, new, call.recorded, call.dtype, factor, call.num_siblings,
                       batch.elements)  # fmt: skip
    doubts.alike[call.name] += call.count * is_alike
    doubts.estimated[call.name] += call.count * cost.estimated
    return new, cost


def with_traffic(
    graph: ExecutionGraph, changed: Changed, factor: float, doubts: Doubts, by_data: tuple[int, ...]
) -> edit.Edited:
    """The graph with changed calls, and `factor` times the copies and messages that grow with them.

    `by_data`: sizes that data decide.
    """
    nodes, what = changed.nodes, doubts.dimension
    src, dst = edit.ends(graph, Relation.LAUNCHES)  # copies and memsets launched by calls whose shapes grow
    copies = np.isin(np.arange(graph.num_nodes), dst[changed.grown[src]]) & edit.is_type(graph, NodeType.MEMORY)
    sent, unclear = _messages(graph, changed.grown)
    unshaped = _unshaped(graph) & ~copies
    touched = changed.touched | copies | sent | unshaped
    sizes = ", ".join(map(str, by_data[:NAMED_OPS])) + (", ..." if len(by_data) > NAMED_OPS else "")
    unknown = (NO_NEW_OPS.format(what), *([BY_DATA.format(sizes, what)] if by_data else []), *doubts.sentences())
    if unshaped.any():
        unknown += (UNSHAPED.format(int(unshaped.sum()), nodes["latency_us"][unshaped].sum() / 1e3),)
    return edit.rewritten(
        replace(graph, nodes=nodes),
        touched,
        (*unknown, *unclear),
        predicted=touched & ~edit.is_type(graph, NodeType.HOST),
        bytes=nodes["bytes"].where(~copies, nodes["bytes"] * factor),
        message_bytes=nodes["message_bytes"].where(~sent, nodes["message_bytes"] * factor),
    )


def _messages(graph: ExecutionGraph, grown: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """[num_nodes] bool: parts and transfers of messages that grow; and the kinds that are unclear."""
    nodes, (src, dst) = graph.nodes, edit.ends(graph, Relation.LAUNCHES)
    part = edit.is_type(graph, NodeType.COMM)[dst]
    src, dst = src[part], dst[part]
    # Whether all tensors of a call have one dimension, as buckets of gradients and flattened parameters have.
    flat = np.array([not isinstance(dims, str) or all(len(shape) == 1 for shape in all_shapes(parse(dims)))
                     for dims in nodes["input_dims"].iloc[src].astype(object)], dtype=bool)  # fmt: skip
    kinds = nodes["collective"].astype(str).to_numpy()
    of_parameters = flat & np.isin(kinds[dst], OF_PARAMETERS)
    unshaped = nodes["input_dims"].isna().to_numpy()[src]  # as in plans: then the size of the message shows
    item = nodes["dtype"].astype(object).map(DTYPE_BYTES).to_numpy(float)[dst]
    elements = nodes["message_bytes"].to_numpy()[dst] / item
    # Elements of the tensors of two dimensions and more that grow; a collective of data sends one of them.
    texts = nodes["input_dims"][grown].dropna().astype(str).unique()
    sizes = {prod(shape) for dims in texts for shape in all_shapes(parse(dims)) if len(shape) > 1}
    forward = (nodes["phase"] == Phase.FORWARD).to_numpy()[dst]  # no gradient is summed up there
    by_size = (unshaped | (flat & forward)) & np.isin(elements, list(sizes))
    by_size |= flat & np.isin(elements, elements[by_size & forward])  # and its gradient in the backward
    unclear = Counter(kinds[dst[~grown[src] & ~by_size & ~np.isin(kinds[dst], OF_PARAMETERS)]].tolist())
    result = edit.of_transfers(graph, dst[(grown[src] & ~of_parameters) | by_size])
    sentence = f"whether messages of {listed(unclear)} grow: the shapes do not tell, they stay"
    return result & nodes["message_bytes"].notna().to_numpy(), (sentence,) if unclear else ()
