"""The layers of a recorded transformer divided over tensor-parallel ranks (Shoeybi et al. 2019, Megatron-LM).

norm | qkv    attention  projection      | + norm | up     activation  down      | +      norm | logits
       n / t  heads / t  k / t | sum |            n / t    / t         k / t | sum |             as before

A half of a layer is what lies between two norms and has two products or more: its last product is divided along what
it sums over, the others along their results. Backward, the sum of the input's gradient ends a half. What is outside of
halves is on every rank: norms, embeddings, logits.

    2 replicas   rank 0 | rank 1                    tensor-parallel groups of 2, all-reduces of layers
    4 ranks      0 1    | 2 3                       data-parallel groups 0 2 and 1 3, half of the gradients each
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from math import prod

import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType, Phase, require
from gnnperf.generate import Argument, Shape, each, is_sharded, parse, tensors, text
from gnnperf.graph import DTYPE_BYTES, ExecutionGraph, consecutive, lane_keys
from gnnperf.whatif.added_sums import NO_HOST, Sum, Templates, placed, templates, updated, with_sums
from gnnperf.whatif.batch_shapes import BATCHED, SHARDING, all_shapes, factors, op_of
from gnnperf.whatif.costs import Cost, DistinctCall, change_calls, with_shapes
from gnnperf.whatif.edit import ON_DEVICE, Edited, chosen, is_type, refusal, unedited
from gnnperf.whatif.units import call_table

NORMS = ("layer_norm", "rms_norm")
PRODUCTS = ("linear", "addmm", "mm", "matmul")
GRADIENTS = ("all_reduce", "all_gather")  # collectives of gradients, or of what they update
SCALAR_BYTES = 8  # at most, of the norm of gradients and the like
NEAR = 3  # calls after a product, among which the gradient of its bias is
ON_EVERY_RANK = "whether embeddings and logits are divided, too: they are taken to be on every rank, as norms are"
AWAITED = "whether all-reduces of layers overlap with products: kernels after one are taken to wait for it"


class Role(StrEnum):
    """Which sizes of a call are divided."""

    COLUMNS = "n"  # of the product's result
    SUMMED = "k"  # what the product sums over
    ROWS = "m"  # of the product's result
    INNER = "inner"  # columns or heads of every tensor
    PARAMETERS = "parameters"  # of what is a divided parameter


@dataclass(frozen=True)
class TensorParallel:
    """Every rank becomes a tensor-parallel group, whose ranks divide the products of its layers."""

    ranks: int  # of a group

    def __post_init__(self) -> None:
        require(self.ranks >= 1, "ranks of a tensor-parallel group", self.ranks, "a whole number from 1 up")

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Divide the calls of layers, and add their all-reduces.

        Raises:
            InputError: no layer shows in the trace, its sizes cannot be divided, or it is divided already.
        """
        if self.ranks == 1:
            return unedited(graph)
        _check(graph)
        like = templates(graph)
        layers = _Layers(graph, like)
        divided, touched = _divided(graph, layers, self.ranks)
        larger, added, origin = with_sums(divided, like, layers.sums, self.ranks, 1)
        nodes, t = larger.nodes, self.ranks
        columns = {name: nodes[name].where(nodes[name] <= 0, nodes[name] * t) for name in ("rank", "group_first")}
        stride = nodes["group_stride"].where(added | (nodes["group_stride"] <= 0), nodes["group_stride"] * t)
        nodes = nodes.assign(**columns, group_stride=stride)
        wide = replace(larger, nodes=nodes, ranks=tuple(rank * t for rank in graph.ranks))
        result = placed(wide, graph, graph.world_size * t, tuple(n * t for n in graph.multiplicity.values()))
        return Edited(result, np.r_[touched, added[len(touched) :]], origin, (ON_EVERY_RANK, AWAITED, NO_HOST))


def _check(graph: ExecutionGraph) -> None:
    nodes = graph.nodes
    if nodes["op_name"].astype(str).str.startswith(SHARDING).any() or is_sharded(graph, np.ones(len(nodes), bool)):
        raise refusal(graph, "parameters are in shards over its replicas (FSDP)", "data parallelism that replicates")
    if nodes["collective"].isin(["send", "recv", "send_recv"]).any():
        raise refusal(graph, "sends between ranks, as stages of a pipeline do", "data parallelism only")
    sums = chosen(nodes, NodeType.COLLECTIVE, collective="all_reduce", phase=Phase.FORWARD)
    if sums.any():
        raise refusal(graph, "sums over ranks in its forward pass: its layers are divided already", "data parallelism")


class _Layers:
    """Roles of the calls of a graph, and the sums that layers add."""

    def __init__(self, graph: ExecutionGraph, like: Templates) -> None:
        anchors = graph.nodes.loc[like.anchors, ["rank", "step"]].itertuples(index=False, name=None)
        self._templates = {key: place for place, key in enumerate(anchors)}
        self._elements: Counter[int] = Counter()  # of divided weights and biases, by template and over micro-batches
        self._lookups: Counter[tuple[int, Shape]] = Counter()  # by template and table: once in a micro-batch
        self.calls, self.unit = call_table(graph)
        self._names, self.units = self.calls["op_name"].tolist(), self.calls["unit"].to_numpy()
        self._dtype = graph.nodes["dtype"].astype(object).to_numpy()
        self.arguments = [parse(dims) if dims else () for dims in self.calls["input_dims"]]
        self.role: dict[int, Role] = {}  # of calls
        self.weights: dict[Role, set[tuple[int, int]]] = {Role.COLUMNS: set(), Role.SUMMED: set()}  # (out, in)
        self.sums: list[Sum] = []
        self._num_products: dict[Shape, int] = {}  # of a half, by the [in, out] of its first one
        last = np.full(int(self.unit.max(initial=0)) + 1, -1)
        works = np.flatnonzero(is_type(graph, *ON_DEVICE) & (self.unit >= 0))
        last[self.unit[works]] = works  # the last device work of each unit
        self._work = last
        before, after = consecutive(lane_keys(graph.nodes))
        self._next = np.full(graph.num_nodes, -1)
        self._next[before] = after
        for phase in (Phase.FORWARD, Phase.BACKWARD):
            own = self.calls[(self.calls["phase"] == phase) & (self.calls["num_works"] > 0) & (self.calls["step"] >= 0)]
            for key, of_step in own.groupby(["rank", "step"]):
                if key not in self._templates:
                    raise refusal(graph, f"rank {key[0]} has no all_reduce in step {key[1]}", "one in every step")
                self._of_phase(phase, self._templates[key], of_step)
        phases = {one.phase for one in self.sums}
        if not phases or (len(phases) == 1 and (self.calls["phase"] == Phase.BACKWARD).any()):
            raise refusal(graph, "no layers of a transformer: two norms with two products or more between them",
                          "a trace with shapes of a transformer")  # fmt: skip
        self.widths = {out for out, _ in self.weights[Role.COLUMNS]} | {in_ for _, in_ in self.weights[Role.SUMMED]}
        self.heads = self._heads()

    def _of_phase(self, phase: Phase, template: int, calls: pd.DataFrame) -> None:
        norm = calls["op_name"].str.contains("|".join(NORMS)).to_numpy()
        lanes = calls["lane"][norm].mode()
        if lanes.empty:
            return
        own = (calls["lane"] == lanes.iloc[0]).to_numpy()
        calls, norm = calls[own], norm[own]
        looked_up = [i for i in calls.index if phase is Phase.FORWARD and self._name(i) == "embedding"]
        self._lookups.update((template, tensors(self.arguments[i][0])[0]) for i in looked_up)
        for half in np.split(calls.index.to_numpy(), np.flatnonzero(norm)):
            is_half = len(half) and any(one in self._name(half[0]) for one in NORMS)
            products = [i for i in half.tolist() if is_half and self._is_product(i, phase)]
            number = len(products)
            if phase is Phase.BACKWARD:  # a half that begins with a norm is computed again: products of a forward pass
                again = number > 0 and not self._name(half[0]).endswith("backward")
                number = self._num_products.get(self._factors(products[0])[1], 0) if again else 0
            if number > 1:
                self._forward(half.tolist(), products[:number], template, phase)
            if len(products) - number > 3:
                self._backward(half.tolist(), products[number:], template)

    def elements(self) -> int:
        """Of all weights and biases that the first rank divides."""
        batches = [count for (template, _), count in self._lookups.items() if template == 0]
        return self._elements[0] // min(batches, default=1)

    def _name(self, i: int) -> str:
        return op_of(str(self._names[i]))

    def _factors(self, i: int) -> tuple[Shape, Shape]:
        return factors(self._name(i), self.arguments[i])

    def _is_product(self, i: int, phase: Phase) -> bool:
        """Of data and a parameter; backward: of gradients and one of the two."""
        a, b = self._factors(i) if self._name(i) in PRODUCTS else ((), ())
        if len(b) != 2 or phase is Phase.FORWARD:
            return len(b) == 2
        sides = {frozenset((b[0], b[1])), frozenset((a[-2], b[1]))}
        return any(frozenset(weight) in sides for own in self.weights.values() for weight in own)

    def _forward(self, half: Sequence[int], products: Sequence[int], template: int, phase: Phase) -> None:
        *columns, last = products
        self._num_products[self._factors(columns[0])[1]] = len(products)
        self._inner(half, columns[0], last)
        for role, own in ((Role.COLUMNS, columns), (Role.SUMMED, [last])):
            for i in own:
                self.role[i] = role
                k, n = self._factors(i)[1]
                self.weights[role].add((n, k))
                biased = role is Role.COLUMNS and len(tensors(self.arguments[i][0])[0]) == 1
                self._elements[template] += n * (k + biased) if phase is Phase.FORWARD else 0
        self._sum(last, template, phase)

    def _backward(self, half: Sequence[int], products: Sequence[int], template: int) -> None:
        """Pairs of products: gradients of the input and of the weight, of the last product first."""
        tail = half[half.index(products[-1]) :]
        end = max(i for i in tail[: 1 + NEAR] if i == products[-1] or self._name(i) == "sum")  # gradients of biases
        self._inner(half, products[0], end)
        for place in range(0, len(products) - 1, 2):
            role = Role.COLUMNS if place else Role.SUMMED
            pair = products[place : place + 2]
            takes_weight = [self._factors(i)[1] in self.weights[role] for i in pair]
            of_input, of_weight = reversed(pair) if takes_weight == [False, True] else pair
            self.role[of_input] = Role.SUMMED if place else Role.COLUMNS
            a, b = self._factors(of_weight)
            across = (a[-2], b[1]) in self.weights[role]  # the result is [out, in], else its transpose
            self.role[of_weight] = Role.ROWS if across == bool(place) else Role.COLUMNS
            for i in half if place > 2 else ():  # gradients of one input by several products are added up whole
                if pair[0] < i <= end and self._name(i) in ("add", "add_"):
                    self.role.pop(i, None)
        self._sum(of_input, template, Phase.BACKWARD, end)

    def _inner(self, half: Iterable[int], first: int, last: int) -> None:
        self.role |= {i: Role.INNER for i in half if first < i <= last}

    def _sum(self, product: int, template: int, phase: Phase, end: int | None = None) -> None:
        """Of the result of a product, after the call `end`."""
        work = self._work[self.units[product if end is None else end]]
        a, b = self._factors(product)
        dtype = str(self._dtype[self._work[self.units[product]]])
        size = float(prod(a[:-1]) * b[1] * DTYPE_BYTES.get(dtype, 4))
        after = self._next[work]
        self.sums.append(Sum(template, size, phase, np.array([work]), np.array([after] if after >= 0 else [], int)))

    def _heads(self) -> tuple[int, ...]:
        """Numbers of heads of queries, and of keys where they are fewer."""
        result: dict[int, None] = {}
        whole, columns = ({side[place] for side in self.weights[role]}
                          for place, role in ((1, Role.SUMMED), (0, Role.COLUMNS)))  # fmt: skip
        for i, role in self.role.items():
            for shape in all_shapes(self.arguments[i]) if role is Role.INNER else ():
                for width in whole if len(shape) > 2 and shape[-1] else ():
                    queries, rest = divmod(width, shape[-1])
                    keys = [one // shape[-1] for out in columns for one in (out, (out - width) // 2)]
                    merged = len(shape) == 3 and self._name(i) in BATCHED and not shape[0] % max(queries, 1)
                    if rest == 0 and queries > 1 and (queries in shape[1:-1] or merged):
                        result |= {n: None for n in (queries, *keys) if n > 1 and queries % n == 0}
        return tuple(result)


def _divided(graph: ExecutionGraph, layers: _Layers, ranks: int) -> tuple[ExecutionGraph, np.ndarray]:
    """Shapes, costs and messages of gradients; [num_nodes] bool: what has changed."""
    nodes, parameters = graph.nodes, dict(_parameters(layers, ranks))
    sums = (nodes["message_bytes"] > SCALAR_BYTES) & nodes["collective"].isin(GRADIENTS)
    sent = (sums & nodes["phase"].isin([str(Phase.BACKWARD), str(Phase.OPTIMIZER)])).to_numpy()
    flat, share = _gradients(graph, layers, ranks, parameters, sent)
    parameters |= flat
    of_unit = np.full(int(layers.unit.max(initial=0)) + 2, "", dtype=object)
    own = layers.calls["phase"].isin([str(Phase.BACKWARD), str(Phase.OPTIMIZER)])
    of_unit[layers.calls["unit"][own].to_numpy()] = Role.PARAMETERS
    for i, role in layers.role.items():
        of_unit[layers.units[i]] = role
    role_of = of_unit[layers.unit]  # unit -1 has no role
    columns = {name: nodes[name].astype(object).to_numpy(copy=True) for name in ("input_dims", "flops", "bytes")}
    touched = np.zeros(graph.num_nodes, dtype=bool)
    for role in Role:
        rows = np.flatnonzero(role_of == role)
        divide = _Divide(role, ranks, layers.widths, layers.heads, parameters)
        changed = change_calls(nodes.iloc[rows], divide.of)
        touched[rows] = changed.touched
        for name, values in columns.items():
            values[rows] = changed.nodes[name].astype(object)
    predicted = (touched & ~is_type(graph, NodeType.HOST)) | sent
    edited = nodes.assign(
        input_dims=pd.Categorical(columns["input_dims"]), flops=columns["flops"].astype(float),
        bytes=columns["bytes"].astype(float), latency_us=nodes["latency_us"].mask(predicted),
        message_bytes=nodes["message_bytes"].where(~sent, nodes["message_bytes"] * share),
    )  # fmt: skip
    return replace(graph, nodes=edited), touched | sent


def _parameters(layers: _Layers, ranks: int) -> Iterator[tuple[Shape, Shape]]:
    """Divided parameters and what a rank has of them; stored as [out, in] or the other way round."""
    whole = {out for out, _ in layers.weights[Role.SUMMED]}
    for role, own in layers.weights.items():
        for out, in_ in own:
            part = (_part(out, ranks), in_) if role is Role.COLUMNS else (out, _part(in_, ranks))
            yield (out, in_), part
            yield (in_, out), part[::-1]
            if role is Role.COLUMNS and out not in whole:
                yield (out,), part[:1]  # biases; where norms are as wide, all stay whole


def _gradients(
    graph: ExecutionGraph, layers: _Layers, ranks: int, parameters: dict[Shape, Shape], sent: np.ndarray
) -> tuple[dict[Shape, Shape], float]:
    """Flat buffers and a rank's part of each; a rank's share of all gradients. `sent`: [num_nodes] bool."""
    try:
        shapes = updated(graph, graph.ranks[0])
    except InputError:
        if sent.any():
            raise
        return {}, 1.0  # a step without an optimizer on one device
    total = sum(map(prod, shapes))
    share = sum(prod(parameters.get(shape, shape)) for shape in shapes) / total
    messages = graph.nodes.loc[sent, ["message_bytes", "dtype"]].drop_duplicates().itertuples(index=False)
    elements = [int(size / DTYPE_BYTES.get(str(dtype), 4)) for size, dtype in messages]
    buffers: set[Shape] = {(count,) for count in elements if (count,) not in shapes}
    if all(len(shape) < 2 for shape in shapes):  # one buffer has several parameters
        if layers.elements() > total:
            raise refusal(graph, "its optimizer updates fewer weights than its layers have", "no shards of weights")
        share, buffers = 1 - layers.elements() / total * (1 - 1 / ranks), buffers | set(shapes)
    return {shape: (round(shape[0] * share),) for shape in buffers - parameters.keys() if shape}, share


def _part(size: int, ranks: int) -> int:
    if size % ranks:
        raise InputError(f"{ranks} does not divide {size}", where="ranks of a tensor-parallel group",
                         allowed="common divisors of heads and inner columns of layers")  # fmt: skip
    return size // ranks


@dataclass(frozen=True)
class _Divide:
    """The new shapes of calls with one role."""

    role: Role
    ranks: int
    widths: set[int]
    heads: tuple[int, ...]
    parameters: dict[Shape, Shape]

    def of(self, call: DistinctCall) -> tuple[tuple[Argument, ...], Cost] | None:
        """None: nothing changes."""
        if self.role is Role.PARAMETERS:
            known = all(len(shape) < 2 or shape in self.parameters for shape in all_shapes(call.arguments))
            own = self.parameters if known or call.phase == Phase.OPTIMIZER else {}
            new = tuple(each(argument, lambda shape: own.get(shape, shape)) for argument in call.arguments)
        elif self.role is Role.INNER:
            shapes = all_shapes(call.arguments)
            products = [s for s in shapes if s] if op_of(call.name) in BATCHED else []
            merged = bool(products) and all(len(shape) == 3 for shape in products)
            by_heads = any(self._head(shape, merged) is not None for shape in shapes if merged or len(shape) > 3)
            inner = partial(self._inner, by_heads=by_heads, merged=merged)
            new = tuple(each(argument, inner) for argument in call.arguments)
        else:
            name = op_of(call.name)  # of a product, or of what it calls for its arguments
            is_product = name in PRODUCTS and len(factors(name, call.arguments)[1]) == 2
            new = self._product(name, call.arguments) if is_product else call.arguments
        if new == call.arguments:
            return None
        if _matches(call.name, call.arguments) and not _matches(call.name, new):
            raise InputError(f"{call.name} of {text(call.arguments)} would become {text(new)}",
                             where=f"tensor={self.ranks}", allowed="heads unlike columns in size")  # fmt: skip
        return new, with_shapes(call.name, call.arguments, new, call.recorded, call.dtype, 1 / self.ranks,
                                call.num_siblings)  # fmt: skip

    def _product(self, name: str, arguments: tuple[Argument, ...]) -> tuple[Argument, ...]:
        """[m, k] x [k, n], behind a bias [n] with addmm, before it with linear, whose weight is [n, k]."""
        first = int(name == "addmm")
        of_a, of_b = {Role.ROWS: (-2, None), Role.SUMMED: (-1, 0), Role.COLUMNS: (None, 1)}[self.role]
        if name == "linear" and of_b is not None:
            of_b = 1 - of_b
        result = list(arguments)
        for place, at in ((first, of_a), (first + 1, of_b)):
            if at is not None:
                result[place] = self._at(tensors(arguments[place])[0], at)
        bias = 0 if first else 2
        if self.role is Role.COLUMNS and name in ("addmm", "linear") and len(arguments) > bias:
            result[bias] = each(arguments[bias], lambda shape: self._at(shape, -1) if shape else shape)
        return tuple(result)

    def _head(self, shape: Shape, merged: bool) -> int | None:
        """The dimension of heads in any layout; the first one of three where it is `merged` with the batch."""
        for number in self.heads:
            if number in shape[1:-1] and not merged:
                return 1 + shape[1:-1].index(number)
            if merged and len(shape) == 3 and shape[0] % number == 0:
                _part(number, self.ranks)
                return 0
        return None

    def _inner(self, shape: Shape, by_heads: bool, merged: bool) -> Shape:
        """By heads where the call has a dimension of them for certain, else by columns, else by heads if any."""
        if by_heads:
            place = self._head(shape, merged)
            return shape if place is None else self._at(shape, place)
        if shape in self.parameters:
            return self.parameters[shape]
        if shape and shape[-1] in self.widths:
            return self._at(shape, -1)
        place = self._head(shape, merged=False)
        place = self._head(shape, merged=True) if place is None else place
        return shape if place is None else self._at(shape, place)

    def _at(self, shape: Shape, place: int) -> Shape:
        result = list(shape)
        result[place] = _part(result[place], self.ranks)
        return tuple(result)


def _matches(name: str, arguments: tuple[Argument, ...]) -> bool:
    """Whether these are the factors of a product."""
    a, b = factors(op_of(name), arguments) if op_of(name) in (*PRODUCTS, *BATCHED) else ((), ())
    batches = zip(a[-3::-1], b[-3::-1], strict=False)
    return min(len(a), len(b)) > 1 and a[-1] == b[-2] and all(n == m or 1 in (n, m) for n, m in batches)
