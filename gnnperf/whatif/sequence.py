"""The same program with sequences of another length.

before   embedding [8,64]     linear [512,128] x [384,128]    attention [8,4,64,32]    all_reduce of gradients
after    embedding [8,128]    linear [1024,128] x [384,128]   attention [8,4,128,32]   the same, and its positions'

Tokens grow with the length, attention with its square. Shapes, FLOPs, bytes and messages change; latencies are the
predictor's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from math import isnan, prod

import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType, Phase, Relation, require
from gnnperf.generate import Argument, each, parse, tensors, text
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.batch import NO_WORK, copied, listed, messages, sizes_text
from gnnperf.whatif.batch_sizes import WHOLE
from gnnperf.whatif.distinct_calls import DistinctCall, change_calls
from gnnperf.whatif.edit import Edited, unedited
from gnnperf.whatif.recost import Cost, formula_cost, with_shapes
from gnnperf.whatif.sequence_shapes import stretch_call
from gnnperf.whatif.sequence_sizes import Sequence, find_sequence, is_attention, length_place

# Buckets of gradients with those of a table of positions, which has a row per place of the sequence.
#
# all_reduce [231936]   ->   all_reduce [236032]      64 rows of 64 more: the bucket that is sent last
#
# DDP fills buckets from the last parameters to the first (Li et al. 2020, "PyTorch Distributed"), and tables of
# positions are among the first of a model.

BUCKET = "which bucket holds the gradients of the tables of positions: taken for the last one of a backward"
SHARDED = ("what flat buffers of parameters, gathered or scattered, become with longer tables of positions ({} values "
           "more): they stay")  # fmt: skip
FLOAT_BYTES = 4.0
SENDS_GRADIENTS = "all_reduce"


def with_position_gradients(graph: ExecutionGraph, sequence: Sequence, new_length: int) -> Edited:
    """The graph with the last bucket of every backward as much larger as the tables of positions are."""
    more = sum(prod(shape) // sequence.length * (new_length - sequence.length) for shape in sequence.positions)
    last, part = _last_buckets(graph)
    if not more or not len(last):
        return replace(unedited(graph), unknown=(SHARDED.format(more),) if more else ())
    nodes = graph.nodes
    sizes = {tensors(parse(str(dims))[0])[0][0] for dims in nodes["input_dims"].astype(object).iloc[last]}
    sent = np.zeros(graph.num_nodes, dtype=bool)
    sent[part] = sent[part + 1] = True  # a part's exit comes right after it
    joins = (graph.edges["relation"] == Relation.JOINS).to_numpy()
    src, dst = graph.edges["src"].to_numpy()[joins], graph.edges["dst"].to_numpy()[joins]
    sent[dst[sent[src]]] = True
    dims, flat = _resized(nodes, sizes, more)
    table = nodes.assign(
        input_dims=dims,
        message_bytes=nodes["message_bytes"].where(~sent, nodes["message_bytes"] + FLOAT_BYTES * more),
        latency_us=nodes["latency_us"].mask(sent),
    )
    return Edited(replace(graph, nodes=table), sent | flat, np.arange(graph.num_nodes), (BUCKET,))


def _last_buckets(graph: ExecutionGraph) -> tuple[np.ndarray, np.ndarray]:
    """(issuing host node, its part) [n]: of each rank and step the last flat message of a backward."""
    nodes, edges = graph.nodes, graph.edges
    launches = (edges["relation"] == Relation.LAUNCHES).to_numpy()
    src, dst = edges["src"].to_numpy()[launches], edges["dst"].to_numpy()[launches]
    fits = (nodes["node_type"] == NodeType.COMM) & (nodes["collective"] == SENDS_GRADIENTS)
    fits &= nodes["phase"] == Phase.BACKWARD
    dims = nodes["input_dims"].astype(object).to_numpy()
    chosen = fits.to_numpy()[dst] & np.array([_is_bucket(dims[node]) for node in src], dtype=bool)
    src, dst = src[chosen], dst[chosen]
    table = pd.DataFrame({"rank": nodes["rank"].to_numpy()[src], "step": nodes["step"].to_numpy()[src], "src": src,
                          "dst": dst}).sort_values("src")  # fmt: skip
    last = table.groupby(["rank", "step"]).last()
    return last["src"].to_numpy(), last["dst"].to_numpy()


def _is_bucket(dims: object) -> bool:
    shapes = [shape for argument in parse(dims) for shape in tensors(argument)] if isinstance(dims, str) else []
    return len(shapes) == 1 and len(shapes[0]) == 1


def _resized(nodes: pd.DataFrame, sizes: set[int], more: int) -> tuple[pd.Categorical, np.ndarray]:
    """Shapes with the buckets resized, and [num_nodes] bool which ones: sizes [n] only, as no parameter has them."""
    column = nodes["input_dims"].astype("category").cat
    names = [str(name) for name in column.categories]
    renamed = {name: _larger(name, sizes, more) for name in names}
    code = column.codes.to_numpy()
    changed = np.array([renamed[name] != name for name in names] + [False])[code]
    values = np.array([*(renamed[name] for name in names), None], dtype=object)[code]
    return pd.Categorical(values), changed


def _larger(dims: str, sizes: set[int], more: int) -> str:
    arguments = parse(dims)
    new = tuple(each(a, lambda s: (s[0] + more,) if len(s) == 1 and s[0] in sizes else s) for a in arguments)
    return dims if new == arguments else text(new)


NO_NEW_OPS = "whether another length makes the program run other ops (another kernel, another bucket): the ops stay"
DOUBTFUL = "which dimension is the sequence in {}: shapes of data and of parameters, or of a head, are alike there"
ESTIMATED = "FLOPs and bytes of {}: no formula, they were taken to grow as their largest input"
WITHOUT = "the sequence in {}: no dimension has one of its sizes, they stay as they are"
BY_DATA = "sizes that data decide ({}): they were taken to grow with the length"
FOUND = "sequences of {} become {}; {} samples; tokens are sizes {}; tables of positions {}"
SAME_CAUSAL = 1e-6  # relative


@dataclass(frozen=True)
class ScaleSequence:
    """Every sequence is longer or shorter.

    Attributes:
        factor: new length / old length; None: `to` is given.
        to: the new length; None: `factor` is given.
        of: the old length, where a program has several; None: its only one.
    """

    factor: float | None = None
    to: int | None = None
    of: int | None = None

    def __post_init__(self) -> None:
        """Refuse both or none of factor and length."""
        both = (self.factor, self.to)
        require((self.factor is None) != (self.to is None), "factor, to of a sequence", both, "one of the two")
        value = self.factor if self.to is None else self.to
        require(value is not None and value > 0, "factor or to of a sequence", value, "above 0")

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Stretch shapes, costs and messages; recorded latencies of what changes become unknown.

        Raises:
            InputError: nothing tells which sizes are the length, or it does not stay whole.
        """
        sequence = find_sequence(graph, self.of)
        new_length = self._new_length(sequence.length)
        if new_length == sequence.length:
            return unedited(graph)
        notes = _Notes()
        changed = change_calls(graph.nodes, partial(_answer, sequence, new_length, notes))
        factor = new_length / sequence.length
        copies = copied(graph, changed.grown)
        sent, unclear = messages(graph, changed.grown)
        touched = changed.grown | copies | sent
        host = (graph.nodes["node_type"] == NodeType.HOST).to_numpy()
        nodes = changed.nodes.assign(
            bytes=changed.nodes["bytes"].where(~copies, changed.nodes["bytes"] * factor),
            message_bytes=changed.nodes["message_bytes"].where(~sent, changed.nodes["message_bytes"] * factor),
            latency_us=changed.nodes["latency_us"].mask(touched & ~host),
        )
        done = with_position_gradients(replace(graph, nodes=nodes), sequence, new_length)
        by_data = (BY_DATA.format(sizes_text(tuple(sorted(sequence.by_data)))),) if sequence.by_data else ()
        unknown = (NO_NEW_OPS, *by_data, *notes.unknown(), *unclear, *done.unknown)
        return Edited(done.graph, touched | done.touched, np.arange(graph.num_nodes), unknown,
                      result=(_result(sequence, new_length),))  # fmt: skip

    def _new_length(self, length: int) -> int:
        wanted = length * self.factor if self.factor is not None else float(self.to or 0)
        if abs(wanted - max(round(wanted), 1)) > WHOLE * wanted:
            raise InputError(f"{length} x {self.factor:g} is no whole length", where="factor of a sequence",
                             allowed=f"a factor that keeps {length} whole")  # fmt: skip
        return max(round(wanted), 1)


@dataclass
class _Notes:
    """What was in doubt, counted by op."""

    doubtful: Counter[str] = field(default_factory=Counter)
    estimated: Counter[str] = field(default_factory=Counter)
    without: Counter[str] = field(default_factory=Counter)

    def unknown(self) -> tuple[str, ...]:
        sentences = ((DOUBTFUL, self.doubtful), (ESTIMATED, self.estimated), (WITHOUT, self.without))
        return tuple(sentence.format(listed(counts)) for sentence, counts in sentences if counts)


def _answer(
    sequence: Sequence, new_length: int, notes: _Notes, call: DistinctCall
) -> tuple[tuple[Argument, ...], Cost, float] | None:
    """New shapes, cost and growth of a call; None where nothing changes."""
    new = stretch_call((call.name, call.phase, call.arguments), sequence, new_length)
    if new.doubtful:
        notes.doubtful[call.name] += call.count
    if new.arguments == call.arguments:
        if _is_work_on_data(call, sequence):
            notes.without[call.name] += call.count
        return None
    growth = _elements(new.arguments) / max(_elements(call.arguments), 1.0)
    if is_attention(call.name):
        return new.arguments, _attention(call, new.arguments, growth), growth
    cost = with_shapes(call.name, call.arguments, new.arguments, call.recorded, call.dtype, growth,
                       call.num_siblings, _results(call, sequence))  # fmt: skip
    if cost.estimated:
        notes.estimated[call.name] += call.count
    return new.arguments, cost, growth


def _is_work_on_data(call: DistinctCall, sequence: Sequence) -> bool:
    """Whether an op reads what is no parameter."""
    shapes = [shape for argument in call.arguments for shape in tensors(argument)]
    works = call.family not in NO_WORK and call.phase != Phase.OPTIMIZER
    return works and any(len(shape) > 1 and shape not in sequence.batch.parameters for shape in shapes)


def _results(call: DistinctCall, sequence: Sequence) -> frozenset[int]:
    """Elements that a sum over data keeps; what is summed over samples only has a row per place, and grows."""
    shapes = [shape for argument in call.arguments for shape in tensors(argument)]
    of_positions = frozenset(prod(shape) for shape in sequence.positions)
    return sequence.batch.elements - (of_positions if shapes and len(shapes[0]) > 2 else frozenset())


def _elements(arguments: tuple[Argument, ...]) -> float:
    """Of the largest input."""
    return float(max((prod(shape) for argument in arguments for shape in tensors(argument)), default=1))


def _attention(call: DistinctCall, new: tuple[Argument, ...], growth: float) -> Cost:
    """FLOPs of all pairs of places, or of those that a causal mask leaves: (n + 1) / 2n of them, as was recorded."""
    before, after = (formula_cost(call.name, shapes, call.dtype) for shapes in (call.arguments, new))
    share = call.recorded.flops * call.num_siblings / before.flops if before.flops > 0 else float("nan")
    old_length, new_length = (_length(call.name, shapes) for shapes in (call.arguments, new))
    causal = abs(share - (old_length + 1) / (2 * old_length)) < SAME_CAUSAL
    retained = (new_length + 1) / (2 * new_length) if causal else share
    moved = after.bytes / call.num_siblings + growth * (call.recorded.bytes - before.bytes / call.num_siblings)
    flops = retained * after.flops / call.num_siblings
    return Cost(flops, call.recorded.bytes * growth if isnan(moved) else moved)


def _length(name: str, arguments: tuple[Argument, ...]) -> int:
    """Of q, k and v: the last of the first tensors with heads."""
    shapes = [shape for argument in arguments for shape in tensors(argument) if len(shape) > 2]
    return shapes[0][length_place(name)]


def _result(sequence: Sequence, new_length: int) -> str:
    tables = ", ".join(str(list(shape)) for shape in sorted(sequence.positions)) or "none"
    samples = ", ".join(map(str, sorted(sequence.samples))) or "unknown"
    tokens = ", ".join(map(str, sorted(sequence.tokens))) or "none"
    return FOUND.format(sequence.length, new_length, samples, tokens, tables)
