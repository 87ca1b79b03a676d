"""The same program with another batch on every rank.

before   embedding [8,64]    linear [512,128] x [384,128]    all_reduce of gradients      alltoall [4,512,4]
after    embedding [16,64]   linear [1024,128] x [384,128]   the same message             alltoall [4,1024,4]

Shapes, FLOPs, bytes and messages change; latencies are the predictor's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, OpFamily, Phase, Relation, require
from gnnperf.generate import parse, tensors, text
from gnnperf.graph import DTYPE_BYTES, ExecutionGraph
from gnnperf.whatif.batch_shapes import scale_call
from gnnperf.whatif.batch_sizes import Batch, check_whole, find_batch
from gnnperf.whatif.edit import Edited, unedited
from gnnperf.whatif.recost import Cost, with_shapes

KEYS = ["op_name", "phase", "input_dims", "dtype", "family", "flops", "bytes", "num_siblings"]
OF_PARAMETERS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")  # where the message is flat
NO_NEW_OPS = ("whether another batch makes the program run other ops (another kernel, more micro-batches, "
              "a last batch that is not full): the ops stay")  # fmt: skip
BY_DATA = "sizes that data decide, no multiples of the batch ({}): they were taken to grow with it"
NO_WORK = (OpFamily.VIEW, OpFamily.UNKNOWN, OpFamily.COLLECTIVE)
NAMED_OPS = 6


@dataclass(frozen=True)
class ScaleBatch:
    """Every rank's batch is larger or smaller by a factor.

    Attributes:
        factor: new batch / old batch.
    """

    factor: float

    def __post_init__(self) -> None:
        """Refuse what is no factor."""
        require(self.factor > 0, "factor of the batch", self.factor, "above 0")

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Scale shapes, costs and messages; recorded latencies of what changes become unknown.

        Raises:
            InputError: nothing tells which sizes are batch, or one of them does not stay whole.
        """
        if self.factor == 1:
            return unedited(graph)
        batch = find_batch(graph)
        by_data = check_whole(batch, self.factor)
        result = _rescaled(graph.nodes, batch, self.factor)
        copies = copied(graph, result.grown)
        sent, doubtful = messages(graph, result.grown)
        touched = result.changed | copies | sent
        nodes = result.nodes.assign(
            bytes=result.nodes["bytes"].where(~copies, result.nodes["bytes"] * self.factor),
            message_bytes=result.nodes["message_bytes"].where(~sent, result.nodes["message_bytes"] * self.factor),
            latency_us=result.nodes["latency_us"].mask(touched & ~_host(graph)),
        )
        unknown = (
            NO_NEW_OPS,
            *([BY_DATA.format(sizes_text(by_data))] if by_data else []),
            *result.unknown(),
            *doubtful,
        )
        return Edited(replace(graph, nodes=nodes), touched, np.arange(graph.num_nodes), unknown)


@dataclass
class _Rescaled:
    """Node table with scaled shapes and costs, and what was in doubt, counted by op."""

    nodes: pd.DataFrame
    grown: np.ndarray  # [num_nodes] bool: some dimension is batch
    changed: np.ndarray  # [num_nodes] bool
    doubtful: Counter[str] = field(default_factory=Counter)
    estimated: Counter[str] = field(default_factory=Counter)
    without: Counter[str] = field(default_factory=Counter)

    def unknown(self) -> tuple[str, ...]:
        sentences = (
            (self.doubtful, "which dimension is batch in {}: shapes of parameters and of data are alike there"),
            (self.estimated, "FLOPs and bytes of {}: no formula, they were taken to grow with the batch"),
            (self.without, "the batch in {}: no dimension has one of its sizes, they stay as they are"),
        )
        return tuple(sentence.format(listed(counts)) for counts, sentence in sentences if counts)


def _rescaled(nodes: pd.DataFrame, batch: Batch, factor: float) -> _Rescaled:
    keyed = nodes[KEYS].astype(object)
    group = keyed.assign(num_siblings=nodes["num_siblings"]).groupby(KEYS, sort=False, dropna=False).ngroup().to_numpy()
    _, first = np.unique(group, return_index=True)  # a row of each distinct call, by its number
    result = _Rescaled(nodes, np.zeros(len(nodes), bool), np.zeros(len(nodes), bool))
    counts = np.bincount(group)
    known = keyed.iloc[first].where(keyed.iloc[first].notna(), None)
    rows = [dict(zip(KEYS, row, strict=True)) for row in known.itertuples(index=False, name=None)]
    dims, flops, moved = (
        nodes[c].astype(object).iloc[first].to_numpy().copy() for c in ("input_dims", "flops", "bytes")
    )
    grows, changes = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
    for number, row in enumerate(rows):
        if row["input_dims"] is None:
            continue
        answer = _call(row, batch, factor, int(counts[number]), result)
        if answer is not None:
            grows[number], changes[number] = answer[0] != row["input_dims"], True
            dims[number], flops[number], moved[number] = answer
    result.grown, result.changed = grows[group], changes[group]
    result.nodes = nodes.assign(
        input_dims=pd.Categorical(dims[group]), flops=flops[group].astype(float), bytes=moved[group].astype(float)
    )
    return result


def _call(
    row: dict[str, object], batch: Batch, factor: float, count: int, notes: _Rescaled
) -> tuple[str, float, float] | None:
    """New dims, FLOPs and bytes of a call; None where nothing changes."""
    name, phase, old = str(row["op_name"]), str(row["phase"]), parse(str(row["input_dims"]))
    recorded = Cost(_number(row["flops"]), _number(row["bytes"]))
    if _sparse_update(row, batch, recorded):
        return str(row["input_dims"]), recorded.flops * factor, recorded.bytes * factor
    scaled = scale_call((name, phase, old), batch, factor)
    if scaled.arguments == old:
        shapes = [shape for argument in old for shape in tensors(argument)]
        works = row["family"] not in NO_WORK and phase != Phase.OPTIMIZER
        if works and any(len(shape) > 1 and shape not in batch.parameters for shape in shapes):
            notes.without[name] += count
        return None
    dtype = None if row["dtype"] is None else str(row["dtype"])
    new = with_shapes(name, old, scaled.arguments, recorded, dtype, factor,
                      int(str(row["num_siblings"])), batch.elements)  # fmt: skip
    if scaled.doubtful:
        notes.doubtful[name] += count
    if new.estimated:
        notes.estimated[name] += count
    return text(scaled.arguments), new.flops, new.bytes


def _number(value: object) -> float:
    return float("nan") if value is None else float(str(value))


def _sparse_update(row: dict[str, object], batch: Batch, recorded: Cost) -> bool:
    """A sparse gradient added to its table: two FLOPs per element of the rows looked up (graph.sparse_sums)."""
    table = tensors(parse(str(row["input_dims"]))[0])
    if row["family"] != OpFamily.EMBEDDING or row["phase"] != Phase.OPTIMIZER or not table:
        return False
    return recorded.flops / 2.0 / table[0][-1] in batch.sizes


def _host(graph: ExecutionGraph) -> np.ndarray:
    return (graph.nodes["node_type"] == NodeType.HOST).to_numpy()


def _launched(graph: ExecutionGraph) -> tuple[np.ndarray, np.ndarray]:
    launches = (graph.edges["relation"] == Relation.LAUNCHES).to_numpy()
    return graph.edges["src"].to_numpy()[launches], graph.edges["dst"].to_numpy()[launches]


def copied(graph: ExecutionGraph, grown: np.ndarray) -> np.ndarray:
    """[num_nodes] bool: copies and memsets launched by calls whose shapes grow."""
    src, dst = _launched(graph)
    result = np.zeros(graph.num_nodes, bool)
    result[dst[grown[src]]] = True
    return result & (graph.nodes["node_type"] == NodeType.MEMORY).to_numpy()


def messages(graph: ExecutionGraph, grown: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """[num_nodes] bool: parts and transfers of messages that grow; and the kinds of which no one can tell."""
    nodes, (src, dst) = graph.nodes, _launched(graph)
    part = (nodes["node_type"] == NodeType.COMM).to_numpy()
    src, dst = src[part[dst]], dst[part[dst]]
    flat = np.array([_is_flat(dims) for dims in nodes["input_dims"].iloc[src].astype(object)], dtype=bool)
    kinds = nodes["collective"].astype(str).to_numpy()
    of_parameters = flat & np.isin(kinds[dst], OF_PARAMETERS)
    unshaped = nodes["input_dims"].isna().to_numpy()[src]  # as in plans: then the size of the message tells
    by_size = unshaped & np.isin(_elements(nodes, dst), list(_grown_elements(nodes, grown)))
    arrives = dst[(grown[src] & ~of_parameters) | by_size]
    unclear = Counter(kinds[dst[~grown[src] & ~by_size & ~np.isin(kinds[dst], OF_PARAMETERS)]].tolist())
    result = np.zeros(len(nodes), bool)
    result[arrives] = True
    result[arrives + 1] = True  # a part's exit comes right after it
    joins = (graph.edges["relation"] == Relation.JOINS).to_numpy()
    begins, transfer = graph.edges["src"].to_numpy()[joins], graph.edges["dst"].to_numpy()[joins]
    result[transfer[result[begins]]] = True
    sentence = f"whether messages of {listed(unclear)} grow: the shapes do not tell, they stay"
    return result & nodes["message_bytes"].notna().to_numpy(), (sentence,) if unclear else ()


def _elements(nodes: pd.DataFrame, part: np.ndarray) -> np.ndarray:
    """[n] values in the messages of these parts; NaN unknown."""
    sizes = nodes["dtype"].astype(object).map(DTYPE_BYTES).to_numpy(float)[part]
    result: np.ndarray = nodes["message_bytes"].to_numpy()[part] / sizes
    return result


def _grown_elements(nodes: pd.DataFrame, grown: np.ndarray) -> set[int]:
    """Values in the tensors of two dimensions and more that grow; what a collective sends of data is one of them."""
    texts = nodes["input_dims"][grown].dropna().astype(str).unique()
    shapes = {shape for dims in texts for argument in parse(dims) for shape in tensors(argument)}
    return {prod(shape) for shape in shapes if len(shape) > 1}


def _is_flat(dims: object) -> bool:
    """Whether all tensors of a call have one dimension, as buckets of gradients and flattened parameters have."""
    shapes = [s for argument in parse(dims) for s in tensors(argument)] if isinstance(dims, str) else []
    return all(len(shape) == 1 for shape in shapes)


def sizes_text(result: tuple[int, ...]) -> str:
    """The first sizes."""
    return ", ".join(map(str, result[:NAMED_OPS])) + (", ..." if len(result) > NAMED_OPS else "")


def listed(counts: Counter[str]) -> str:
    """The most frequent ops, with their numbers."""
    named = ", ".join(f"{name} ({count})" for name, count in counts.most_common(NAMED_OPS) if count)
    return named + (f" and {len(counts) - NAMED_OPS} more ops" if len(counts) > NAMED_OPS else "")
