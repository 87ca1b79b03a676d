"""Kernels by class on NeuSight's node tables: what a model's products, elementwise ops, ... take in all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from rich.table import Table

from gnnperf.analytic.memory_bound.constants import default_memory_constants
from gnnperf.gnn import summarize
from gnnperf.graph import Predictor
from research.benchmarks._whole_models import Row, kernels_us
from research.tables.model_labels import node_times, peer_node_times
from research.tables.observation import between_events_us

NEUSIGHT = "neusight"
CLASSES = {"BMM": "bmm", "Linear": "linear", "VECsoftmax": "softmax", "VECln": "layer norm"}
ELEMENTWISE = "elementwise"  # VECadd, VECmulu, VECgelu, ...
MEASURED, PEER = "measured", "NeuSight"


def class_of(kind: str) -> str | None:
    """The class of a kind of node; None: none that NeuSight reports."""
    return CLASSES.get(kind) or (ELEMENTWISE if kind.startswith("VEC") else None)


def class_sums(row: Row, who: Mapping[str, Predictor], folder: Path) -> pd.DataFrame | None:
    """[num_classes] us of all nodes of a class in the model, forward and backward, by everybody; None: not measured."""
    measured, peer = node_times(folder, row.label), peer_node_times(folder, row.label, NEUSIGHT)
    if measured is None or peer is None:
        return None
    nodes = [(call.op.name, class_of(call.op.kind), s.repeats) for s in row.sections for call in s.calls]
    retained = pd.DataFrame([n for n in nodes if n[1]], columns=["node", "class", "repeats"])
    tables = {MEASURED: measured, PEER: peer, **{name: kernels_us(row, each) for name, each in who.items()}}
    kinds = {call.op.name: call.op.kind for s in row.sections for call in s.calls}
    for name in who:
        tables[name] = between_events(tables[name], kinds)
    for name, table in tables.items():
        retained[name] = table.sum(axis=1).reindex(retained["node"]).to_numpy(float) * retained["repeats"]
    return retained.groupby("class")[list(tables)].sum(min_count=1)


def between_events(kernels: pd.DataFrame, kinds: Mapping[str, str]) -> pd.DataFrame:
    """[num_nodes] what two events around a node's pass read, from its kernels: the host's gap is in what is short.

    The gaps are those that ship, fitted on op tables; products are long, and taken as they are.
    """
    gaps = default_memory_constants().gaps
    result = kernels.copy()
    for node in kernels.index:
        gap = gaps.get(kinds[str(node)].removeprefix("VEC").lower())
        if gap is not None:
            own_us = kernels.loc[node].to_numpy(float)  # [2] forward and backward; 0: no kernel, no measurement
            result.loc[node] = np.where(own_us == 0.0, 0.0, between_events_us(own_us, gap))
    return result


def class_table(chosen: Sequence[Row], who: Mapping[str, Predictor], folder: Path) -> Table:
    """Errors of the sums, by GPU and class."""
    printed = Table("GPU", "class", "answer", "models", "mean %", "median %", "p90 %", "max %", "bias %")
    sums = [result.assign(GPU=row.label.device) for row in chosen
            if (result := class_sums(row, who, folder)) is not None]  # fmt: skip
    if not sums:
        return printed
    for (gpu, kind), part in pd.concat(sums).reset_index().groupby(["GPU", "class"]):
        for name in (*who, PEER):
            errors = summarize(part[name].to_numpy(float), part[MEASURED].to_numpy(float))
            shown = (errors.mean_ape, errors.median_ape, errors.p90_ape, errors.max_ape)
            printed.add_row(str(gpu), str(kind), name, str(errors.num_nodes), *(f"{100 * x:.1f}" for x in shown),
                            f"{100 * errors.bias:+.1f}")  # fmt: skip
        printed.add_section()
    return printed
