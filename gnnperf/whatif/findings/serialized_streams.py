"""One stream runs one after the other what needs nothing of each other and leaves space on the device.

stream 0   |- a1 -|- a2 -|- b1 -|- b2 -|         a2 needs a1, b2 needs b1
stream 0   |- a1 -|- a2 -|                       next to it, if both leave space
stream 1   |- b1 -|- b2 -|

Ding et al. 2021, "IOS: Inter-Operator Scheduler for CNN Acceleration": stages of concurrent groups. Here the work of a
phase goes in program order to whichever of two streams lets it begin first (list scheduling, Graham 1969), after what
makes its tensors, and next to other work only while both together need no more than the device has: of a kernel, the
time that the sustained roof allows over the time that it takes. Work of which no tensor is followed, or whose FLOPs and
bytes are not known, runs in isolation and in its place.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from gnnperf.analytic import US, CopyPath, path_of, rate_key_of, roofs_of
from gnnperf.core import NodeType
from gnnperf.graph import lane_keys
from gnnperf.hardware import DeviceSpec
from gnnperf.whatif.findings.finding import SUSPICIOUS, Observed, Suspect, Way
from gnnperf.whatif.streams import MoveNodesToStream, dependencies, is_unordered

FULL = 1.0 + 1e-9  # of the device, or of the link to the host
REMEDY = "run the branches on streams of their own (torch.cuda.Stream, with events where their results meet)"
ON_HOST_LINK = (CopyPath.HOST, CopyPath.HOST_PAGEABLE)


def serialized_streams(step: Observed) -> list[Suspect]:
    """Independent work that leaves space stands in one stream."""
    if step.cluster is None or not step.graph.runs_on_gpu:
        return []
    makers: dict[int, list[int]] = {}  # node -> device work that makes a tensor it takes
    for maker, taker in dependencies(step.graph).T.tolist():
        makers.setdefault(taker, []).append(maker)
    if not makers:
        return []
    use = demands(step, step.cluster.device)
    result = [_two_streams(step, nodes, makers, use) for nodes in _stretches(step)]
    saved_us = sum(one.saved_us for one in result) / step.num_ranks
    if saved_us < SUSPICIOUS * step.step_time_us:
        return []
    moved = np.sort(np.concatenate([one.moved for one in result]))
    longest = max(result, key=lambda one: one.saved_us)
    evidence = (
        f"{len(moved):,} of {sum(one.num_nodes for one in result):,} kernels and copies need nothing of what their "
        f"stream runs meanwhile and leave room for it; side by side they take {saved_us:,.0f} us less per rank",
        f"most in {longest.phase} of rank {longest.rank}: {_listed(step, longest.moved)} next to "
        f"{_listed(step, longest.compared)}",
        f"what moves uses {100.0 * float(np.mean(use[moved, 0])):.0f} % of the device's sustained rates (mean)",
    )
    text = f"these {len(moved):,} on a second stream, with events for their tensors"
    way = Way((MoveNodesToStream(tuple(moved.tolist())),), text, at_most=True)
    return [
        Suspect("serialized_streams", "independent work waits for its turn on one stream", evidence, REMEDY, (way,))
    ]


@dataclass(frozen=True)
class _Split:
    """What two streams make of a stretch: nodes that leave the first one, and what they run next to."""

    rank: int
    phase: str
    num_nodes: int
    moved: np.ndarray
    compared: np.ndarray
    saved_us: float


def demands(step: Observed, device: DeviceSpec) -> np.ndarray:
    """[num_nodes, 2] share of the device and of the host's link that a node takes while it runs; 1 where unknown."""
    nodes, roofs = step.graph.nodes, roofs_of(device)
    pairs = nodes[["family", "dtype"]].astype(object).where(nodes[["family", "dtype"]].notna(), None)
    codes = pairs.groupby(["family", "dtype"], dropna=False, sort=False).ngroup().to_numpy()
    _, first, code = np.unique(codes, return_index=True, return_inverse=True)
    rates = np.array([
        roofs.flops[rate_key_of(device, str(family or ""), dtype)].sustained
        for family, dtype in pairs.iloc[first].itertuples(index=False, name=None)
    ])[code]  # [num_nodes]  # fmt: skip
    works_us = np.maximum(nodes["flops"].to_numpy() / rates, nodes["bytes"].to_numpy() / roofs.bandwidth.sustained) * US
    known = np.isfinite(works_us) & (step.latency_us > 0) & (step.kind == NodeType.COMPUTE)
    result = np.ones((step.graph.num_nodes, 2))
    result[:, 1] = 0.0
    result[known, 0] = np.minimum(works_us[known] / step.latency_us[known], 1.0)
    names = nodes["event_name"].astype(object)
    copies = np.flatnonzero(step.kind == NodeType.MEMORY)
    across = copies[[isinstance(names.iloc[n], str) and path_of(names.iloc[n]) in ON_HOST_LINK for n in copies]]
    result[across] = (0.0, 1.0)
    return result


def _stretches(step: Observed) -> Iterator[np.ndarray]:
    """[n] device work of one stream and phase between work of unknown order, in order."""
    lane, fixed = lane_keys(step.graph.nodes), is_unordered(step.graph)
    on_stream = (step.graph.nodes["stream"] >= 0).to_numpy()
    phase = step.graph.nodes["phase"].astype(str).to_numpy(dtype=object)
    for one in np.unique(lane[on_stream]).tolist():
        nodes = np.flatnonzero(lane == one)
        fence = fixed[nodes] | ~step.on_device[nodes]
        opens = np.r_[True, fence[1:] | fence[:-1] | (phase[nodes][1:] != phase[nodes][:-1])]
        yield from (part for part in np.split(nodes, np.flatnonzero(opens)[1:]) if len(part) > 1)


@dataclass
class _Stream:
    """What was put on a stream so far, in the order of time."""

    nodes: list[int] = field(default_factory=list)
    begins_us: list[float] = field(default_factory=list)
    ends_us: list[float] = field(default_factory=list)

    def put(self, node: int, begin_us: float, end_us: float) -> None:
        self.nodes.append(node)
        self.begins_us.append(begin_us)
        self.ends_us.append(end_us)

    def margin_us(self, from_us: float, takes_us: float, needs: np.ndarray, use: np.ndarray) -> float:
        """When other work can begin next to what runs here: not while both need more than there is."""
        for at in range(bisect_right(self.ends_us, from_us), len(self.nodes)):
            if self.begins_us[at] >= from_us + takes_us:
                break
            if (needs + use[self.nodes[at]]).max() > FULL:
                from_us = self.ends_us[at]
        return from_us


def _two_streams(step: Observed, nodes: np.ndarray, makers: dict[int, list[int]], use: np.ndarray) -> _Split:
    """List scheduling of a stretch [n] on two streams; what comes later looks at what is there already."""
    one, other = _Stream(), _Stream()
    end_us = dict[int, float]()
    for node in nodes.tolist():
        takes_us = float(step.latency_us[node])
        made_us = max((end_us[maker] for maker in makers.get(node, ()) if maker in end_us), default=0.0)
        starts = [
            compared.margin_us(max([made_us, *own.ends_us[-1:]]), takes_us, use[node], use)
            for own, compared in ((one, other), (other, one))
        ]
        at = int(starts[1] < starts[0] - 1e-9)
        end_us[node] = starts[at] + takes_us
        (one, other)[at].put(node, starts[at], end_us[node])
    first = np.searchsorted(other.ends_us, one.begins_us, side="right")  # of the other that end after it begins
    after = np.searchsorted(other.begins_us, one.ends_us, side="left")  # of the other that begin after it ends
    compared, moved = (np.array(stream.nodes, dtype=np.int64) for stream in (one, other))
    rank, phase = int(step.rank[nodes[0]]), str(step.graph.nodes["phase"].iloc[nodes[0]])
    saved_us = float(step.latency_us[nodes].sum()) - max(end_us.values())
    return _Split(rank, phase, len(nodes), moved, compared[first < after], saved_us)


def _listed(step: Observed, nodes: np.ndarray) -> str:
    """The ops that take most of the time of some nodes."""
    names, us = step.op[nodes], step.latency_us[nodes]
    totals = {str(name): float(us[names == name].sum()) for name in dict.fromkeys(names)}
    most = sorted(totals, key=lambda name: -totals[name])[:3]
    return ", ".join(f"{name} ({totals[name]:,.0f} us)" for name in most) or "nothing"
