"""Labels of another data set, scaled to the speed of our machine by runs that both recorded.

    label = recorded there x expected latency here / there (data.speed_factors)

Unscaled labels would attribute the speed of a machine to its programs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gnnperf.core import NodeType
from gnnperf.gnn.data.floors import texts_of
from gnnperf.gnn.data.runs import IsolatedLabels, RunStep, merged, node_kinds, run_of
from gnnperf.gnn.data.speed_factors import MeasuredTwice, SpeedFactors, fit_speed_factors
from gnnperf.schedule import align

MOST_UNKNOWN = 0.05  # of a step's time: with more in kinds that no shared run has, the recording is left out


@dataclass(frozen=True)
class MachineScales:
    """How much longer another machine takes."""

    factors: SpeedFactors  # expected latency here / there
    kinds: frozenset[str] = frozenset()  # kinds of node that both measured, of ops with their dtype
    ratio: float = 1.0  # time there / here, median of nodes
    num_shared: int = 0  # runs that both recorded
    num_left_out: int = 0  # recordings left out, because too much of them is of no known kind

    def __str__(self) -> str:
        """In a line."""
        if not self.num_shared:
            return "shares no run with ours: its labels are as its machine took them"
        left_out = f"; left out, because of unknown speed: {self.num_left_out}" if self.num_left_out else ""
        return f"takes {self.ratio:.2f} times as long as ours (median node), by {self.num_shared} shared runs{left_out}"

    def scaled_us(self, nodes: pd.DataFrame, recorded_us: np.ndarray) -> np.ndarray:
        """[num_nodes] expected latencies here; NaN for kinds that no shared run has. 0 (a rank's arrival) stays 0."""
        known = np.isin(_kinds(nodes), list(self.kinds)) | (recorded_us == 0)
        return np.where(known, self.factors.moved_us(nodes, recorded_us), np.nan)


def machine_scales_of(pairs: Sequence[tuple[RunStep, RunStep]]) -> MachineScales:
    """Speed factors from pairs of the same run there and here; of no pairs none."""
    if not pairs:
        return MachineScales(SpeedFactors({}))
    steps = [_measured_twice(there, here) for there, here in pairs]
    nodes = pd.concat([one.nodes for one in steps])
    here_us, there_us = (np.concatenate(us) for us in zip(*((s.here_us, s.there_us) for s in steps), strict=True))
    both = (np.nan_to_num(here_us) > 0) & (np.nan_to_num(there_us) > 0)
    ratio = float(np.median(there_us[both] / here_us[both])) if both.any() else 1.0
    return MachineScales(fit_speed_factors(steps), frozenset(_kinds(nodes[both])), ratio, len(pairs))


def scaled(run: RunStep, machine_scales: MachineScales) -> RunStep | None:
    """The run at the speed of our machine; None if too much of it is of no known kind.

    Nodes of such a kind, and the lags of edges, become unknown. The step scales as the sum of its nodes.
    """
    nodes = run.graph.nodes
    recorded_us = nodes["latency_us"].to_numpy(np.float64)  # [num_nodes]
    predicted_us = machine_scales.scaled_us(nodes, recorded_us)
    known = np.isfinite(predicted_us)  # [num_nodes]
    known_us = recorded_us[known].sum()
    if known_us < (1 - MOST_UNKNOWN) * np.nansum(recorded_us) or known_us == 0:
        return None
    graph = replace(run.graph, nodes=nodes.assign(latency_us=predicted_us), edges=run.graph.edges.assign(lag_us=np.nan),
                    fingerprint=f"{run.graph.fingerprint} scaled")  # fmt: skip
    labels = (run.isolated.usual_us, run.isolated.steady_us)
    isolated = IsolatedLabels(*(machine_scales.scaled_us(nodes, us) for us in labels))
    step_us = run.step_us * float(predicted_us[known].sum() / known_us)
    return replace(run, graph=graph, step_us=step_us, isolated=isolated)


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
        retained = [in_scale for run in new if (in_scale := scaled(run, given)) is not None] if pairs else new
        machine_scales[prefix] = replace(given, num_left_out=len(new) - len(retained))
        result += retained
    return result, machine_scales


def _measured_twice(there: RunStep, here: RunStep) -> MeasuredTwice:
    matched = align(there.graph, here.graph)  # [num_nodes of there]
    here_us = np.where(matched >= 0, here.graph.nodes["latency_us"].to_numpy(np.float64)[matched], np.nan)
    return MeasuredTwice(there.graph.nodes, here_us, there.graph.nodes["latency_us"].to_numpy(np.float64))


def _kinds(nodes: pd.DataFrame) -> np.ndarray:
    """[num_nodes] kind of node, of ops with their dtype: a processor may have to emulate one."""
    kind = node_kinds(nodes).astype(str)
    is_op = (nodes["node_type"] == NodeType.COMPUTE).to_numpy()
    return np.where(is_op, kind + " " + texts_of(nodes["dtype"]).astype(str), kind)
