"""A dispatch mode that completes collectives: nothing is sent, tensors keep their shapes, every call leaves a mark."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup
from torch._C._profiler import _RecordFunctionFast
from torch.distributed.distributed_c10d import GroupName
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Collectives that move nothing: each states in the profile when it was issued and when a program waited for it.
#
# main    |c10d::alltoall_base_ [issue 7]|  other ops  [wait 7]  next op The marks are ranges of the profiler;
# `logical_time` puts the transfer between them and takes them out.

MARK = "gnnperf::"
ISSUE, WAIT = MARK + "issue ", MARK + "wait "
SHARED = MARK + "shared"  # the first argument of the op around it is held by others too


def mark(text: str) -> None:
    """Leave a mark in the profile."""
    with _RecordFunctionFast(text):
        pass


@dataclass(frozen=True)
class Issued:
    """One rank's part in a collective, as it was called."""

    op: str  # name of the dispatcher's op, c10d::allreduce_
    group: tuple[int, ...]  # ranks of the process group
    peer: int | None  # of a send or receive: rank of the group at the other end; None of collectives
    tag: int  # of a send or receive
    dims: tuple[tuple[int, ...], ...]  # shapes of the tensors that are sent
    types: tuple[str, ...]  # their dtypes, as the profiler writes them


class FakeWork(dist.Work):
    """What an asynchronous collective returns: complete at once; `finish` is what the thread that waits does first."""

    def __init__(self, number: int, tensors: list[torch.Tensor], finish: Callable[[], object] | None = None) -> None:
        super().__init__()
        self._number, self._finish = number, finish
        self._future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
        self._future.set_result(tensors)

    def wait(self, *_: Any) -> bool:
        """Say in the profile that a program waits here."""
        mark(f"{WAIT}{self._number}")
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()
        return True

    def is_completed(self) -> bool:
        """It is."""
        return True

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Holds the tensors that were given: DDP unpacks them."""
        return self._future


Op = Any  # torch._ops.OpOverload
_PROCESS_GROUP = "c10d.ProcessGroup"
_OUTPUT_FIRST = ("_base_", "allgather_", "reduce_scatter_", "alltoall_", "gather_", "scatter_", "_coalesced_")
_REDUCE_SCATTER = "c10d::_reduce_scatter_base_"
_DIRECT = {"send": 2, "recv_": 2}  # -> position of the peer, after it the tag
_TYPE_NAMES = {  # torch dtype -> how the profiler writes it
    torch.float32: "float", torch.float64: "double", torch.float16: "c10::Half", torch.bfloat16: "c10::BFloat16",
    torch.int64: "long int", torch.int32: "int", torch.int16: "short int", torch.int8: "signed char",
    torch.uint8: "unsigned char", torch.bool: "bool",
}  # fmt: skip


# Ops whose cost is that of the ops that they are made of.
_COMPOSED = ("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full",
             "binary_cross_entropy_with_logits", "constant_pad_nd", "slice_backward", "select_backward",
             "split_with_sizes_copy", "_chunk_cat", "rand", "randn")  # fmt: skip


# Sparse gradients of embedding tables: tensors without data forget how many rows they hold, so it is kept next to.

_aten = torch.ops.aten
_ROWS = "_gnnperf_rows"  # attribute of a sparse tensor without data: (rows, columns) of its values
_FROM_LOOKUPS = {_aten._embedding_bag_backward.default: 1, _aten.embedding_sparse_backward.default: 1}  # -> its indices


def _note_rows(func: Any, args: Sequence[Any], result: Any) -> None:
    """Remember how many rows a sparse result holds: one per lookup, or as many as the tensor it is made from."""
    if not (isinstance(result, torch.Tensor) and result.layout == torch.sparse_coo):
        return
    place = _FROM_LOOKUPS.get(func)
    if place is not None:
        setattr(result, _ROWS, (args[place].numel(), args[0].shape[-1]))
        return
    known = [getattr(a, _ROWS) for a in args if isinstance(a, torch.Tensor) and hasattr(a, _ROWS)]
    if known:
        setattr(result, _ROWS, known[0])


def _look_into(func: Any, args: Sequence[Any]) -> None:
    """What a real op does inside and its cost is read from: a sum counts the rows, a gradient gathers them."""
    if func in (_aten.add_.Tensor, _aten.add.Tensor) and hasattr(args[1], _ROWS):
        _aten._nnz.default(args[1])
        values = torch.empty(getattr(args[1], _ROWS), dtype=args[1].dtype)
        _aten.to.dtype(values, args[1].dtype)
    if func is _aten._embedding_bag_backward.default:
        _aten.index_select.default(args[0], 0, args[1])  # one row per lookup


_OWN_REFERENCES, _STORAGE_REFERENCES = 4, 2  # of a tensor that only its caller in C++ holds, seen from inside the mode


def _is_shared(tensor: torch.Tensor) -> bool:
    """Whether someone else holds a tensor or its memory: autograd then adds to a copy, not in place."""
    held = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata) if tensor.layout == torch.strided else 0
    held_by: int = tensor._use_count()  # type: ignore[attr-defined]
    return held_by > _OWN_REFERENCES or held > _STORAGE_REFERENCES


_ZEROED = re.compile(r"aten::upsample_\w+_backward")  # begin with zeros and add to them


class Communication(TorchDispatchMode):
    """Completes ops of c10d, and those of functional collectives through c10d's, as the real ones do."""

    def __init__(self) -> None:
        super().__init__()
        self.issued: list[Issued] = []
        self._works: list[FakeWork] = []  # C++ holds them, but not their Python part

    def __torch_dispatch__(
        self, func: Op, types: Iterable[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Complete a collective; hand every other op on."""
        if func.namespace == "c10d":
            return self._issue(func, args)
        if func.namespace == "profiler":  # opens or closes a range: not inside another one
            return func(*args, **(kwargs or {}))
        through = _FUNCTIONAL.get(func)
        if through is not None:
            with self:  # what it calls is a collective of c10d, to be completed here
                return through(*args, **(kwargs or {}))
        if func.namespace == "fsdp":  # written in ops: those are what a rank runs
            with self:
                return func._op_dk(torch._C.DispatchKey.CPU, *args, **(kwargs or {}))
        if func.namespace == "aten" and func._schema.name.removeprefix("aten::") in _COMPOSED:
            with self:  # the parts that a real one runs, too
                return func._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **(kwargs or {}))
        if func is _aten.add.Tensor and _is_shared(args[0]):
            mark(SHARED)
        with self:
            _look_into(func, args)
        outcome = func(*args, **(kwargs or {}))
        if _ZEROED.fullmatch(func._schema.name):
            with self:
                outcome.zero_()
        _note_rows(func, args, outcome)
        return outcome

    def _issue(self, func: Op, args: Sequence[Any]) -> Any:
        name = func.name().split(".")[0]
        number, results = len(self._works), list(_tensors(args[0]))
        boxed_group = next(a for a in args if isinstance(a, torch.ScriptObject) and _PROCESS_GROUP in str(a._type()))
        group = dist.get_process_group_ranks(ProcessGroup.unbox(boxed_group))
        place = _DIRECT.get(name.removeprefix("c10d::"))
        peer, tag = (int(args[place]), int(args[place + 1])) if place else (None, 0)
        second = name.endswith(_OUTPUT_FIRST) and next(_tensors(args[1]), None) is not None
        sent = list(_tensors(args[1] if second else args[0]))
        self.issued.append(Issued(name, tuple(group), peer, tag, tuple(tuple(t.shape) for t in sent),
                                  tuple(_TYPE_NAMES.get(t.dtype, str(t.dtype)) for t in sent)))  # fmt: skip
        mark(f"{ISSUE}{number}")  # it is issued now
        finish = None
        if name == _REDUCE_SCATTER:  # gloo reduces a copy of all of it, and whoever waits takes out its part
            with self:
                reduced = args[1].clone()
            finish = partial(_take_part, args[0], reduced, len(group))
        self._works.append(FakeWork(number, results, finish))
        boxed = self._works[-1].boxed()
        return boxed if len(func._schema.returns) == 1 else (args[0], boxed)


def _take_part(result: torch.Tensor, reduced: torch.Tensor, parts: int) -> None:
    result.copy_(reduced.chunk(parts)[0])


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))


# --- functional collectives (DTensor): what their C++ does, in the same ops -----------------------------------------


def _resolved(name: str) -> ProcessGroup:
    return torch._C._distributed_c10d._resolve_process_group(GroupName(name))


def _all_reduce_(tensor: torch.Tensor, op: str, group: str) -> torch.Tensor:
    dist.all_reduce(tensor, group=_resolved(group), async_op=True)
    return tensor


def _all_gather(tensor: torch.Tensor, size: int, group: str) -> torch.Tensor:
    outcome = tensor.new_empty((tensor.shape[0] * size, *tensor.shape[1:]))
    dist.all_gather_into_tensor(outcome, tensor, group=_resolved(group), async_op=True)
    return outcome


def _reduce_scatter(tensor: torch.Tensor, op: str, size: int, group: str) -> torch.Tensor:
    outcome = tensor.new_empty((tensor.shape[0] // size, *tensor.shape[1:]))
    dist.reduce_scatter_tensor(outcome, tensor, group=_resolved(group), async_op=True)
    return outcome


def _all_to_all(tensor: torch.Tensor, receive: list[int], send: list[int], group: str) -> torch.Tensor:
    outcome = tensor.new_empty((sum(receive), *tensor.shape[1:]))
    dist.all_to_all_single(outcome, tensor, receive, send, group=_resolved(group), async_op=True)
    return outcome


_c10d = torch.ops._c10d_functional
_FUNCTIONAL: Mapping[Op, Callable[..., torch.Tensor]] = {
    _c10d.all_reduce.default: lambda x, *rest: _all_reduce_(x.clone(memory_format=torch.contiguous_format), *rest),
    _c10d.all_reduce_.default: _all_reduce_,
    _c10d.all_gather_into_tensor.default: _all_gather,
    _c10d.reduce_scatter_tensor.default: _reduce_scatter,
    _c10d.all_to_all_single.default: _all_to_all,
}
