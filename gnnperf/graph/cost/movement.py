"""Ops that move data without computing: copies, gathers, scatters; and views, which move nothing."""

from math import prod

from gnnperf.core import OpFamily
from gnnperf.graph.cost.op_call import Formula, OpCall, Tensor, UnknownCost, Work, broadcast, of_ops, total_bytes


def moved(*tensors: Tensor) -> Work:
    """Every byte read once and written once."""
    return Work(0.0, 2.0 * total_bytes(*tensors))


def index_select(call: OpCall) -> Work:
    """index_select(input, dim at 1, index): selected slices read and written."""
    x, index = call.tensor(0), call.tensor(2)
    try:
        axis = call.integers(1)[0]
    except UnknownCost:
        axis = 0  # none was recorded
    selected = x.numel / max(x.shape[axis], 1) * index.numel if x.shape else 1
    return Work(0.0, index.num_bytes + 2.0 * selected * x.item_bytes)


def gather(call: OpCall) -> Work:
    """gather(input, dim, index): one element read and one written per index."""
    x, index = call.tensor(0), call.tensor(2)
    return Work(0.0, index.num_bytes + 2.0 * index.numel * x.item_bytes)


def scatter(call: OpCall) -> Work:
    """scatter_(self, dim, index, source), scatter_add_: source read, destination read and written at each index."""
    x, index = call.tensor(0), call.tensor(2)
    add = "add" in call.name or "reduce" in call.name
    return Work(float(index.numel) if add else 0.0, index.num_bytes + 3.0 * index.numel * x.item_bytes)


def index_add(call: OpCall) -> Work:
    """index_add_(self, dim, index, source), index_copy_: whole slices read, and read and written."""
    index, source = call.tensor(2), call.tensor(3)
    return Work(float(source.numel), index.num_bytes + 3.0 * source.num_bytes)


def index(call: OpCall) -> Work:
    """index(input, indices): a null index keeps its axis (recorded as shape [])."""
    x, places = call.tensor(0), call.tensor_list(1)
    retained = [n for d, n in enumerate(x.shape) if d >= len(places) or not places[d].shape]
    selected = prod(retained) * prod(broadcast([p.shape for p in places if p.shape]))
    return Work(0.0, _index_bytes(places) + 2.0 * selected * x.item_bytes)


def _index_bytes(places: tuple[Tensor, ...]) -> float:
    return 8.0 * sum(p.numel for p in places if p.shape)  # indices are int64


def index_put(call: OpCall) -> Work:
    """index_put_(self, indices, values, accumulate): values read, self read and written there."""
    values = call.tensor(2)
    places = call.lists[1] or ()
    return Work(float(values.numel), _index_bytes(places) + 3.0 * values.num_bytes)


def nothing(call: OpCall) -> Work:
    """Views, allocations and questions about a tensor: no memory is touched."""
    return Work(0.0, 0.0)


_VIEWS = """
view _unsafe_view reshape _reshape_alias view_as reshape_as flatten unflatten t transpose permute swapaxes movedim
expand expand_as broadcast_to squeeze unsqueeze select slice narrow split split_with_sizes chunk unbind as_strided alias
detach unsafe_split unsafe_chunk unsafe_split_with_sizes tensor_split vsplit hsplit unfold diagonal numpy_T mT adjoint
view_as_real view_as_complex lift lift_fresh resolve_conj resolve_neg
"""
_WRAPPERS = """
to contiguous type_as dropout feature_dropout zeros zeros_like ones ones_like full full_like new_zeros new_ones new_full
"""
_ALLOCATIONS = """
empty empty_like empty_strided new_empty new_empty_strided resize_ resize_as_ set_ rand randn randint rand_like
randn_like scalar_tensor _sparse_coo_tensor_unsafe _sparse_coo_tensor_with_dims_and_tensors _coalesced_
"""
_QUESTIONS = """
size stride result_type can_cast is_floating_point is_same_size is_pinned is_nonzero is_coalesced item record_stream
requires_grad_ retain_grad _version data_ptr _nnz _indices _values indices values sparse_dim dense_dim
_has_compatible_shallow_copy_type
"""

FORMULAS: dict[OpFamily, dict[str, Formula]] = {
    OpFamily.VIEW: {
        **of_ops(_VIEWS + _WRAPPERS + _ALLOCATIONS + _QUESTIONS, nothing),
        **of_ops("detach detach_", nothing, prefix=""),
    },
    OpFamily.COPY: {
        # copy_(destination, source): source read (before broadcasting), destination written
        "aten::copy_": lambda call: Work(0.0, total_bytes(call.tensor(0), call.tensor(1))),
        **of_ops("_to_copy clone flip roll tril triu _pin_memory pin_memory", lambda call: moved(call.tensor(0))),
        **of_ops("cat _cat concat stack", lambda call: moved(*call.tensor_list(0))),
        "aten::_foreach_copy_": lambda call: Work(0.0, total_bytes(*call.tensor_list(0), *call.tensor_list(1))),
    },
    OpFamily.INDEXING: {
        "aten::index_select": index_select,
        "aten::gather": gather,
        **of_ops("scatter scatter_add scatter_reduce", scatter),
        **of_ops("index_add index_copy", index_add),
        **of_ops("index _unsafe_index", index),
        **of_ops("index_put _index_put_impl_", index_put),
    },
}
