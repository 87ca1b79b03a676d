"""The same program with sequences of another length.

before   embedding [8,64]     linear [512,128] x [384,128]    attention [8,4,64,32]    all_reduce of gradients
after    embedding [8,128]    linear [1024,128] x [384,128]   attention [8,4,128,32]   the same, and its positions'

Tokens grow with the length, attention with its square. Shapes, FLOPs, bytes and messages change; latencies are the
predictor's.
"""

from dataclasses import dataclass, replace
from math import isnan, prod
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, Phase, Relation, require
from gnnperf.generate import Argument, each, parse, read_lengths, text
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.batch import with_traffic
from gnnperf.whatif.batch_shapes import all_shapes, whole
from gnnperf.whatif.costs import Cost, DistinctCall, Doubts, change_calls, formula_cost, with_shapes
from gnnperf.whatif.edit import Edited, ends, of_transfers, rewritten, unedited
from gnnperf.whatif.sequence_shapes import Sequence, find_sequence, is_attention, length_place, stretch_call

BUCKET = "which bucket holds the gradients of the tables of positions: assumed to be the last one of a backward"
SHARDED = ("what flat buffers of parameters, gathered or scattered, become with longer tables of positions ({} values "
           "more): they stay")  # fmt: skip
FLOAT_BYTES = 4.0
SENDS_GRADIENTS = "all_reduce"
MOST_STEPS = 64  # of different lengths; of more, as many at equal distances by rank
RESULT = "sequences of {} become {}; {} samples; tokens are sizes {}; tables of positions {}"
SAME_CAUSAL = 1e-6  # relative


@dataclass(frozen=True)
class ScaleSequence:
    """Every sequence is longer or shorter: by one number, or by another one in every step."""

    factor: float | None = None  # new length / old length
    to: int | None = None  # the new length
    of: int | None = None  # the old length, where a program has several; None: its only one
    lengths: str | None = None  # CSV file: the padded length of each of many steps; the edit takes the median one

    def __post_init__(self) -> None:
        ways = [name for name in ("factor", "to", "lengths") if getattr(self, name) is not None]
        require(len(ways) == 1, "settings of a sequence", " and ".join(ways) or "none", "one of factor, to, lengths")
        value = self.factor if self.to is None else self.to
        require(self.lengths is not None or (value is not None and value > 0), "factor or to of a sequence", value,
                "above 0")  # fmt: skip

    def of_steps(self) -> "tuple[ScaleSequence, ...]":
        """The edit of every step, by ascending length, where lengths differ; () of one length."""
        if self.lengths is None:
            return ()
        values = np.sort(read_lengths(Path(self.lengths)))
        if len(np.unique(values)) > MOST_STEPS:
            values = values[((np.arange(MOST_STEPS) + 0.5) / MOST_STEPS * len(values)).astype(np.int64)]
        return tuple(ScaleSequence(to=length, of=self.of) for length in values.tolist())

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Apply the edit."""
        if steps := self.of_steps():
            return steps[len(steps) // 2](graph)
        sequence = find_sequence(graph, self.of)
        new_length = self.to or whole(sequence.length, self.factor or 1.0, "length", "factor of a sequence")
        if new_length == sequence.length:
            return unedited(graph)
        doubts = Doubts("sequence")
        changed = change_calls(graph.nodes, lambda call: _stretched(call, sequence, new_length, doubts))
        by_data = tuple(sorted(sequence.by_data))
        first = with_traffic(graph, changed, new_length / sequence.length, doubts, by_data)
        done = _with_position_gradients(first.graph, sequence, new_length)
        return replace(done, touched=first.touched | done.touched, unknown=(*first.unknown, *done.unknown),
                       result=(_result(sequence, new_length),))  # fmt: skip


def _stretched(
    call: DistinctCall, sequence: Sequence, new_length: int, doubts: Doubts
) -> tuple[tuple[Argument, ...], Cost] | None:
    """New shapes and cost of a call; None where nothing changes."""
    new, is_alike = stretch_call((call.name, call.phase, call.arguments), sequence, new_length)
    doubts.alike[call.name] += call.count * is_alike
    if new == call.arguments:
        doubts.without[call.name] += call.count * call.works_on_data(sequence.batch.parameters)
        return None
    growth = _elements(new) / max(_elements(call.arguments), 1.0)
    if is_attention(call.name):
        return new, _attention(call, new, growth)
    cost = with_shapes(call.name, call.arguments, new, call.recorded, call.dtype, growth, call.num_siblings,
                       _results(call, sequence))  # fmt: skip
    doubts.estimated[call.name] += call.count * cost.estimated
    return new, cost


def _results(call: DistinctCall, sequence: Sequence) -> frozenset[int]:
    """Elements that a sum over data keeps; what is summed over samples only has a row per place, and grows."""
    shapes = all_shapes(call.arguments)
    of_positions = frozenset(prod(shape) for shape in sequence.positions)
    return sequence.batch.elements - (of_positions if shapes and len(shapes[0]) > 2 else frozenset())


def _elements(arguments: tuple[Argument, ...]) -> float:
    """Of the largest input."""
    return float(max(map(prod, all_shapes(arguments)), default=1))


def _attention(call: DistinctCall, new: tuple[Argument, ...], growth: float) -> Cost:
    """FLOPs of all pairs of places, or of those that a causal mask leaves: (n + 1) / 2n of them, as was recorded."""
    before, after = (formula_cost(call.name, shapes, call.dtype) for shapes in (call.arguments, new))
    share = call.recorded.flops * call.num_siblings / before.flops if before.flops > 0 else float("nan")
    # Of q, k and v, the length is a dimension of the first tensor with heads.
    old_length, new_length = (next(shape for shape in all_shapes(shapes) if len(shape) > 2)[length_place(call.name)]
                              for shapes in (call.arguments, new))  # fmt: skip
    causal = abs(share - (old_length + 1) / (2 * old_length)) < SAME_CAUSAL
    retained = (new_length + 1) / (2 * new_length) if causal else share
    moved = after.bytes / call.num_siblings + growth * (call.recorded.bytes - before.bytes / call.num_siblings)
    flops = retained * after.flops / call.num_siblings
    return Cost(flops, call.recorded.bytes * growth if isnan(moved) else moved)


def _result(sequence: Sequence, new_length: int) -> str:
    tables = ", ".join(str(list(shape)) for shape in sorted(sequence.positions)) or "none"
    samples = ", ".join(map(str, sorted(sequence.samples))) or "unknown"
    tokens = ", ".join(map(str, sorted(sequence.tokens))) or "none"
    return RESULT.format(sequence.length, new_length, samples, tokens, tables)


# Buckets of gradients with those of a table of positions, which has a row per place of the sequence.
#
# all_reduce [231936]   ->   all_reduce [236032]      64 rows of 64 more: the bucket that is sent last
#
# DDP fills buckets from the last parameters to the first (Li et al. 2020, "PyTorch Distributed"), and tables of
# positions are among the first of a model.


def _with_position_gradients(graph: ExecutionGraph, sequence: Sequence, new_length: int) -> Edited:
    """The graph with the last bucket of every backward as much larger as the tables of positions are."""
    more = sum(prod(shape) // sequence.length * (new_length - sequence.length) for shape in sequence.positions)
    last, part = _last_buckets(graph)
    if not more or not len(last):
        return replace(unedited(graph), unknown=(SHARDED.format(more),) if more else ())
    nodes = graph.nodes
    sizes = {all_shapes(parse(str(dims)))[0][0] for dims in nodes["input_dims"].astype(object).iloc[last]}
    sent = of_transfers(graph, part)
    texts = {dims: _larger(dims, sizes, more) for dims in nodes["input_dims"].dropna().astype(str).unique()}
    dims = nodes["input_dims"].astype(object)
    larger = dims.map(texts).where(dims.notna(), None)
    flat = (larger != dims).to_numpy() & dims.notna().to_numpy()
    message_bytes = nodes["message_bytes"].where(~sent, nodes["message_bytes"] + FLOAT_BYTES * more)
    return rewritten(graph, sent | flat, (BUCKET,), predicted=sent, input_dims=pd.Categorical(larger),
                     message_bytes=message_bytes)  # fmt: skip


def _last_buckets(graph: ExecutionGraph) -> tuple[np.ndarray, np.ndarray]:
    """(issuing host node, its part) [n]: of each rank and step the last flat message of a backward."""
    nodes, (src, dst) = graph.nodes, ends(graph, Relation.LAUNCHES)
    fits = (nodes["node_type"] == NodeType.COMM) & (nodes["collective"] == SENDS_GRADIENTS)
    fits &= nodes["phase"] == Phase.BACKWARD
    shapes = [all_shapes(parse(dims)) if isinstance(dims, str) else []
              for dims in nodes["input_dims"].astype(object).to_numpy()[src]]  # fmt: skip
    is_flat = [[len(shape) for shape in of_call] == [1] for of_call in shapes]
    bucket = fits.to_numpy()[dst] & np.array(is_flat, dtype=bool)
    src, dst = src[bucket], dst[bucket]
    table = pd.DataFrame({"rank": nodes["rank"].to_numpy()[src], "step": nodes["step"].to_numpy()[src], "src": src,
                          "dst": dst}).sort_values("src")  # fmt: skip
    last = table.groupby(["rank", "step"]).last()
    return last["src"].to_numpy(), last["dst"].to_numpy()


def _larger(dims: str, sizes: set[int], more: int) -> str:
    """Shapes with the buckets resized: sizes [n] only, as no parameter has them."""
    arguments = parse(dims)
    new = tuple(each(a, lambda s: (s[0] + more,) if len(s) == 1 and s[0] in sizes else s) for a in arguments)
    return dims if new == arguments else text(new)
