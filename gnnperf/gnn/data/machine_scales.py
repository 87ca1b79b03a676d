"""Labels of another data set, scaled to the speed of our machine by runs that both recorded.

    ratio of a node  = latency there / latency here, of the same node of the same run
    speed factor     = median ratio of its kind of node and family of ops, where enough nodes are shared
    label            = recorded there / speed factor

Unscaled labels would attribute the speed of a machine to its programs. A speed factor is a median over nodes, most of
which are short: long ops of a family may differ more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gnnperf.core import NodeType
from gnnperf.gnn.data.floors import NOTHING, texts_of
from gnnperf.gnn.data.runs import IsolatedLabels, RunStep, merged, node_kinds, run_of
from gnnperf.schedule import align

MIN_NODES = 30  # of a speed factor
MOST_UNKNOWN = 0.05  # of a step's time: with more in nodes without a factor, the recording is left out
LEVELS = (["kind", "family"], ["kind"])  # the finest that is given counts


@dataclass(frozen=True)
class MachineScales:
    """How many times as long another machine takes."""

    # kind of node (of ops with their dtype), and family of ops or nothing -> ratio
    of_kind: Mapping[tuple[str, ...], float]
    num_shared: int = 0  # runs that both recorded
    num_left_out: int = 0  # recordings left out, because too much of them has no factor

    def __str__(self) -> str:
        """In a line."""
        if not self.num_shared:
            return "shares no run with ours: its labels are as its machine took them"
        given = ", ".join(f"{key[0]} {ratio:.2f}" for key, ratio in sorted(self.of_kind.items()) if len(key) == 1)
        left_out = f"; left out, because of unknown speed: {self.num_left_out}" if self.num_left_out else ""
        return f"takes {given} times as long as ours, by {self.num_shared} shared runs{left_out}"

    def of(self, nodes: pd.DataFrame) -> np.ndarray:
        """[num_nodes] of a node table; NaN where no shared run has enough of the kind."""
        result = np.full(len(nodes), np.nan)
        for level in LEVELS:
            keys = _kinds(nodes)[level].itertuples(index=False, name=None)
            given = np.array([self.of_kind.get(key, np.nan) for key in keys])  # [num_nodes]
            result = np.where(np.isnan(result), given, result)
        return result


def machine_scales_of(pairs: Sequence[tuple[RunStep, RunStep]]) -> MachineScales:
    """Speed factors from pairs of the same run there and here; of no pairs none."""
    if not pairs:
        return MachineScales({})
    ratios = pd.concat([_ratios(there, here) for there, here in pairs], ignore_index=True)
    of_kind: dict[tuple[str, ...], float] = {}
    for level in LEVELS:
        by = ratios.groupby(level, observed=True)["ratio"]
        enough = by.median()[by.size() >= MIN_NODES]
        of_kind |= {key if isinstance(key, tuple) else (key,): float(ratio) for key, ratio in enough.items()}
    return MachineScales(of_kind, len(pairs))


def paced(run: RunStep, machine_scales: MachineScales) -> RunStep | None:
    """The run at the speed of our machine; None if too much of it has no factor.

    Nodes without a factor, and the lags of edges, become unknown. The step scales as the sum of its nodes.
    """
    nodes = run.graph.nodes
    recorded_us, machine_scale = nodes["latency_us"].to_numpy(np.float64), machine_scales.of(nodes)  # [num_nodes] each
    predicted_us = _at(recorded_us, machine_scale)
    known = np.isfinite(predicted_us)  # [num_nodes]
    known_us = recorded_us[known].sum()
    if known_us < (1 - MOST_UNKNOWN) * np.nansum(recorded_us) or known_us == 0:
        return None
    nodes, edges = nodes.assign(latency_us=predicted_us), run.graph.edges.assign(lag_us=np.nan)
    graph = replace(run.graph, nodes=nodes, edges=edges, fingerprint=f"{run.graph.fingerprint} paced")
    isolated = IsolatedLabels(*(_at(us, machine_scale) for us in (run.isolated.usual_us, run.isolated.steady_us)))
    step_us = run.step_us * float(predicted_us[known].sum() / known_us)
    return replace(run, graph=graph, step_us=step_us, isolated=isolated)


def _at(recorded_us: np.ndarray, machine_scale: np.ndarray) -> np.ndarray:
    """[num_nodes] each; zero (a rank's arrival) stays zero."""
    return np.where(recorded_us == 0, 0.0, recorded_us / machine_scale)


def in_own_scale(runs: Sequence[RunStep], prefixes: Sequence[str]) -> tuple[list[RunStep], dict[str, MachineScales]]:
    """Training recordings, those of other data sets scaled, and prefix -> speed factors of that data set.

    Runs that both recorded give the factors and are then left out. A data set that shares no run is taken unscaled.
    `prefixes` are what the names of each other data set's recordings begin with.
    """
    ours = [run for run in runs if not run.run.startswith(tuple(prefixes))]
    result, machine_scales = list(ours), dict[str, MachineScales]()
    known = {run.run: run for run in merged(ours)}
    for prefix in prefixes:
        theirs = [run for run in runs if run.run.startswith(prefix)]
        pairs = [(run, known[name]) for run in merged(theirs) if (name := run.run.removeprefix(prefix)) in known]
        names = {run.run for run, _ in pairs}
        new = [run for run in theirs if run_of(run.run) not in names]
        given = machine_scales_of(pairs)
        retained = [in_scale for run in new if (in_scale := paced(run, given)) is not None] if pairs else new
        machine_scales[prefix] = replace(given, num_left_out=len(new) - len(retained))
        result += retained
    return result, machine_scales


def _ratios(there: RunStep, here: RunStep) -> pd.DataFrame:
    """Per node that both measured: kind, family, ratio."""
    nodes, matched = there.graph.nodes, align(there.graph, here.graph)  # [num_nodes of there]
    here_us = np.where(matched >= 0, here.graph.nodes["latency_us"].to_numpy(np.float64)[matched], np.nan)
    there_us = nodes["latency_us"].to_numpy(np.float64)
    measured = (np.nan_to_num(here_us) > 0) & (np.nan_to_num(there_us) > 0)  # [num_nodes of there]
    return _kinds(nodes)[measured].assign(ratio=there_us[measured] / here_us[measured])


def _kinds(nodes: pd.DataFrame) -> pd.DataFrame:
    """[num_nodes] kind, of ops with their dtype (a processor may have to emulate one), and family."""
    kind, dtype = node_kinds(nodes), texts_of(nodes["dtype"])  # [num_nodes] each
    kind = np.where((kind == str(NodeType.COMPUTE)) & (dtype != NOTHING), kind + " " + dtype, kind)
    return pd.DataFrame({"kind": kind, "family": texts_of(nodes["family"])}, index=nodes.index)
