"""TransformerPlan -> ExecutionGraph: the graph of a step that never ran, in the form that recorded ones have."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core import Relation
from gnnperf.generate.transformer.items import Group, Transfer
from gnnperf.generate.transformer.memory import Role, RoleMap, one_per_stage, rank_of
from gnnperf.generate.transformer.plan import Parallelism, TransformerPlan, sentences
from gnnperf.generate.transformer.program import stage_program
from gnnperf.generate.transformer.rank_nodes import RankNodes, extents, rank_nodes, transfer_rows
from gnnperf.graph import EdgeList, ExecutionGraph, StepLabel, concat_tables, content_keys, hardware, node_table
from gnnperf.hardware import progression

STEP_NAME = "planned"
_CONTENT = ("node_type", "thread", "stream", "op_name", "segment", "event_name", "collective")
Meeting = tuple[object, ...]  # what the parts of one transfer have in common


@dataclass(frozen=True)
class _Met:
    """A part of a transfer in the numbers of the whole graph."""

    transfer: Transfer
    arrive: int
    rank: int


def build_plan(plan: TransformerPlan, roles: RoleMap | None = None, lengths: Sequence[int] = ()) -> ExecutionGraph:
    """The graph of one step; every latency, start and lag is NaN.

    `roles` are the ranks in the graph; None: one of each stage, which stands for all of it. `lengths` are of the
    samples of each micro-batch; (): model.sequence. Collectives have the size of their whole group.
    """
    chosen, ways = roles or one_per_stage(plan.parallelism), plan.parallelism
    stages = sorted({role.stage for role in chosen.ranks.values()})
    by_stage = {stage: rank_nodes(stage_program(plan, stage, lengths), ways) for stage in stages}
    own = {rank: by_stage[role.stage] for rank, role in chosen.ranks.items()}
    return planned_graph(plan.name, own, chosen, ways, (plan, *lengths) if lengths else plan, tuple(sentences(plan)))


def planned_graph(
    name: str, own: Mapping[int, RankNodes], roles: RoleMap, ways: Parallelism, content: object,
    warnings: tuple[str, ...] = (),
) -> ExecutionGraph:  # fmt: skip
    """Ranks' nodes as one graph, their transfers matched.

    `own`: rank -> its nodes, in the order of `roles`; `content`: what the graph is made of, whose repr is the
    fingerprint; `warnings`: what was taken for granted.
    """
    tables, edges, offset = [], EdgeList(), 0
    met: dict[Meeting, list[_Met]] = defaultdict(list)
    for rank, nodes in own.items():
        tables.append(nodes.table.assign(rank=np.full(len(nodes.table), rank, dtype=np.int32)))
        edges.parts += nodes.edges.shifted(offset).parts
        _meet(met, nodes, roles.ranks[rank], ways, offset)
        offset += len(nodes.table)
    table, carried = _transfers(met, ways, offset, edges)
    tables.append(table)
    nodes_ = concat_tables([t for t in tables if len(t)])
    nodes_ = nodes_.assign(step=np.zeros(len(nodes_), np.int32), blocked_us=np.full(len(nodes_), np.nan))
    nodes_ = nodes_.assign(content_key=content_keys(nodes_, _CONTENT))
    ranks, stands_for, names = tuple(own), tuple(roles.multiplicity.values()), ("",) * len(own)
    machine, machine_edges = hardware(nodes_, ranks, names, 1, ways.world_size)
    nodes_ = concat_tables([nodes_, *machine])
    nodes_ = nodes_.assign(node_id=np.arange(len(nodes_)))
    unknown = tuple(float("nan") for _ in ranks)
    period = float("nan") if carried.size else None  # steps overlap: a step is as long as the next one begins later
    return ExecutionGraph(
        name=name, nodes=nodes_, edges=concat_tables([edges.table(), machine_edges.table()]), ranks=ranks,
        world_size=ways.world_size,
        steps=(StepLabel(0, STEP_NAME, period, float("nan"), unknown, unknown),), device_names=names,
        counts={}, warnings=warnings, stands_for=stands_for,
        fingerprint=hashlib.sha256(repr(content).encode()).hexdigest(), cross_step=carried,
    ).validate()  # fmt: skip


def _meet(met: dict[Meeting, list[_Met]], own: RankNodes, role: Role, ways: Parallelism, offset: int) -> None:
    """Put a rank's parts with those of its peers: messages by tag or name, all else by order within the group."""
    count: dict[Group, int] = defaultdict(int)
    spans = extents(ways)
    for part in own.parts:
        group = part.transfer.group
        members: Meeting = (Group.EMBEDDING if group is Group.EMBEDDING else Group.NEXT, role.replica, role.shard)
        if group in spans:  # of a stage's groups the lowest rank
            members = (group, _lowest(rank_of(role, ways), *spans[group]))
        which: object = part.tag or part.transfer.name
        if not which:
            which, count[group] = count[group], count[group] + 1
        met[*members, which].append(_Met(part.transfer, part.arrive + offset, rank_of(role, ways)))


def _lowest(rank: int, size: int, stride: int) -> int:
    """Of the group that a rank is in."""
    return rank - rank // stride % size * stride


def _transfers(
    met: dict[Meeting, list[_Met]], ways: Parallelism, offset: int, edges: EdgeList
) -> tuple[pd.DataFrame, np.ndarray]:
    """[num_transfers] nodes, their edges to the parts; [2, num_carried] transfers, and what the next step receives."""
    if not met:
        return node_table(0), np.zeros((2, 0), dtype=np.int64)
    groups = list(met.values())
    first = [parts[0].transfer for parts in groups]
    messages = (parts for parts, t in zip(groups, first, strict=True) if t.kind in ("send", "recv"))
    assert all(len(parts) == 2 for parts in messages), "a message without its other end"
    node = np.repeat(offset + np.arange(len(groups)), [len(parts) for parts in groups])
    arrive = np.array([part.arrive for parts in groups for part in parts])
    late = np.array([part.transfer.sent_before for parts in groups for part in parts])
    edges.add(arrive[~late], node[~late], Relation.JOINS)
    edges.add(node[~late], arrive[~late] + 1, Relation.RELEASES)
    edges.add(arrive[late], arrive[late] + 1, Relation.FOLLOWS, "stream")
    return transfer_rows(first, _places(met, ways), ways), np.stack([node[late], arrive[late] + 1])


def _places(met: dict[Meeting, list[_Met]], ways: Parallelism) -> list[tuple[int, int]]:
    """Per transfer the lowest rank of its group and the distance of neighbors, whatever part of it is in the graph."""
    spans, result = extents(ways), []
    for parts in met.values():
        size, stride = spans.get(parts[0].transfer.group, (1, 1))
        own = _lowest(parts[0].rank, size, stride), stride
        result.append(own if size > 1 else progression([part.rank for part in parts]))
    return result
