"""RecommendationPlan -> ExecutionGraph: the graph of a step that never ran, in the form that recorded ones have.

Ranks hold different tables, so all of them are in it unless others are requested. What they have in common is made once
(`shared.Shared`), and rows of distinct items are taken for all ranks together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, OpFamily, Phase, Relation, Segment
from gnnperf.generate.recommendation.items import Await, Item, Kernel, Transfer, equal, exchange
from gnnperf.generate.recommendation.lookups import (
    Shared,
    dense_gradient,
    even_bytes,
    input_items,
    look_up,
    shared_by_all,
    summed_width,
    update_rows,
)
from gnnperf.generate.recommendation.plan import FLOAT_BYTES, RecommendationPlan, Travel, here
from gnnperf.generate.transformer.items import HostWait, Lane, Views, fused
from gnnperf.generate.transformer.rows import FIRST_WORK, LAUNCH, LAUNCH_AT, LAUNCH_SEGMENTS, WAIT
from gnnperf.graph import (
    EdgeList,
    ExecutionGraph,
    StepLabel,
    Tensor,
    add_hardware,
    concat_tables,
    consecutive,
    content_keys,
    lane_keys,
    node_table,
)

# Nodes of each distinct item, once: programs of all ranks then take their rows from these.
#
# kernel     T1 T2 T4 T3   kernel             the call that launches it (T4) is the third of four host segments
# transfer   T1 T2 T4 T3   arrive exit
# host wait  T4
# views      T1 T5 each
# await      nothing

TRANSFER_STREAM = 1
TRANSFER_OPS = {"all_to_all": "c10d::alltoall_base_", "all_reduce": "c10d::allreduce_",
                "all_gather": "c10d::_allgather_base_", "reduce_scatter": "c10d::_reduce_scatter_base_"}  # fmt: skip
Row = dict[str, object]


def item_rows(items: Sequence[Item], group_size: int) -> tuple[pd.DataFrame, np.ndarray]:
    """[num_rows] schema.NODE_COLUMNS without ranks, and [num_items + 1] where the rows of each item begin."""
    rows = [_rows(item, group_size) for item in items]
    flat = [row for own in rows for row in own]
    names = list(dict.fromkeys(name for row in flat for name in row))
    columns = {name: _column([row.get(name) for row in flat]) for name in names}
    return node_table(len(flat), **columns), np.cumsum([0, *map(len, rows)])


def _column(values: list[object]) -> np.ndarray:
    """Numbers as numbers, unknown ones as what their column holds for unknown; texts as objects."""
    if any(isinstance(v, str) for v in values):
        return np.array([None if v is None else str(v) for v in values], dtype=object)
    if all(isinstance(v, int | None) for v in values):
        return np.array([-1 if v is None else v for v in values], dtype=np.int64)
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


def _rows(item: Item, group_size: int) -> list[Row]:
    if isinstance(item, Await):
        return []
    if isinstance(item, HostWait):
        return [_host(WAIT, Segment.T4, item.phase, WAIT)]
    if isinstance(item, Views):
        return [_host(name, segment, item.phase) for name in item.names for segment in (Segment.T1, Segment.T5)]
    if isinstance(item, Transfer):
        return [*_launching(TRANSFER_OPS[item.kind], item.phase), *_ends(item, group_size)]
    return [*_launching(item.name, item.phase), _kernel(item)]


def _launching(name: str, phase: Phase) -> list[Row]:
    return [_host(name, segment, phase, LAUNCH if segment is Segment.T4 else None) for segment in LAUNCH_SEGMENTS]


def _host(name: str, segment: Segment, phase: Phase, call: str | None = None) -> Row:
    return {"node_type": NodeType.HOST, "op_name": name, "segment": segment, "phase": phase, "thread": 0,
            "family": OpFamily.UNKNOWN, "event_name": call}  # fmt: skip


def _ends(item: Transfer, group_size: int) -> list[Row]:
    part: Row = {
        "node_type": NodeType.COMM, "op_name": TRANSFER_OPS[item.kind], "phase": item.phase,
        "family": OpFamily.COLLECTIVE, "dtype": item.dtype, "device": 0, "stream": TRANSFER_STREAM,
        "collective": item.kind, "message_bytes": item.message_bytes, "group_size": group_size,
    }  # fmt: skip
    return [{**part, "segment": end} for end in (Segment.ARRIVE, Segment.EXIT)]


def _kernel(item: Kernel) -> Row:
    cost = item.cost
    return {"node_type": NodeType.COMPUTE, "op_name": item.name, "phase": item.phase, "family": cost.family,
            "dtype": cost.dtype, "input_dims": item.dims, "device": 0, "stream": int(Lane.COMPUTE),
            "flops": cost.flops, "bytes": cost.bytes}  # fmt: skip


# What one rank does in a step, item by item.
#
#     indices to holders | look up | vectors begin ......... arrive |
#                                  | bottom perceptron ------------ | interaction, top, loss, backward of both |
#     gradients of vectors begin ......... arrive |
#     | backward of the bottom perceptron ------- | update rows | optimizer of what is replicated
#
# Lookups before the bottom perceptron, so that vectors travel next to it, and their gradients next to its backward pass
# (Naumov et al. 2019, section 2.3; facebookresearch/dlrm, extend_distributed.py). Indices go to their holders within
# the step, lengths first, for which the host waits (torchrec's KJTAllToAll without a pipeline). All collectives share
# one stream, as of one process group.

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


# What a rank's nodes wait for on their own rank, next to the order of their thread and streams.
#
# host      |T1|T2|T4|T3|T1|T2|T4|T3| ... |await|T1|T2|T4|T3|
#                 `launches    `launches                `
# compute         |-- kernel --|   |-- kernel --|       |-- kernel --|
#                              `event                   | event
# transfers                     arrive .......... exit -'

Pair = tuple[int, int]


@dataclass
class Waits:
    """Edges of one rank, in its own numbers, as they are found item by item.

    Attributes:
        launches, events, syncs: (from, to).
        arrivals: transfer's name -> node where this rank arrives; it leaves at the next one.
    """

    launches: list[Pair] = field(default_factory=list)
    events: list[Pair] = field(default_factory=list)
    syncs: list[Pair] = field(default_factory=list)
    arrivals: dict[str, int] = field(default_factory=dict)


@dataclass
class _Reached:
    """Where the rank is: its last kernel (-1: none yet), and exits that the next kernel, and the host, wait for."""

    kernel: int = -1
    awaited: list[int] = field(default_factory=list)
    unseen: list[int] = field(default_factory=list)


def waits_of(program: Sequence[Item], first: Sequence[int], launch_at: int) -> Waits:
    """The edges of a program."""
    result, reached = Waits(), _Reached()
    for item, node in zip(program, first, strict=True):
        if isinstance(item, Await):
            exits = [result.arrivals[name] + 1 for name in item.names]
            reached.awaited += exits
            reached.unseen += exits
        elif isinstance(item, HostWait):
            _host_waits(result, reached, node)
        elif not isinstance(item, Views):
            result.launches.append((node + launch_at, node + FIRST_WORK))
            _issued(result, reached, item, node + FIRST_WORK)
    return result


def _host_waits(result: Waits, reached: _Reached, node: int) -> None:
    """For the last kernel, and for transfers that kernels issued before it wait for."""
    result.syncs += [(source, node) for source in (reached.kernel, *reached.unseen) if source >= 0]
    reached.unseen = []


def _issued(result: Waits, reached: _Reached, item: Item, work: int) -> None:
    """A kernel waits for awaited transfers; a transfer for the kernels before it, and for those as well."""
    result.events += [(source, work) for source in reached.awaited]
    if isinstance(item, Transfer):
        result.arrivals[item.name] = work
        result.events += [(reached.kernel, work)] if reached.kernel >= 0 else []
    else:
        reached.kernel, reached.awaited = work, []


STEP_NAME = "planned"
_CONTENT = ("node_type", "thread", "stream", "op_name", "segment", "event_name", "collective")


def build_recommendation(plan: RecommendationPlan, ranks: Sequence[int] | None = None) -> ExecutionGraph:
    """The graph of one step.

    Args:
        plan: the configuration.
        ranks: which are in the graph, ascending; None: all. Collectives are those of all ranks in any case.

    Returns:
        Every latency, start and lag is NaN.
    """
    shared, chosen = shared_by_all(plan), tuple(range(plan.ranks) if ranks is None else ranks)
    programs = [rank_program(shared, rank) for rank in chosen]
    nodes, first = _nodes(programs, chosen, plan.ranks)
    edges = _lanes(nodes)
    ends = np.append(first, len(nodes))  # [num_items + 1]
    met: dict[str, list[tuple[Transfer, int]]] = {}
    begin = np.cumsum([0, *map(len, programs)])
    result = [waits_of(program, ends[a:b].tolist(), LAUNCH_AT)
             for program, (a, b) in zip(programs, pairwise(begin), strict=True)]  # fmt: skip
    for program, waits in zip(programs, result, strict=True):
        for transfer in (item for item in program if isinstance(item, Transfer)):
            met.setdefault(transfer.name, []).append((transfer, waits.arrivals[transfer.name]))
    _add_waits(edges, result)
    nodes = concat_tables([t for t in (nodes, _transfers(met, plan.ranks, len(nodes), edges)) if len(t)])
    nodes = nodes.assign(node_id=np.arange(len(nodes)), step=np.zeros(len(nodes), np.int32))
    nodes = nodes.assign(blocked_us=np.full(len(nodes), np.nan), content_key=content_keys(nodes, _CONTENT))
    return _graph(plan, chosen, nodes, edges)


def _nodes(
    programs: Sequence[tuple[Item, ...]], ranks: tuple[int, ...], group_size: int
) -> tuple[pd.DataFrame, np.ndarray]:  # fmt: skip
    """[num_nodes] rows of the ranks one after the other, and [num_items] the first node of each item."""
    numbers: dict[int, int] = {}  # by identity: ranks share most items
    distinct: list[Item] = []
    index = []
    for item in (item for program in programs for item in program):
        if id(item) not in numbers:
            numbers[id(item)] = len(distinct)
            distinct.append(item)
        index.append(numbers[id(item)])
    rows, of_item = item_rows(distinct, group_size)
    width = np.diff(of_item)[index]  # [num_items]
    first = np.cumsum(width) - width  # [num_items]
    row = np.repeat(of_item[index] - first, width) + np.arange(int(width.sum()))  # [num_nodes]
    per_rank = np.add.reduceat(width, np.cumsum([0, *map(len, programs[:-1])]))  # [ranks]
    rank = np.repeat(np.array(ranks, dtype=np.int32), per_rank)  # [num_nodes]
    return rows.take(row).reset_index(drop=True).assign(rank=rank), first


def _lanes(nodes: pd.DataFrame) -> EdgeList:
    """Order of threads and streams; an exit is released by its transfer."""
    edges, thread = EdgeList(), (nodes["thread"] >= 0).to_numpy()
    keys = lane_keys(nodes)  # [num_nodes]
    edges.add(*consecutive(np.where(thread, keys, -1)), Relation.FOLLOWS)
    src, dst = consecutive(np.where(thread, -1, keys))
    between = (nodes["segment"] != Segment.EXIT).to_numpy()[dst]
    edges.add(src[between], dst[between], Relation.FOLLOWS, "stream")
    return edges


def _add_waits(edges: EdgeList, result: Sequence[Waits]) -> None:
    _add(edges, [pair for waits in result for pair in waits.launches], Relation.LAUNCHES, "launch")
    _add(edges, [pair for waits in result for pair in waits.events], Relation.WAITS, "event")
    _add(edges, [pair for waits in result for pair in waits.syncs], Relation.WAITS, "sync")


def _add(edges: EdgeList, pairs: list[Pair], relation: Relation, lag_class: str) -> None:
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)  # [n, 2]
    edges.add(both[:, 0], both[:, 1], relation, lag_class)


def _transfers(
    met: dict[str, list[tuple[Transfer, int]]], group_size: int, offset: int, edges: EdgeList
) -> pd.DataFrame:  # fmt: skip
    """[num_transfers] nodes, and their edges to the ranks' parts; the busiest rank's message is the exchange's."""
    groups = list(met.values())
    if not groups:
        return node_table(0)
    first = [parts[0][0] for parts in groups]
    node = np.repeat(offset + np.arange(len(groups)), [len(parts) for parts in groups])
    arrive = np.array([place for parts in groups for _, place in parts])
    edges.add(arrive, node, Relation.JOINS)
    edges.add(node, arrive + 1, Relation.RELEASES)
    return node_table(
        len(groups), node_type=str(NodeType.COLLECTIVE), family=str(OpFamily.COLLECTIVE),
        op_name=np.array([TRANSFER_OPS[t.kind] for t in first], dtype=object),
        phase=np.array([str(t.phase) for t in first], dtype=object),
        dtype=np.array([t.dtype for t in first], dtype=object),
        collective=np.array([t.kind for t in first], dtype=object),
        message_bytes=np.array([t.busiest_bytes for t in first]),
        group_size=np.full(len(groups), group_size), group_first=0, group_stride=1,
    )  # fmt: skip


def _graph(
    plan: RecommendationPlan, ranks: tuple[int, ...], nodes: pd.DataFrame, edges: EdgeList
) -> ExecutionGraph:  # fmt: skip
    unknown = tuple(float("nan") for _ in ranks)
    label = StepLabel(0, STEP_NAME, None, float("nan"), unknown, unknown)
    graph = ExecutionGraph(
        name=plan.name, nodes=nodes, edges=edges.table(), steps=(label,), ranks=ranks, world_size=plan.ranks,
        device_names=("",) * len(ranks), counts={}, fingerprint=hashlib.sha256(repr(plan).encode()).hexdigest(),
        cross_step=np.zeros((2, 0), dtype=np.int64),
    )  # fmt: skip
    return add_hardware(graph).validate()
