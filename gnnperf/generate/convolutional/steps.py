"""What layers are made of: an item of the program, what it does to memory, and whose gradients are final after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gnnperf.core import Phase
from gnnperf.generate.convolutional.plan import Gradients, Training
from gnnperf.generate.transformer.items import Item, fused, op, views
from gnnperf.generate.uses import Use
from gnnperf.graph import Tensor

F, B = Phase.FORWARD, Phase.BACKWARD
FLOAT = "float32"


@dataclass(frozen=True)
class Named:
    """A tensor and its name in the account of memory."""

    name: str
    tensor: Tensor


@dataclass(frozen=True)
class Step:
    """One item.

    Attributes:
        item: of the program.
        use: of memory; None: it makes nothing and is nobody's last use.
        parameters: numbers of elements of those whose gradients are final after it, in order.
    """

    item: Item
    use: Use | None = None
    parameters: tuple[int, ...] = ()


def takes(*names: str) -> tuple[str, ...]:
    """Names that are tensors' names; "" is a tensor that is always there."""
    return tuple(name for name in names if name)


def step(item: Item, taken: Sequence[str] = (), *made: Named) -> Step:
    """An op of a kernel, from what it takes and makes."""
    name = getattr(item, "name", "")
    return Step(item, Use(name, tuple(taken), tuple((m.name, m.tensor.num_bytes) for m in made)))


def silent(phase: Phase, *names: str) -> Step:
    """Ops that launch nothing."""
    return Step(views(phase, *names))


def cast(phase: Phase, of: Named, to: Named) -> Step:
    """A copy in another dtype."""
    return step(op("aten::copy_", phase, to.tensor, of.tensor), takes(of.name), to)


def parameter_as_used(training: Training, name: str, shape: tuple[int, ...]) -> tuple[tuple[Step, ...], Named]:
    """A parameter as convolutions and products take it: autocast makes a copy, once per step."""
    own = Named("", Tensor(shape, FLOAT))
    if not training.is_mixed:
        return (), own
    copy = Named(f"copy of {name}", Tensor(shape, training.dtype))
    return (silent(F, "to", "_to_copy", "empty_strided"), cast(F, own, copy)), copy


def turned(training: Training, phase: Phase, *tensors: Tensor) -> tuple[Step, ...]:
    """Channels to the end, or back, where matrix units want them and the program does not have them so.

    NVIDIA, Optimizing Convolutional Layers, "Tensor Layouts In Memory": the library converts, in kernels of its own.
    """
    if training.channels_last or not training.is_mixed:
        return ()
    return tuple(Step(fused("layout", phase, t, t), Use("triton_poi_fused_layout")) for t in tensors)


def with_gradients(training: Training, backward: Step, parameters: Sequence[Named]) -> tuple[Step, ...]:
    """A backward op that makes gradients of parameters, and what is done until they are final.

    Args:
        training: says whether they come in another dtype, and are added to what is there.
        backward: the op, without them.
        parameters: names, and shapes in the dtype of the gradient.
    """
    assert backward.use is not None, "an op has a use"
    temporary = [p.tensor.dtype != FLOAT or training.gradients is Gradients.ZEROED for p in parameters]
    gone = [p for p, is_gone in zip(parameters, temporary, strict=True) if is_gone]
    retained = [p for p, is_gone in zip(parameters, temporary, strict=True) if not is_gone]
    made = tuple((f"g {p.name}", p.tensor.num_bytes) for p in gone)
    stays = tuple(p.tensor.num_bytes for p in retained)
    use = Use(backward.use.op, backward.use.takes, (*backward.use.makes, *made), stays)
    first = Step(backward.item, use, tuple(p.tensor.numel for p in retained))
    return (first, *(each for parameter in gone for each in _to_final(training, parameter)))


def _to_final(training: Training, parameter: Named) -> list[Step]:
    """In float32, then added to the gradient that is there or kept."""
    full = Tensor(parameter.tensor.shape, FLOAT)
    name, zeroed = f"g {parameter.name}", training.gradients is Gradients.ZEROED
    result: list[Step] = []
    if parameter.tensor.dtype != FLOAT:
        copy = Named(f"full {parameter.name}", full)
        item = op("aten::copy_", B, full, parameter.tensor)
        retained = Step(item, Use("aten::copy_", (name,), (), (full.num_bytes,)), (full.numel,))
        result.append(step(item, (name,), copy) if zeroed else retained)
        name = copy.name
    if zeroed:
        result.append(Step(op("aten::add_", B, full, full), Use("aten::add_", (name,)), (full.numel,)))
    return result
