"""What a call leaves behind: which memory its results need, and which tensors autograd keeps for the backward.

Nothing of this is in a trace, and all of it follows from op, shapes and dtypes. So torch is requested: the op is run on
tensors of the meta device, which have shapes and no data, and the autograd node that it leaves states what it saved.
Strides are not recorded: tensors are taken as contiguous. Where that decides whether something is copied (reshape,
contiguous, to), the trace itself shows the copy as an op of its own.
"""

import ast
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any
from warnings import catch_warnings

import torch
from torch.utils._pytree import tree_leaves

from gnnperf.memory.effects import CannotTell, Effect, Result
from gnnperf.memory.storages import Slot, TensorSlot

_LEFT_OUT = ("layout", "pin_memory", "memory_format", "generator")  # none of them changes a size
# c10::ScalarType, as traces write a dtype argument.
_SCALAR_TYPES = {0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64",
                 8: "complex32", 9: "complex64", 10: "complex128", 11: "bool", 15: "bfloat16"}  # fmt: skip
_NODES_READ = 3  # results whose autograd nodes are looked at


def is_composite(name: str) -> bool | None:
    """Whether an op is nothing but the ops that it calls, for autograd too: all forms but `out` are; None: no op."""
    names = [overload.name() for overload in _overloads(name)]
    if not names:
        return None
    real = [n for n in names if not n.endswith("out") and torch._C._dispatch_has_kernel(n)]  # some are for scripts only
    key = "CompositeImplicitAutograd"
    return bool(real) and all(torch._C._dispatch_has_kernel_for_dispatch_key(n, key) for n in real)


def _overloads(name: str) -> list[Any]:
    namespace, _, op = name.partition("::")
    packet = getattr(torch.ops.aten, op, None) if namespace == "aten" and op.isidentifier() else None
    if not isinstance(packet, torch._ops.OpOverloadPacket):  # the namespace has attributes that are no ops
        return []
    return [getattr(packet, overload) for overload in packet.overloads()]


def effect_of(name: str, slots: tuple[Slot, ...]) -> Effect:
    """Run the op without data."""
    for overload in _overloads(name):
        if len(overload._schema.arguments) != len(slots) or not _is_harmless(overload, slots):
            continue
        try:
            return _run(overload, slots)
        except (CannotTell, RuntimeError, NotImplementedError, TypeError, ValueError, LookupError, AssertionError):
            continue  # another overload, or none: the caller is given
    raise CannotTell(name)


def _is_harmless(overload: Any, slots: tuple[Slot, ...]) -> bool:
    """Whether a stranger's trace may have it called: on tensors, or to make one from numbers on a device.

    Torch has ops that are neither: aten::save writes a file, aten::from_file maps one, aten::print prints.
    """
    arguments = overload._schema.arguments
    if any(argument.name == "filename" for argument in arguments):
        return False
    if any(isinstance(slot, TensorSlot) or (isinstance(slot, tuple) and slot) for slot in slots):
        return True
    return any(a.name == "device" for a in arguments) and not any("str" in str(a.type) for a in arguments)


def _run(overload: Any, slots: tuple[Slot, ...]) -> Effect:
    tensors: list[torch.Tensor] = []
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for argument, slot in zip(overload._schema.arguments, slots, strict=True):
        if argument.name in _LEFT_OUT:
            continue
        if argument.name == "device":
            named["device"] = torch.device("meta")
            continue
        given, value = _value(argument, slot, tensors)
        if given and (argument.kwarg_only or named):
            named[argument.name] = value
        elif given:
            positional.append(value)
        else:
            named[argument.name] = None if "Optional" in str(argument.type) else argument.default_value
    with torch.enable_grad(), catch_warnings(action="ignore"):  # warnings concern the recorded program
        result = list(_flat(overload(*positional, **named)))
    return _read(tensors, result)


def _value(argument: Any, slot: Slot, tensors: list[torch.Tensor]) -> tuple[bool, Any]:
    """Whether the argument was given, and what."""
    kind = str(argument.type)
    if not isinstance(slot, str):
        if "Tensor" not in kind or ("List" in kind) != isinstance(slot, tuple):
            raise CannotTell
        made = [_tensor(t) for t in (slot if isinstance(slot, tuple) else (slot,))]
        tensors += made
        return True, made if isinstance(slot, tuple) else made[0]
    if "Tensor" in kind:
        if slot or kind != "Optional[Tensor]":
            raise CannotTell
        return True, None
    if slot == "":
        if not argument.has_default_value() and "Optional" not in kind:
            raise CannotTell
        return False, None
    value = _parsed(slot)
    return True, getattr(torch, _SCALAR_TYPES[value]) if argument.name == "dtype" else value


def _parsed(text: str) -> Any:
    with suppress(ValueError, SyntaxError):
        return ast.literal_eval(text)
    try:
        return float(text)  # inf, nan
    except ValueError:
        raise CannotTell from None


def _tensor(slot: TensorSlot) -> torch.Tensor:
    made = torch.empty(slot.shape, dtype=getattr(torch, slot.dtype or "float32"), device="meta")
    return made.requires_grad_().clone() if slot.requires_grad and made.is_floating_point() else made


def _flat(value: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))


def _memory(tensor: torch.Tensor) -> int:
    if tensor.layout is not torch.strided:
        raise CannotTell
    return tensor.untyped_storage()._cdata


def _read(tensors: Sequence[torch.Tensor], result: Sequence[torch.Tensor]) -> Effect:
    inputs = {_memory(t): i for i, t in reversed(list(enumerate(tensors)))}
    first: dict[int, int] = {}
    results = []
    for place, tensor in enumerate(result):
        key = _memory(tensor)
        results.append(Result(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."),
                              tensor.untyped_storage().nbytes(), inputs.get(key), first.get(key)))  # fmt: skip
        first.setdefault(key, place)
    saved = {_memory(t): t.untyped_storage().nbytes() for t in _saved(result) if t.layout is torch.strided}
    others = [num_bytes for key, num_bytes in saved.items() if key not in inputs and key not in first]
    return Effect(
        tuple(results), frozenset(i for i, t in enumerate(tensors) if _memory(t) in saved),
        frozenset(first[key] for key in saved if key in first and key not in inputs), sum(others),
    )  # fmt: skip


def _saved(result: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    for tensor in result[:_NODES_READ]:
        node = tensor.grad_fn
        for name in dir(node) if node is not None else ():
            if name.startswith("_saved_"):
                yield from _flat(getattr(node, name))
