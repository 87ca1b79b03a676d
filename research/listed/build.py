"""An operator list -> the graph of a pass over the whole model: the layer as often as the model has layers.

    forward    before | layer x L | after
    backward   after  | layer x L | before        each node's ops in reverse, gradients added to those of before

One rank, one stream, host segments and launches as a recorded eager program has them. No loss, no optimizer. Latencies
and starts are unknown.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from gnnperf.core import InputError, Phase
from gnnperf.generate.transformer.build import planned_graph
from gnnperf.generate.transformer.items import Group, Item, Placed, collective
from gnnperf.generate.transformer.memory import one_per_stage
from gnnperf.generate.transformer.plan import Parallelism
from gnnperf.generate.transformer.rank_nodes import rank_nodes
from gnnperf.graph import ExecutionGraph
from research.listed.call import Call, floats
from research.listed.nodes import backward_items, calls_of, forward_items, gradient_sums, result_of
from research.listed.operator_list import ListedOp, Shape

LAYER = re.compile(r"(?:_h|_layers?|block)_(\d+)_")  # a module inside of a numbered layer


@dataclass(frozen=True)
class Section:
    """A run of nodes, and how often the model has it."""

    calls: tuple[Call, ...]  # of its nodes, in order
    repeats: int  # how often
    taken: Mapping[str, Shape]  # results of other sections that get gradients from this one -> their shape
    handed_on: frozenset[str]  # names of results that other sections take


def sections(ops: Sequence[ListedOp], layers: int, training: bool) -> tuple[Section, ...]:
    """Before the layer, the layer, after it; a list with all layers in it is one section.

    Raises:
        InputError: the list has one layer, and `layers` does not say how often; or it has none.
    """
    calls = calls_of(ops, training)
    inside = {at: int(m[1]) for at, op in enumerate(ops) if (m := LAYER.search(op.name))}
    if not inside:
        raise InputError("no node of a numbered layer", where="operator list", allowed="names like layer_0_, h_0_")
    if max(inside.values()) > 0:
        return _divided(calls, (0, len(calls)), (1,))
    if layers < 1:
        raise InputError(f"{layers} layers", where="operator list", allowed="1 or more, as only one is listed")
    return _divided(calls, (0, min(inside), _end(ops, max(inside)) + 1, len(calls)), (1, layers, 1))


def _divided(calls: Sequence[Call], bounds: Sequence[int], repeats: Sequence[int]) -> tuple[Section, ...]:
    shapes = {call.op.name: call.op.output for call in calls if call.is_tensor and result_of(call).differentiable}
    parts = [tuple(calls[a:b]) for a, b in pairwise(bounds)]
    own = [{call.op.name for call in part} for part in parts]
    takes = [{name for call in part for name in call.op.sources} - mine for part, mine in zip(parts, own, strict=True)]
    return tuple(
        Section(part, times, {name: shapes[name] for name in sorted(taken & shapes.keys())},
                frozenset(mine & set().union(*takes)))
        for part, times, taken, mine in zip(parts, repeats, takes, own, strict=True)
    )  # fmt: skip


def _end(ops: Sequence[ListedOp], last: int) -> int:
    """The layer's last node: after its last module, the last function before the next module that keeps the shape.

    The next layer takes what this one returns, so its result has the shape of the layer's input: that of the tensor
    that the first module of the layer takes.
    """
    first = next(op for op in ops if LAYER.search(op.name) and op.tensors)
    result = last
    for at in range(last + 1, len(ops)):
        if ops[at].kind in ("VECln", "Linear", "output"):
            break
        if ops[at].output == first.tensors[0]:
            result = at
    return result


class Part(StrEnum):
    """Which passes a graph holds."""

    FORWARD = "forward"
    BOTH = "both"


@dataclass(frozen=True)
class Owned:
    """An item of a program, and the listed node that it belongs to."""

    item: Item
    node: str


def listed_program(result: Sequence[Section], part: Part) -> tuple[Owned, ...]:
    """Everything that is called, in order; the k-th op with a kernel is the k-th compute node of the graph."""
    items = list(_forward(result))
    if part is Part.BOTH:
        items += _backward(result)
    alike: dict[Item, Item] = {}  # equal items as one, which `rank_nodes` prices once
    return tuple(Owned(alike.setdefault(each.item, each.item), each.node) for each in items)


def build_listed(
    name: str, ops: Sequence[ListedOp], layers: int, part: Part, training: bool, ways: Parallelism | None = None
) -> ExecutionGraph:
    """The graph of a forward pass, or of a forward and a backward pass, of a model with `layers` of the listed layer.

    In `training` dropout is active and results are kept for gradients; `ways` are ranks that sum over each other, None
    one rank. Raises InputError as `sections` does.
    """
    program = [Placed(each.item) for each in listed_program(sections(ops, layers, training), part)]
    return _graph(name, program, ways or Parallelism())


def _forward(result: Sequence[Section]) -> Iterator[Owned]:
    for section in result:
        once = [owned for call in section.calls for owned in _node_forward(call)]
        yield from once * section.repeats


def _node_forward(call: Call) -> Iterator[Owned]:
    items = _with_sum(forward_items(call), call.op.forward_sum, call.op.aside, Phase.FORWARD)
    return (Owned(item, call.op.name) for item in items)


def _backward(result: Sequence[Section]) -> Iterator[Owned]:
    for section in reversed(result):
        once = [owned for call in reversed(section.calls) for owned in _node_backward(call, section)]
        for name, shape in section.taken.items():
            once += [Owned(item, name) for item in gradient_sums(section.calls, name, shape)]
        yield from once * section.repeats


def _node_backward(call: Call, section: Section) -> Iterator[Owned]:
    items: list[Item] = []
    if call.is_tensor:
        external = call.op.name in section.handed_on
        items += gradient_sums(section.calls, call.op.name, call.op.output, external)
    items += _with_sum(backward_items(call), call.op.backward_sum, call.op.aside, Phase.BACKWARD)
    return (Owned(item, call.op.name) for item in items)


def _with_sum(items: Sequence[Item], elements: int, aside: bool, phase: Phase) -> Iterator[Item]:
    """A node's ops, and its sum over ranks: of gradients next to other work (replicas), of results (shards)."""
    yield from items
    if elements:
        group = Group.DATA if aside else Group.TENSOR
        yield collective("all_reduce", group, floats((elements,)), phase, awaited=not aside)


def _graph(name: str, program: Sequence[Placed], ways: Parallelism) -> ExecutionGraph:
    content = [placed.item for placed in program]
    return planned_graph(name, {0: rank_nodes(program, ways)}, one_per_stage(ways), ways, content)
