"""How far each node takes the network's prediction rather than the analytical one.

    device that training lacks                                          0
    kernel of at least LONG_US, in a program that training lacks        0
    op that training lacks (its token is the unknown one)               UNKNOWN_OP
    every other node                                                    1

What the network learns of a short kernel is overhead, which other programs share. A long kernel takes as long as its
work, which the analytical model contains; what that model misses there differs between programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, Source
from gnnperf.gnn.data.floors import texts_of
from gnnperf.gnn.data.prepare import Step
from gnnperf.graph import REASONS

LONG_US = 20.0  # of the base
KNOWN_SHARE = 0.9  # of a program's kernel ops that one program of training has, for it to count as that program
UNKNOWN_OP = 0.9


@dataclass(frozen=True)
class Trust:
    """Devices and programs of the training runs."""

    devices: tuple[str, ...]  # their names
    programs: Mapping[str, tuple[str, ...]]  # program -> ops of its kernels

    def of(
        self, nodes: pd.DataFrame, device: str, known_op: np.ndarray, base_us: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """[num_nodes] weight of the network, 0 to 1, and [num_nodes] why it is not more.

        Args:
            nodes: node table.
            device: predicted for.
            known_op: [num_nodes] bool, whether training has the op.
            base_us: [num_nodes] what the network corrects.
        """
        if device not in self.devices:
            return np.zeros(len(nodes)), np.full(len(nodes), "device not in training", dtype=object)
        kernels = (nodes["node_type"] == NodeType.COMPUTE).to_numpy()
        is_long = kernels & (base_us >= LONG_US) & (self.known_share(texts_of(nodes["op_name"][kernels])) < KNOWN_SHARE)
        weight = np.where(is_long, 0.0, np.where(known_op, 1.0, UNKNOWN_OP))
        reason = np.where(is_long, "long kernel of a program that training lacks", REASONS[Source.GNN]).astype(object)
        reason[~known_op] = "op not in the vocabulary"
        return weight, reason

    def known_share(self, op: np.ndarray) -> float:
        """Largest share of these ops that one program has, of those that any program has; 0 where none has any."""
        programs = [set(ops) for ops in self.programs.values()]
        known = set(op.tolist()) & set().union(*programs)
        return max((len(known & ops) / len(known) for ops in programs), default=0.0) if known else 0.0


def fit_trust(steps: Iterable[Step]) -> Trust:
    """From training steps; one whose card names no program is a program of its own."""
    devices, programs = set[str](), dict[str, set[str]]()
    for step in steps:
        devices.add(step.cluster.device.name)
        kernels = step.nodes["op_name"][(step.nodes["node_type"] == NodeType.COMPUTE).to_numpy()]
        programs.setdefault(step.workload or step.run, set()).update(texts_of(kernels).tolist())
    return Trust(tuple(sorted(devices)), {name: tuple(sorted(ops)) for name, ops in sorted(programs.items())})
