"""Lookups in many embedding tables by one kernel, the update of their rows by another one (fbgemm's batched tables).

    look up   every index reads a row, a bag's rows are summed, one vector per bag and table is written
    update    gradients of vectors are read once per index, those of one row are merged, every different row and its
              optimizer state is read and written: no gradient of a table is ever stored

Khudia et al. 2021 (FBGEMM), Mudigere et al. 2022 ("Software-hardware co-design for fast and scalable training of deep
learning recommendation models", exact optimizers fused with the backward pass). Tables follow each other in the launch
grid, so each one is looked up from a cache that holds nothing of it; rows that are requested again come from the
cache as far as it holds them (`embedding.model`). A block of threads takes 128 columns at a time; shorter
rows leave a part of it idle and count as BUSY_COLUMNS.

A planned lookup states its tables instead of tensors: `input_dims` is one list of BatchedTable, whole numbers each.
"""

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

import numpy as np

from gnnperf.analytic.embedding.model import INDEX_BYTES, LookupCosts, Lookups, lookup_costs, lookup_us
from gnnperf.analytic.kernels.call import Array, KernelCall, Setting
from gnnperf.graph import UnknownCost

LOOK_UP, UPDATE = "planned::batched_lookup", "planned::batched_lookup_update"
# An update linearizes and sorts indices, finds runs and long ones of them, then updates by blocks and by warps: 9
# kernels in the recorded run dlrm-8, 12 in torchrec's (gnnperf data list). Of the nine, linearizing and sorting have
# nodes of their own.
LAUNCHES = {LOOK_UP: 1, UPDATE: 7}
SKEW_UNIT = 1e-3  # dims are whole numbers
# Columns of a row -> columns that keep as many threads busy: 1.75 x 32, 1.15 x 64 and 128, the penalties and the least
# row of torchrec's planner (torchrec/distributed/planner/constants.py: QUARTER_BLOCK_PENALTY, HALF_BLOCK_PENALTY,
# FULL_BLOCK_EMB_DIM, "empirical studies"), straight lines between them.
BUSY_COLUMNS = {32.0: 56.0, 64.0: 73.6, 128.0: 128.0}


@dataclass(frozen=True)
class BatchedTable:
    """One table, or a part of one, as a batched lookup meets it."""

    rows: int  # that are here
    dim: int  # columns that are here, float32
    lookups: int  # indices
    bags: int  # vectors written
    skew_thousandths: int = 1000  # 1000 x the exponent of the access (see gnnperf.generate.recommendation.plan)
    state_bytes: int = 0  # of the optimizer per row that is here; of a lookup: 0


WIDTH = len(fields(BatchedTable))


def stated(tables: Sequence[BatchedTable]) -> str:
    """`input_dims` of a batched lookup."""
    return json.dumps([[list(astuple(table)) for table in tables]])


def batched_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us of batched lookups and updates; NaN: another op, or tables that are not stated."""
    result = np.full(len(calls), np.nan)
    costs = lookup_costs(setting.device, setting.memory)
    for name in (LOOK_UP, UPDATE):
        known = [(row, tables) for row, call in enumerate(calls) if call.op_name == name for tables in _tables(call)]
        if not known:
            continue
        parts = [tables for _, tables in known]
        each, of_part = np.unique(np.concatenate(parts), axis=0, return_inverse=True)  # tables repeat over ranks
        own = _update_us(each, costs) if name == UPDATE else lookup_us(_lookups(each), costs) - costs.call
        us = own[of_part.ravel()]  # [tables of all calls] without a launch
        first = np.cumsum([0, *map(len, parts[:-1])])
        result[[row for row, _ in known]] = LAUNCHES[name] * costs.call + np.add.reduceat(us, first)
    return result


def _tables(call: KernelCall) -> list[np.ndarray]:
    """One array [k, WIDTH] of the tables stated; none where they are not."""
    try:
        shapes = [tensor.shape for tensor in call.parsed().tensor_list(0)]
    except UnknownCost:
        return []
    good = shapes and all(len(shape) == WIDTH and min(shape[:-1]) > 0 for shape in shapes)
    return [np.array(shapes, float)] if good else []


def _lookups(tables: np.ndarray) -> Lookups:
    rows, dim, lookups, bags, skew = tables[:, :-1].T
    ones = np.ones(len(tables))
    return Lookups(rows, busy_columns(dim), lookups, bags, skew * SKEW_UNIT, ones, ones < 1.0)


def busy_columns(dim: np.ndarray) -> np.ndarray:
    """Columns [k] that take as long as `dim` [k] do, with all threads of a block at work."""
    full = max(BUSY_COLUMNS)
    return np.where(dim >= full, dim, np.interp(dim, list(BUSY_COLUMNS), list(BUSY_COLUMNS.values())))


def _update_us(tables: np.ndarray, costs: LookupCosts) -> np.ndarray:
    """[k] us without launches: indices and gradients of vectors, then different rows with their state, both ways."""
    requested = _lookups(tables)
    different = requested.reuse.unique(requested.lookups)  # [k] rows
    line, state = costs.line_bytes, tables[:, -1]
    touched = np.maximum(requested.row_bytes, line) + np.where(state > 0, np.maximum(state, line), 0.0)
    far = requested.bags * requested.row_bytes + 2.0 * different * touched + requested.lookups * INDEX_BYTES  # bytes
    near = requested.lookups * requested.row_bytes  # bytes: a bag's gradient is read once more for each of its indices
    element_us = requested.lookups * requested.dim * costs.element
    return far * costs.byte + near * costs.near_line / line + element_us


def batched_work(tables: Sequence[BatchedTable], name: str) -> tuple[float, float]:
    """FLOPs and bytes of a call, reuse in caches not counted: as in the graph and for the roofline."""
    flops = float(sum(t.lookups * t.dim for t in tables))
    if name == LOOK_UP:
        return flops, float(sum(t.lookups * (INDEX_BYTES + 4 * t.dim) + t.bags * 4 * t.dim for t in tables))
    rows = sum(2 * min(t.lookups, t.rows) * (4 * t.dim + t.state_bytes) for t in tables)
    return flops, float(rows + sum(t.lookups * INDEX_BYTES + t.bags * 4 * t.dim for t in tables))
