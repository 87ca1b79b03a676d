"""Which nodes a known change touches, given before anything is measured: a rule per kind of change."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, OpFamily, Phase, Segment
from gnnperf.whatif.reference_run import Aligned
from gnnperf.whatif.units import host_units


def transfers(pair: Aligned) -> np.ndarray:
    """[num_nodes] bool: collectives' transfers and exits: what another link changes."""
    nodes = pair.step.nodes
    return ((nodes["node_type"] == NodeType.COLLECTIVE) | (nodes["segment"] == Segment.EXIT)).to_numpy()


def changed_inputs(pair: Aligned) -> np.ndarray:
    """[num_nodes] bool: calls and messages of other sizes: what a larger table or batch changes, on whichever rank.

    A call counts as a whole, with the gap before it, in which its inputs are prepared and earlier results freed. The
    gradient of a table may be sparse: then its shape is the table's, however many rows were looked up. So where
    look-ups changed, the optimizer's calls on the same table count too.
    """
    known = pair.matched >= 0
    mine, other = pair.step.nodes, pair.reference_run.nodes.iloc[np.maximum(pair.matched, 0)]
    dims = (_texts(mine["input_dims"]) != _texts(other["input_dims"])) & known
    before, after = mine["message_bytes"].to_numpy(), other["message_bytes"].to_numpy()
    sent = (before != after) & ~(np.isnan(before) & np.isnan(after)) & known
    return _whole_calls(pair, dims | _updates_of_tables(mine, dims)) | sent


def _texts(column: pd.Series) -> np.ndarray:
    return column.astype("str").fillna("").to_numpy(dtype=object)


def _whole_calls(pair: Aligned, touched: np.ndarray) -> np.ndarray:
    """[num_nodes] bool: these nodes, and all host nodes of their calls that the donor has too."""
    unit = host_units(pair.step)
    return touched | (np.isin(unit, unit[touched & (unit >= 0)]) & (pair.matched >= 0))


def _updates_of_tables(nodes: pd.DataFrame, changed: np.ndarray) -> np.ndarray:
    """[num_nodes] bool: calls of the optimizer on tables whose look-ups changed."""
    looked_up = changed & (nodes["family"] == OpFamily.EMBEDDING).to_numpy()
    tables = {_first_shape(dims) for dims in nodes["input_dims"][looked_up].dropna().unique()} - {""}
    updates = (nodes["phase"] == Phase.OPTIMIZER).to_numpy() & nodes["input_dims"].notna().to_numpy()
    result = np.zeros(len(nodes), dtype=bool)
    result[updates] = [_first_shape(dims) in tables for dims in nodes["input_dims"][updates]]
    return result


def _first_shape(dims: str) -> str:
    """`[[4,2],[3]]` -> `[4,2]`; "" if the first input is no tensor."""
    shapes = json.loads(dims)
    return json.dumps(shapes[0]) if shapes and shapes[0] else ""
