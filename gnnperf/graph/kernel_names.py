"""Kernels that Inductor fused, where no op says their sizes: what their own names tell.

triton_poi_fused_add_mul_0, triton_red_fused_..., triton_per_fused_...: the name tells the family and the ops. It does
not tell sizes: they are taken from ops of that name elsewhere in the trace, if all of them have the same. Names are
those of one torch version and one compiled program, so nothing is carried from one trace to another.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnnperf.core import EventKind
from gnnperf.graph.cost import fused_name, op_family
from gnnperf.graph.event_columns import RankEvents, by_category
from gnnperf.graph.op_costs import OpCosts, launching_op_costs


def by_kernel_name(events: RankEvents, kernel: np.ndarray, costs: OpCosts) -> OpCosts:
    """Costs with family and sizes of fused kernels that no formula covers yet.

    Args:
        events: of the rank.
        kernel: [n] event id of the kernel; -1: not one kernel.
        costs: [n] by the ops behind them.
    """
    name = fused_names(events)  # [num_events]
    asked = np.flatnonzero((kernel >= 0) & (name[kernel] != "") & (costs.event < 0))
    if not len(asked):
        return costs
    names = name[kernel[asked]].tolist()
    ops = _ops_of_one_size(events, name)
    told = launching_op_costs(events, np.array([ops.get(one, -1) for one in names]))
    family = np.array([str(op_family(one)) for one in names], dtype=object)
    found = replace(costs, event=costs.event.copy(), flops=costs.flops.copy(), bytes=costs.bytes.copy(),
                    family=costs.family.copy(), dtype=costs.dtype.copy())  # fmt: skip
    found.event[asked], found.flops[asked], found.bytes[asked] = told.event, told.flops, told.bytes
    found.family[asked], found.dtype[asked] = family, told.dtype
    return found


def fused_names(events: RankEvents) -> np.ndarray:
    """[num_events] object, what Inductor called each event; "" of everything else."""
    return by_category(events.table.events["name"], lambda name: fused_name(name) or "", object)


def _ops_of_one_size(events: RankEvents, name: np.ndarray) -> dict[str, int]:
    """Name -> an op of that name, where all ops of the name have the same shapes and types."""
    frame = events.table.events
    ops = np.flatnonzero((name != "") & (events.kind == EventKind.CPU_OP))
    sizes = np.stack([frame[column].cat.codes.to_numpy()[ops] for column in ("input_dims", "input_types")])  # [2, n]
    found: dict[str, int] = {}
    for one in set(name[ops].tolist()):
        places = np.flatnonzero(name[ops] == one)
        if (sizes[:, places] == sizes[:, places[:1]]).all():
            found[one] = int(ops[places[0]])
    return found
