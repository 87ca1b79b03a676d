"""Buckets of gradients with those of a table of positions, which has a row per place of the sequence.

all_reduce [231936]   ->   all_reduce [236032]      64 rows of 64 more: the bucket that is sent last

DDP fills buckets from the last parameters to the first (Li et al. 2020, "PyTorch Distributed"), and tables of positions
are among the first of a model.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, Phase, Relation
from gnnperf.generate import each, parse, tensors, text
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.edit import Edited, unedited
from gnnperf.whatif.sequence_sizes import Sequence

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
    """Shapes with the buckets resized, and [num_nodes] bool which ones: sizes [n] alone, as no parameter has them."""
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
