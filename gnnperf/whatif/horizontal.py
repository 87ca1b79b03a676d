"""Equal calls that do not depend on each other become one batched call, as models trained side by side share a GPU.

before   [T1|linear]-[T1|linear]-[T1|linear]-[T1|stack]       three times the host, three small kernels
after                            [T1|baddbmm]-[T1|stack]      three times the FLOPs and bytes, the host once

Wang et al. 2021, "Horizontally Fused Training Array" (HFTA).
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, Relation, require
from gnnperf.generate import Argument, Shape, each, parse, tensors, text
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.batch_shapes import WEIGHTS, all_shapes, factors, op_of
from gnnperf.whatif.costs import listed
from gnnperf.whatif.edit import Edited, is_type, refusal
from gnnperf.whatif.units import call_table, remove
from gnnperf.whatif.waits import ALLOCATES, fed_by

# What N equal calls are as one batched call (HFTA: Wang et al. 2021, "Horizontally Fused Training Array", table 2).
#
# N x linear [8,5] x [7,5]           baddbmm [N,1,7], [N,8,5], [N,5,7]
# N x conv2d [8,3,9,9], [6,3,3,3]    conv2d [8,3N,9,9], [6N,3,3,3]: N times the groups
# N x add [8,5], [8,5]               add [8N,5], [8N,5]
# N x embedding [100,4], [8]         embedding [100N,4], [8N]: indices with an offset per model

CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "convolution", "_convolution", "cudnn_convolution", "mkldnn_convolution")
CHANNELS_SECOND = (*CONVOLUTIONS, "convolution_backward", "batch_norm", "native_batch_norm", "cudnn_batch_norm",
                   "native_batch_norm_backward", "cudnn_batch_norm_backward", "max_pool2d", "avg_pool2d",
                   "max_pool2d_with_indices", "adaptive_avg_pool2d", "_adaptive_avg_pool2d")  # fmt: skip
ANY = -1  # a size that does not follow from shapes of inputs
Call = tuple[str, tuple[Argument, ...]]


def batched(name: str, arguments: tuple[Argument, ...], times: int) -> Call:
    """Name and shapes of one call that does the work of `times`."""
    op = op_of(name)
    left, right = factors(op, arguments) if op in ("mm", "linear", "addmm") else ((), ())
    if len(left) > 1 and len(right) == 2:
        both: tuple[Argument, ...] = ((times, prod(left[:-1]), left[-1]), (times, left[-1], right[1]))
        added = op == "addmm" or (op == "linear" and len(arguments) > 2 and bool(arguments[2]))
        return ("aten::baddbmm", ((times, 1, right[1]), *both)) if added else ("aten::bmm", both)
    weights = WEIGHTS.get(op, ())
    if op in CHANNELS_SECOND:
        return name, tuple(
            each(one, lambda shape, at=place: _channels(shape, times, is_weight=at in weights))  # type: ignore[misc]
            for place, one in enumerate(arguments)
        )
    retained = () if "embedding" in op else weights
    return name, tuple(
        one if place in retained else each(one, lambda shape: _leading(shape, times))
        for place, one in enumerate(arguments)
    )


def _leading(shape: Shape, times: int) -> Shape:
    return (shape[0] * times, *shape[1:]) if shape else shape


def _channels(shape: Shape, times: int, *, is_weight: bool) -> Shape:
    """Data [samples, channels, ...] have more channels; so have weights and statistics [channels, ...]."""
    if is_weight or len(shape) < 2:
        return _leading(shape, times)
    return (shape[0], shape[1] * times, *shape[2:])


def result_shape(name: str, arguments: tuple[Argument, ...]) -> Shape | None:
    """The shape of what a call makes, ANY for sizes that do not follow from its inputs; None: not known at all."""
    op, shapes = op_of(name), [tensors(one)[0] if len(tensors(one)) == 1 else () for one in arguments]
    first, second, third = (*shapes, (), (), ())[:3]
    if op in ("linear", "mm", "bmm", "addmm", "baddbmm"):
        left, right = factors(op.replace("baddbmm", "addmm"), arguments)
        return (*left[:-1], right[-1]) if left and len(right) > 1 else None
    if op in CONVOLUTIONS and first and second:
        return (first[0], second[0], *[ANY] * (len(first) - 2))
    if op == "embedding" and len(first) == 2 and second:
        return (*second, first[1])
    if op == "embedding_bag" and len(first) == 2 and second:
        return (third[0] if third and len(second) == 1 else second[0], first[1])
    return None


def may_be(shape: Shape, pattern: Shape) -> bool:
    """Whether a tensor of this shape may be the result."""
    return len(shape) == len(pattern) and all(a == b or b == ANY for a, b in zip(shape, pattern, strict=True))


# Which calls may run as one: equal calls of one thread of which none needs what another one makes.
#
# looked up   [bag 1] [reshape] [bag 2] [stack]       no op takes [64,16] between bag 1 and bag 2: one lookup
# stacked     [linear] [gelu] [linear] [gelu]         gelu takes [8,32], what linear makes: two calls
#
# By `feeds` edges within a phase where a thread has any, else by shapes: a call whose result may be taken before the
# next equal call is not fused with it.

NEVER = np.iinfo(np.int64).max


def independent_groups(graph: ExecutionGraph, calls: pd.DataFrame, unit: np.ndarray) -> tuple[list[np.ndarray], int]:
    """([n] units of calls that may be one, each group in order of execution; how many calls nothing is known about).

    `calls` of `call_table`, of which those that are free are fused; `unit` [num_nodes] the call of each node.
    """
    fed: dict[int, int] = {}  # call -> the first call that takes a tensor of it in its phase; NEVER: none later
    for node, takers in fed_by(graph).items():
        own, others = int(unit[node]), unit[takers]
        if own >= 0:
            fed[own] = min(fed.get(own, NEVER), int(others[others > own].min(initial=NEVER)))
    groups: list[np.ndarray] = []
    unknown, by_shapes = 0, dict[bytes, tuple[list[np.ndarray], int]]()  # of equal lanes, which ranks have in common
    for _, lane in calls.groupby(["lane", "step"], sort=False):
        units = lane["unit"].to_numpy()
        if any(one in fed for one in units.tolist()):
            groups += _groups_in(lane, lambda one, _: fed.get(one, NEVER))[0]
            continue
        key = pd.util.hash_pandas_object(lane[[*_KEYS, "is_free"]], index=False).to_numpy().tobytes()
        if key not in by_shapes:
            placed = lane.assign(unit=np.arange(len(lane)))
            by_shapes[key] = _groups_in(placed, _Takes(placed).after)
        groups += [units[places] for places in by_shapes[key][0]]
        unknown += by_shapes[key][1]
    return groups, unknown


_KEYS = ["op_name", "input_dims", "phase", "num_works"]


def _groups_in(lane: pd.DataFrame, taker: Callable[[int, Shape | None], int | None]) -> tuple[list[np.ndarray], int]:
    """The groups of a lane, and how many of its calls nothing is known about (`taker` is None)."""
    groups, unknown = list[np.ndarray](), 0
    for (op_name, input_dims, *_), alike in lane[lane["is_free"] & (lane["num_works"] > 0)].groupby(
        _KEYS, sort=False, observed=True
    ):
        if len(alike) < 2:
            continue
        name, dims = str(op_name), str(input_dims)
        pattern = result_shape(name, parse(dims)) if dims else None
        taken = {one: takes for one in alike["unit"] if (takes := taker(one, pattern)) is not None}
        groups += [group for group in _runs(taken) if len(group) > 1]
        unknown += len(alike) - len(taken)
    return groups, unknown


def _runs(taken: dict[int, int]) -> Iterator[np.ndarray]:
    """Calls in order, cut where the result of one before is taken: number of a call -> number of who takes it."""
    group: list[int] = []
    limit = NEVER
    for one, taker in taken.items():
        if group and one >= limit:
            yield np.array(group)
            group, limit = [], NEVER
        group.append(one)
        limit = min(limit, taker)
    yield np.array(group)


class _Takes:
    """What shapes the calls of a thread take, in order: rows of `call_table`."""

    def __init__(self, lane: pd.DataFrame) -> None:
        self.by_shape: dict[Shape, list[int]] = {}
        self.unshaped: list[int] = []
        for one, name, dims in zip(lane["unit"].tolist(), lane["op_name"], lane["input_dims"], strict=True):
            if op_of(str(name)) in ALLOCATES:
                continue
            if not dims:
                self.unshaped.append(one)
            for shape in set(all_shapes(parse(dims or "[]"))):
                self.by_shape.setdefault(shape, []).append(one)

    def after(self, one: int, pattern: Shape | None) -> int | None:
        """The first call after `one` that may take its result; a call of unknown shapes may. None: no known result."""
        if pattern is None:
            return None
        lists = [places for shape, places in self.by_shape.items() if may_be(shape, pattern)]
        result = [next((place for place in places if place > one), NEVER) for places in (*lists, self.unshaped)]
        return min(result, default=NEVER)


# The same calls several times in a row: the parts of a step that N models run one after the other.
#
# calls     a b c | a b c | a b c | d          3 models: a a a, b b b, c c c


def model_groups(calls: pd.DataFrame, models: int) -> list[np.ndarray]:
    """[models] units of each call that all models make, in order of execution.

    Longest parts first; a part holds nothing that is tied to another thread, stream or rank.
    """
    result: list[np.ndarray] = []
    for _, lane in calls.groupby(["lane", "step"], sort=False):
        text_ = lane["op_name"].astype(str) + "|" + lane["input_dims"].astype(str) + "|" + lane["phase"].astype(str)
        # equal for equal calls; what may not be moved is like no other
        key = np.where(lane["is_free"], pd.factorize(text_)[0].astype(np.int64), -1 - np.arange(len(lane)))
        unit, used = lane["unit"].to_numpy(), np.zeros(len(lane), dtype=bool)
        for length in range(len(lane) // models, 0, -1):
            for begin in _starts(key, used, length, models):
                whole = slice(begin, begin + length * models)
                if not used[whole].any():
                    used[whole] = True
                    result += list(unit[whole].reshape(models, length).T)
    return result


def _starts(key: np.ndarray, used: np.ndarray, length: int, models: int) -> np.ndarray:
    """[n] where `models` equal parts of `length` calls begin, ascending."""
    same = (key[length:] == key[:-length]) & ~used[length:] & ~used[:-length]
    needed = length * (models - 1)
    total = np.concatenate([[0], np.cumsum(same)])
    return np.flatnonzero(total[needed:] - total[: len(total) - needed] == needed)


STACKED = "what it costs to bring inputs together and results apart: weights are taken to be stored as one"
BY_SHAPE = ("whether calls need each other's results in a way that shapes do not show: no tensor is followed (no feeds "
            "edges)")  # fmt: skip
LEFT = "whether {} equal calls need each other's results: no tensor is followed (no feeds edges); they stay apart"
INDEPENDENT = "whether the {} models share anything: the edit states that they do not"
MEMORY = "whether all models fit into memory side by side"
RESULT = "{} calls become {}: {}"


@dataclass(frozen=True)
class FuseHorizontally:
    """Equal, independent calls of a thread become one batched call, where the last of them is."""

    op: str | None = None  # name of the op; None all
    phase: str | None = None  # forward, backward, optimizer; None any
    # the step runs so many models of one shape one after the other, which share nothing; None: independent calls are
    # looked for
    models: int | None = None

    def __post_init__(self) -> None:
        require(self.models is None or self.models >= 2, "models of a horizontal fusion", self.models, "2 or more")

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Apply the edit."""
        calls, unit = call_table(graph)
        groups, unknown = self._groups(graph, calls, unit)
        if not groups:
            limits = (("of", self.op), ("in", self.phase))
            named = "".join(f" {word} {value}" for word, value in limits if value is not None)
            raise refusal(graph, f"no equal calls that are known not to need each other{named}",
                          "feeds edges, calls whose shapes show it, or models=N")  # fmt: skip
        last = np.array([group[-1] for group in groups])
        times = np.ones(int(unit.max()) + 1)
        times[last] = [len(group) for group in groups]
        gone = np.isin(unit, np.concatenate([group[:-1] for group in groups]))
        fused = np.isin(unit, last)
        given = replace(graph, nodes=_batched(graph.nodes, np.where(fused, times[unit], 1.0)))
        edited, came_from = remove(_handed_on(given, unit, groups), gone)
        counts: Counter[str] = Counter()
        for name, group in zip(calls.set_index("unit")["op_name"].loc[last], groups, strict=True):
            counts[str(name)] += len(group)
        result = RESULT.format(counts.total(), len(groups), listed(counts))
        return Edited(edited, fused[came_from], came_from, (STACKED, *unknown, MEMORY), result=(result,))

    def _groups(
        self, graph: ExecutionGraph, calls: pd.DataFrame, unit: np.ndarray
    ) -> tuple[list[np.ndarray], tuple[str, ...]]:
        """Units that become one, and what is not known about them."""
        fits = calls["is_free"].copy()
        for name, value in (("op_name", self.op), ("phase", self.phase)):
            fits &= value is None or calls[name] == value
        requested = calls.assign(is_free=fits)
        if self.models is not None:
            return model_groups(requested, self.models), (INDEPENDENT.format(self.models),)
        groups, left = independent_groups(graph, requested, unit)
        return groups, (BY_SHAPE, *([LEFT.format(left)] if left else []))


def _batched(nodes: pd.DataFrame, times: np.ndarray) -> pd.DataFrame:
    """The table with the work of `times` [num_nodes] calls in each node; latencies of device work unknown."""
    names, dims = (nodes[column].astype(object).to_numpy(copy=True) for column in ("op_name", "input_dims"))
    for node in np.flatnonzero((times > 1) & nodes["input_dims"].notna().to_numpy()):
        name, arguments = batched(str(names[node]), parse(str(dims[node])), int(times[node]))
        names[node], dims[node] = name, text(arguments)
    works = (times > 1) & (nodes["node_type"] != NodeType.HOST).to_numpy()
    return nodes.assign(
        op_name=pd.Categorical(names), input_dims=pd.Categorical(dims), flops=nodes["flops"] * times,
        bytes=nodes["bytes"] * times, latency_us=nodes["latency_us"].mask(works),
    )  # fmt: skip


def _handed_on(graph: ExecutionGraph, unit: np.ndarray, groups: list[np.ndarray]) -> ExecutionGraph:
    """The graph in which the fused call feeds whom its parts fed: tensors' edges of the others end at the last one."""
    heir = np.arange(int(unit.max()) + 1)
    for group in groups:
        heir[group] = group[-1]
    number, first = np.unique(unit, return_index=True)
    node_of = np.full(len(heir), -1, dtype=np.int64)
    node_of[number[number >= 0]] = first[number >= 0]
    works = np.flatnonzero(~is_type(graph, NodeType.HOST) & (unit >= 0))
    node_of[unit[works]] = works
    edges = graph.edges
    feeds = (edges["relation"] == Relation.FEEDS).to_numpy()
    moved_to = {}
    for end in ("src", "dst"):
        node = edges[end].to_numpy()
        moved = feeds & (unit[node] >= 0) & (heir[unit[node]] != unit[node])
        moved_to[end] = np.where(moved, node_of[heir[unit[node]]], node)
    return replace(graph, edges=edges.assign(**moved_to))
