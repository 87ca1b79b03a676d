"""From an operator list to the calls of its nodes: layouts, what gets a gradient, who uses whose result."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from gnnperf.core import Phase
from gnnperf.generate.transformer.items import Item, op
from research.listed import forward, gradients
from research.listed.call import Call, Layout, Result, Shape, contiguous, permuted, viewed
from research.listed.operator_list import NUMBER, ListedOp

PERMUTING = ("permute", "transpose")
HAND_ON = ("to", "type", "type_as", "float", "dropout")  # the tensor itself, strides and all
TRAINED = ("Linear", "VECln", "EMBEDDING", "Weight")  # kinds with parameters
UNTRAINED = ("argmax", "one_hot", "lt", "le", "gt", "eq", "bool", "long", "arange", "cumsum")  # whole numbers, masks


def calls_of(ops: Sequence[ListedOp], training: bool) -> tuple[Call, ...]:
    """The call of every node, in order."""
    results: dict[str, Result] = {}
    permuted_names = {name for op_ in ops if op_.function in PERMUTING for name in op_.sources}
    result = []
    for listed in ops:
        call = _call(_divided(listed, results), results, training, listed.name in permuted_names)
        results[listed.name] = result_of(call)
        result.append(call)
    return tuple(result)


def _divided(listed: ListedOp, results: dict[str, Result]) -> ListedOp:
    """The node with its rank's part of the last axis, where its source has a part and the list states the whole.

    Lists of tensor parallelism divide the shapes of products, and not those of what uses them, element by element.
    Axes of heads are left as they are: what has them is a view.
    """
    whole = max(listed.tensors, key=prod, default=())
    if listed.kind in (*TRAINED, "BMM", "getitem") or not 0 < len(whole) <= 3 or len(listed.output) > 3:
        return listed
    own = [r.layout.shape for name in listed.sources if (r := results.get(name)) is not None and r.layout is not None]
    part = max(own, key=prod, default=whole)
    ways = prod(whole) // max(prod(part), 1)
    if part in listed.tensors or part[-1:] != (whole[-1] // max(ways, 1),) or prod(part) * ways != prod(whole):
        return listed
    shapes = [(*shape[:-1], shape[-1] // ways) if shape[-1:] == whole[-1:] else shape
              for shape in (*listed.inputs, listed.output)]  # fmt: skip
    return replace(listed, inputs=tuple(shapes[:-1]), output=shapes[-1])


def _call(listed: ListedOp, results: dict[str, Result], training: bool, permuted_later: bool) -> Call:
    """Arguments are distinguished by their shapes: the list does not order sources.

    In lists of tensor parallelism (`_divided`), a source whose shape no argument has stands for the next argument
    without a source, with the shape that the argument states.
    """
    left = [results[name] for name in sorted(listed.sources) if name in results]
    arguments: list[Result | None] = []
    for shape in listed.tensors:
        same = next((r for r in left if r.layout is not None and r.layout.shape == shape), None)
        if same is not None:
            left.remove(same)
        arguments.append(same)
    tensors = [r for r in left if r.layout is not None]
    parts_of = tensors[0] if tensors and listed.kind == "getitem" else None
    divided = iter(() if parts_of is not None else sorted(tensors, key=lambda r: not r.differentiable))
    given = tuple(
        own or Result(contiguous(shape), getattr(next(divided, None), "differentiable", False))
        for shape, own in zip(listed.tensors, arguments, strict=True)
    )
    return Call(listed, given, parts_of, training, permuted_later)


def result_of(call: Call) -> Result:
    listed = call.op
    trained = listed.kind in TRAINED or is_lookup(call)
    gradient = call.training and listed.function not in UNTRAINED and (
        trained or any(a.differentiable for a in (*call.arguments, *((call.parts_of,) if call.parts_of else ())))
    )  # fmt: skip
    if listed.function == "split" and call.arguments:
        return Result(call.layouts[0], gradient)
    return Result(_layout(call) if call.is_tensor else None, gradient)


def _layout(call: Call) -> Layout:
    listed, shape = call.op, call.op.output
    if call.parts_of is not None and call.parts_of.layout is not None:
        whole = call.parts_of.layout
        return Layout(shape, whole.strides) if len(whole.shape) == len(shape) else contiguous(shape)
    source = call.layouts[0] if call.arguments else contiguous(shape)
    if listed.function in PERMUTING:
        return permuted(source, shape) or contiguous(shape)
    if listed.function in ("view", "reshape"):
        return viewed(source, shape) or contiguous(shape)
    if listed.function in HAND_ON and source.shape == shape and not call.training:
        return source
    if listed.kind == "getitem" and len(source.shape) == len(shape):
        return Layout(shape, source.strides)
    return contiguous(shape)


def is_lookup(call: Call) -> bool:
    """A module that NeuSight did not name turns whole numbers into rows."""
    listed = call.op
    return listed.kind == "EMBEDDING" or listed.function == "embedding" or (
        listed.kind == "misc" and listed.function not in forward.FUNCTIONS and len(listed.tensors) == 1
        and listed.output[:-1] == listed.tensors[0] and listed.output != NUMBER
    )  # fmt: skip


def forward_items(call: Call) -> tuple[Item, ...]:
    """What the node calls in the forward pass. An unknown function is an op without a price, which is named."""
    listed = call.op
    if listed.kind in forward.KINDS:
        return forward.KINDS[listed.kind](call)
    if not call.is_tensor and listed.function != "split":
        return ()
    if listed.function in forward.FUNCTIONS:
        return forward.FUNCTIONS[listed.function](call)
    if not listed.tensors:  # a parameter
        return ()
    if listed.name.endswith(("dropout", "drop")) or "dropout" in listed.function:
        return forward.dropout(call)
    if is_lookup(call):
        return forward.embedding(call)
    return (op(f"aten::{listed.function}", Phase.FORWARD, *call.inputs),)


def backward_items(call: Call) -> tuple[Item, ...]:
    """What autograd calls for the node."""
    listed = call.op
    if not result_of(call).differentiable:
        return ()
    if is_lookup(call):
        return gradients.embedding(call)
    form = gradients.KINDS.get(listed.kind) or gradients.FUNCTIONS.get(listed.function) or gradients.nothing
    return form(call)


def gradient_sums(calls: Sequence[Call], name: str, shape: Shape, external: bool = False) -> tuple[Item, ...]:
    """Adding up the gradients that a result gets from several of the calls, and from `external`."""
    users = sum(name in call.op.sources and _passes_back(call) for call in calls)
    return gradients.sums(shape, users + external)


def _passes_back(call: Call) -> bool:
    """Whether the call gives its sources gradients: a part of a tuple or any differentiable result does."""
    return call.is_tensor and result_of(call).differentiable and call.op.kind != "output"
