"""Steps requested otherwise than they ran: on another device, with the links of other runs. Answers must notice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch_geometric.data import HeteroData

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import WORK_TYPES, InputError, NodeType, Relation
from gnnperf.gnn import features
from gnnperf.gnn.data.numbers import WORK_NAMES, link_of
from gnnperf.gnn.data.prepare import PreparedData, Step
from gnnperf.hardware import ClusterSpec, DeviceSpec, LinkSpec
from research.baselines.judge import Answer

LINK_COLUMNS = ("log_link_bytes_per_s", "log_link_latency_us", "crosses_machines")
MOVED = 0.001  # a smaller change is none


def half_bandwidth(device: DeviceSpec) -> DeviceSpec:
    """Half the memory bandwidth, nothing else."""
    return replace(device, memory_bandwidth_bytes_per_s=device.memory_bandwidth_bytes_per_s / 2)


def half_flops(device: DeviceSpec) -> DeviceSpec:
    """Half of every FLOP rate, nothing else."""
    return replace(device, flops_per_s={name: rate / 2 for name, rate in device.flops_per_s.items()})


def on_device(step: Step, device: DeviceSpec, data: PreparedData) -> Step:
    """The step as it would be requested on another device."""
    return requested_on(step, replace(step.cluster, device=device), data)


def over_links_of(step: Step, other: Step, data: PreparedData) -> Step:
    """The step as it would be requested over the link that the messages of another run cross, with its laws."""
    link = crossed_link(other)
    cluster = replace(step.cluster, intra=link, inter=link, collectives=other.cluster.collectives)
    return requested_on(step, cluster, data)


def requested_on(step: Step, cluster: ClusterSpec, data: PreparedData) -> Step:
    """Base and features anew, labels as they were."""
    base = AnalyticPredictor(data.constants).predict(step.graph, cluster)
    raw = features(step.graph, cluster, base, data.vocabulary, data.floors)
    return replace(step, data=data.normalizer.apply(raw), cluster=cluster, base=base)


def crossed_link(step: Step) -> LinkSpec:
    """The slowest link that the step's messages cross; of a step without messages the link inside a machine."""
    edges, nodes = step.graph.edges, step.nodes
    crosses = edges[edges["relation"].astype(str) == str(Relation.CROSSES)]
    sends = (nodes["node_type"].astype(str) == str(NodeType.COMM)).to_numpy()[crosses["src"].to_numpy()]
    names = sorted(set(nodes["op_name"].astype(str).to_numpy()[crosses["dst"].to_numpy()[sends]]))
    links = [link_of(name, step.cluster) for name in names] or [step.cluster.intra]
    return min(links, key=lambda link: link.sustained_bytes_per_s)


def with_another_link(steps: Sequence[Step]) -> list[tuple[Step, Step]]:
    """(step, the next step of the sequence, in a ring, whose messages cross another link)."""
    links = [crossed_link(step) for step in steps]
    ring = [[(i + k) % len(steps) for k in range(1, len(steps))] for i in range(len(steps))]
    others = [next((j for j in later if links[j] != links[i]), None) for i, later in enumerate(ring)]
    pairs = [(step, steps[j]) for step, j in zip(steps, others, strict=True) if j is not None]
    if not pairs:
        raise InputError("all steps cross the same link", where="sanity", remedy="a split whose runs have several")
    return pairs


def is_memory_bound(step: Step) -> tuple[np.ndarray, np.ndarray]:
    """([num_nodes] bool memory bound, [num_nodes] bool compute bound) by FLOPs and bytes on the step's own device.

    Nodes whose FLOPs or bytes are unknown are neither. The roofline of Williams et al. 2009, with sustained rates.
    """
    nodes, device = step.nodes, step.cluster.device
    works = nodes["node_type"].astype(str).isin([str(NodeType.COMPUTE), str(NodeType.MEMORY)]).to_numpy()
    flops, moved = (nodes[name].to_numpy(np.float64) for name in ("flops", "bytes"))
    compute_s = flops / (device.flops_per_s["float32"] * device.sustained_flops_share)
    memory_s = moved / (device.memory_bandwidth_bytes_per_s * device.sustained_bandwidth_share)
    known = works & (moved > 0) & np.isfinite(flops)
    return known & (memory_s > compute_s), known & (memory_s < compute_s)


@dataclass(frozen=True)
class Moves:
    """How answers for chosen nodes move.

    Attributes:
        nodes: how many.
        up, down: shares that move by more than MOVED.
        median_ratio: of the answer to the one before.
    """

    nodes: int
    up: float
    down: float
    median_ratio: float


def moves(answer: Answer, pairs: Sequence[tuple[Step, Step]], chosen: Sequence[np.ndarray]) -> Moves:
    """Answers for (step, the requested step otherwise), of the `chosen` [num_nodes] bool nodes of each."""
    result = []
    for (step, other), nodes in zip(pairs, chosen, strict=True):
        before, after = answer.latency_us(step), answer.latency_us(other)
        assert before is not None and after is not None, "only rows with node answers can be asked"
        result.append(after[nodes] / before[nodes])
    ratio = np.concatenate(result)
    ratio = ratio[np.isfinite(ratio)]
    if not len(ratio):
        return Moves(0, float("nan"), float("nan"), float("nan"))
    up, down = float((ratio > 1 + MOVED).mean()), float((ratio < 1 - MOVED).mean())
    return Moves(len(ratio), up, down, float(np.median(ratio)))


def with_links_shuffled(steps: Sequence[Step], seed: int) -> tuple[Step, ...]:
    """What a node knows of its link, dealt out anew among the steps' nodes.

    Permutation importance (Breiman 2001). Bases and labels stay, so that only what was learned from links is lost.
    """
    generator = torch.Generator().manual_seed(seed)
    columns = [WORK_NAMES.index(name) for name in LINK_COLUMNS]
    graphs = [_copy(step.data) for step in steps]
    for node_type in map(str, WORK_TYPES):
        _deal([g[node_type] for g in graphs], columns, generator)
    return tuple(replace(step, data=graph) for step, graph in zip(steps, graphs, strict=True))


def _copy(data: HeteroData) -> HeteroData:
    """With x of its own, so that the step's is not written to."""
    copied = data.__copy__()
    for node_type in data.node_types:
        copied[node_type].x = data[node_type].x.clone()
    return copied


def _deal(stores: Sequence[HeteroData], columns: Sequence[int], generator: torch.Generator) -> None:
    """One permutation over the rows of all stores, of these columns together."""
    x = torch.cat([store.x[:, columns] for store in stores])  # [all rows, num_columns]
    dealt = x[torch.randperm(len(x), generator=generator)]
    for store, rows in zip(stores, dealt.split([len(store.x) for store in stores]), strict=True):
        store.x[:, columns] = rows
