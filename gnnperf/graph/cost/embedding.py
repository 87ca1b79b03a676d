"""Embedding lookups: rows gathered, pooled, written; backward: gradients scattered. Reuse in cache is not counted."""

from math import nan, prod

from gnnperf.core import OpFamily
from gnnperf.graph.cost.op_call import Formula, OpCall, UnknownCost, Work, of_ops, total_bytes


def embedding(call: OpCall) -> Work:
    """embedding(weight [rows, dim], indices): each looked-up row read and written."""
    weight, indices = call.tensor(0), call.tensor(1)
    return Work(0.0, indices.num_bytes + 2.0 * indices.numel * weight.shape[-1] * weight.item_bytes)


def embedding_dense_backward(call: OpCall) -> Work:
    """embedding_dense_backward(grad_output, indices, num_weights, ...): the dense gradient is zeroed, then added to."""
    grad, indices = call.tensor(0), call.tensor(1)
    table_bytes = call.integers(2)[0] * grad.shape[-1] * grad.item_bytes
    return Work(float(grad.numel), indices.num_bytes + 3.0 * grad.num_bytes + table_bytes)


def embedding_bag(call: OpCall) -> Work:
    """_embedding_bag(weight [rows, dim], indices [n], offsets [bags], ...): n rows read, one row per bag written."""
    weight, indices, offsets = call.tensor(0), call.tensor(1), call.tensor(2)
    dim = weight.shape[-1]
    bags = indices.shape[0] if len(indices.shape) == 2 else offsets.numel
    rows_bytes = (indices.numel + bags) * dim * weight.item_bytes
    return Work(float(indices.numel * dim), total_bytes(indices, offsets) + rows_bytes)


def _bag_backward(num_weights_at: int | None) -> Formula:
    """_embedding_bag_*_backward(grad [bags, dim], indices [n], ...): grad read, n rows written, dense: table zeroed."""

    def formula(call: OpCall) -> Work:
        grad, indices = call.tensor(0), call.tensor(1)
        dim = grad.shape[-1]
        rows = indices.numel * dim * grad.item_bytes
        if num_weights_at is None:
            return Work(0.0, indices.num_bytes + grad.num_bytes + rows)
        table_bytes = call.integers(num_weights_at)[0] * dim * grad.item_bytes
        return Work(float(indices.numel * dim), indices.num_bytes + grad.num_bytes + 2.0 * rows + table_bytes)

    return formula


def fbgemm_lookup(call: OpCall) -> Work:
    """fbgemm's split_embedding_codegen_lookup_*: n rows read, one row per bag and table written in float32.

    (host_weights, dev_weights, uvm_weights, lxu_cache_weights, placements, weights_offsets, D_offsets [tables + 1],
    total_D, max_D, hash_size_cumsum, total_hash_size_bits, indices [n], offsets [tables * batch + 1], ...). Rows have
    the tables' mean dimension, total_D / tables: exact if dimensions are equal or every table has the same pooling
    factor. Files that record no values do not say total_D.
    """
    weights, d_offsets, indices, offsets = (call.tensor(i) for i in (1, 6, 11, 12))
    tables = d_offsets.numel - 1
    if tables < 1 or offsets.numel < tables + 1:
        raise UnknownCost
    read = total_bytes(indices, offsets)
    total_dim = call.integers(7)[0]
    batch = (offsets.numel - 1) // tables
    gathered = indices.numel * total_dim / tables
    pooled = batch * total_dim
    return Work(gathered, read + gathered * weights.item_bytes + pooled * 4.0)


def copies(factor: float) -> Formula:
    """fbgemm ops that move their first tensors: `factor` times the bytes of all recorded tensors."""
    return lambda call: Work(0.0, factor * total_bytes(*call.all_tensors()))


def quantize(item_bytes: float) -> Formula:
    """fbgemm (de)quantization(input, ...): input read, as many elements of `item_bytes` written."""
    return lambda call: Work(
        2.0 * prod(call.tensor(0).shape), call.tensor(0).num_bytes + call.tensor(0).numel * item_bytes
    )


SPLIT_OPTIMIZERS = ("rowwise_adagrad", "adagrad", "sgd", "adam", "lamb", "lars_sgd", "partial_rowwise_adam",
                    "partial_rowwise_lamb", "none", "rowwise_adagrad_with_counter")  # fmt: skip
_PERMUTE = "torch::autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction<&fbgemm_gpu::permute_pooled_embs_gpu>"
_MOVING = """
permute_2D_sparse_data permute_1D_sparse_data permute_sparse_features permute_pooled_embs permute_pooled_embs_auto_grad
recat_embedding_grad_output_mixed_D_batch asynchronous_complete_cumsum asynchronous_exclusive_cumsum
asynchronous_inclusive_cumsum
"""
FORMULAS: dict[OpFamily, dict[str, Formula]] = {
    OpFamily.EMBEDDING: {
        "aten::embedding": embedding,
        "aten::embedding_dense_backward": embedding_dense_backward,
        # (grad_output, indices, ...): the gradient's values are grad_output itself
        "aten::embedding_sparse_backward": lambda call: Work(0.0, total_bytes(call.tensor(1))),
        **of_ops("_embedding_bag _embedding_bag_forward_only embedding_bag", embedding_bag),
        "aten::_embedding_bag_dense_backward": _bag_backward(num_weights_at=5),
        "aten::_embedding_bag_sparse_backward": _bag_backward(num_weights_at=None),
        **{f"fbgemm::split_embedding_codegen_lookup_{o}_function": fbgemm_lookup for o in SPLIT_OPTIMIZERS},
        **dict.fromkeys(  # known ops whose recorded inputs do not determine their cost
            (f"torch::autograd::CppNode<SplitLookupFunction_{o}_Op>" for o in SPLIT_OPTIMIZERS),
            lambda call: Work(nan, nan),
        ),
    },
    OpFamily.INDEXING: {
        **of_ops(_MOVING, copies(2.0), prefix="fbgemm::"),
        **dict.fromkeys((f"{_PERMUTE} >", f"{_PERMUTE}>", "fb::asynchronous_complete_cumsum"), copies(2.0)),
        "fbgemm::bounds_check_indices": copies(1.0),  # reads; writes only what is out of bounds
        "fbgemm::block_bucketize_sparse_features": copies(3.0),  # reads twice (count, place), writes once
    },
    OpFamily.COPY: {
        **of_ops(
            "FloatToFP8RowwiseQuantized FloatToHFP8Quantized FloatOrHalfToFused8BitRowwiseQuantized",
            quantize(1.0), prefix="fbgemm::",
        ),
        **of_ops(
            "FP8RowwiseQuantizedToFloat HFP8QuantizedToFloat Fused8BitRowwiseQuantizedToFloat",
            quantize(4.0), prefix="fbgemm::",
        ),
    },
}  # fmt: skip
