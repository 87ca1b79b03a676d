"""What the network knows of a node before the run: made by gnnperf.gnn.data, listed in docs/features.md."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core.errors import InputError

# What a column is, and the check of a table where it enters a package.


@dataclass(frozen=True)
class Column:
    """One column of a table: its numpy or pandas dtype, its unit and what it means."""

    name: str
    dtype: str
    unit: str
    meaning: str


def names(columns: tuple[Column, ...]) -> tuple[str, ...]:
    """Their names, in order."""
    return tuple(column.name for column in columns)


def validate(frame: pd.DataFrame, columns: tuple[Column, ...], where: str) -> None:
    """Refuse a table without these columns, or with other dtypes, where it enters a package."""
    for column in columns:
        if column.name not in frame.columns:
            raise InputError(f"column {column.name!r} is missing", where=where, allowed=", ".join(names(columns)))
        result = str(frame[column.name].dtype)
        if result != column.dtype and np.dtype("O") != frame[column.name].dtype:
            raise InputError(f"column {column.name!r} has dtype {result}", where=where, allowed=column.dtype)


# Unknown is 0, next to a flag.
WORK_FEATURES = (
    Column("log_flops", "float32", "log flop", "FLOPs of the node"),
    Column("log_bytes", "float32", "log bytes", "bytes read and written"),
    Column("log_message_bytes", "float32", "log bytes", "bytes each rank sends in a collective"),
    Column("flops_unknown", "float32", "", "1: FLOPs unknown"),
    Column("bytes_unknown", "float32", "", "1: bytes unknown"),
    Column("message_bytes_unknown", "float32", "", "1: no collective, or its message unknown"),
    Column("log_intensity", "float32", "log flop/byte", "FLOPs per byte"),
    Column("log_num_inputs", "float32", "log", "tensors among the arguments"),
    Column("max_dims", "float32", "", "dimensions of the argument that has most"),
    Column("log_elements", "float32", "log elements", "of all arguments"),
    Column("log_largest", "float32", "log elements", "of the largest argument"),
    Column("log_second", "float32", "log elements", "of the second largest argument"),
    Column("log_first_dim", "float32", "log", "first dimension of the largest argument"),
    Column("log_last_dim", "float32", "log", "last dimension of the largest argument"),
    Column("dims_unknown", "float32", "", "1: shapes unknown"),
    Column("is_product", "float32", "", "1: a matrix product whose sizes are known"),
    Column("log_batch", "float32", "log", "products: how many of them"),
    Column("log_m", "float32", "log", "products: rows of the result"),
    Column("log_n", "float32", "log", "products: columns of the result"),
    Column("log_k", "float32", "log", "products: length of the sums"),
    Column("align_m", "float32", "log2", "largest power of two that divides m, up to 64"),
    Column("align_n", "float32", "log2", "... n"),
    Column("align_k", "float32", "log2", "... k"),
    Column("align_last_dim", "float32", "log2", "... the last dimension of the largest argument"),
    Column("log_waves", "float32", "log", "tiles of 128 x 128 (else blocks of 1024 elements) per SM"),
    Column("wave_efficiency", "float32", "", "waves / whole waves: how full the last one is"),
    Column("log_compute_us", "float32", "log us", "FLOPs / sustained rate of the dtype"),
    Column("log_memory_us", "float32", "log us", "bytes / sustained bandwidth"),
    Column("is_memory_bound", "float32", "", "1: the second is the longer one"),
    Column("log_bytes_per_cache", "float32", "log", "bytes / last-level cache"),
    Column("log_moved_between", "float32", "log bytes", "moved by this thread since it last ran the op: cold caches"),
    Column("log_ordinal", "float32", "log", "position among the kernels of its op call"),
    Column("log_num_siblings", "float32", "log", "kernels of its op call"),
    Column("log_from_first", "float32", "log", "nodes of its lane before it in the step"),
    Column("log_to_last", "float32", "log", "nodes of its lane after it in the step"),
    Column("log_analytic_us", "float32", "log us", "the analytical model's prediction"),
    Column("analytic_unknown", "float32", "", "1: it has none"),
    Column("log_base_us", "float32", "log us", "what the residual multiplies"),
    Column("log_world_size", "float32", "log", "ranks of the run"),
    Column("log_group_size", "float32", "log", "collective: ranks of its group"),
    Column("group_size_unknown", "float32", "", "1: no collective, or its group unknown"),
    Column("log_machines", "float32", "log", "collective: machines that its group spans (hops of a ring between them)"),
    Column("is_first_rank", "float32", "", "1: rank 0, which often does more (first stage of a pipeline, logging)"),
    Column("is_last_rank", "float32", "", "1: the last rank (last stage of a pipeline: the loss)"),
    Column("rank_share", "float32", "", "rank / (ranks - 1)"),
    Column("from_split", "float32", "", "collective: ranks hold parts before it"),
    Column("from_partial", "float32", "", "... terms of a sum"),
    Column("from_replicate", "float32", "", "... the same"),
    Column("to_split", "float32", "", "collective: ranks hold parts after it"),
    Column("to_replicate", "float32", "", "... the same"),
    Column("log_ranks_per_node", "float32", "log", "ranks of a machine"),
    Column("log_host_speed", "float32", "log", "single-thread speed of the host, relative"),
    Column("log_link_bytes_per_s", "float32", "log bytes/s", "slowest link it crosses, sustained; 0: none"),
    Column("log_link_latency_us", "float32", "log us", "its latency; 0: none"),
    Column("crosses_machines", "float32", "", "1: that link joins machines"),
    Column("log_flops_per_sm", "float32", "log flop/s", "sustained rate of the dtype, per SM or core"),
    Column("log_bandwidth_per_sm", "float32", "log bytes/s", "sustained memory bandwidth, per SM or core"),
    Column("log_cache_per_sm", "float32", "log bytes", "last-level cache, per SM or core"),
    Column("log_num_sms", "float32", "log", "SMs or cores"),
)
NUM_TEXT_FEATURES = 32  # next to them, text_0 ...: pieces of the op's name, hashed (gnnperf.gnn.data.numbers)
