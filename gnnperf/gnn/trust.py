"""How far each node takes the network's prediction rather than the analytical one.

    device that training lacks                0
    op or program that training lacks         the share of its kind of node that held in left-out programs
    every other node                          1

Shares are chosen by networks that were trained without some of the programs (`gnnperf.gnn.training.folds`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, Source
from gnnperf.gnn.data.floors import texts_of
from gnnperf.gnn.data.prepare import Step
from gnnperf.gnn.data.runs import node_kinds
from gnnperf.graph import REASONS

KNOWN_SHARE = 0.9  # of a program's kernel ops that one program of training has, for it to count as that program
LENGTHS_US = (5.0, 20.0, 100.0)  # of the base: kernels between two of them are one kind


@dataclass(frozen=True)
class Shares:
    """Shares of the network's corrections."""

    usual: float  # of node latencies
    scheduled: float  # of latencies that a schedule adds up

    def __str__(self) -> str:
        """In words."""
        return f"{self.usual:.0%} of its corrections count for node latencies, {self.scheduled:.0%} for steps"


NONE = Shares(0.0, 0.0)
UNSEEN = "program not in training"


def program_of(step: Step) -> str:
    """As its card names it; a step whose card names none is a program of its own."""
    return step.workload or step.run


def trust_kinds(nodes: pd.DataFrame, base_us: np.ndarray) -> np.ndarray:
    """[num_nodes] kinds that hold apart: as `node_kinds`, kernels by the length of their base."""
    kind, names = node_kinds(nodes), np.array([*(f"compute < {us:.0f} us" for us in LENGTHS_US), "compute"], object)
    kernels = kind == NodeType.COMPUTE
    kind[kernels] = names[np.digitize(base_us[kernels], LENGTHS_US)]
    return kind


@dataclass(frozen=True)
class Trust:
    """Devices and programs of the training runs."""

    devices: tuple[str, ...]  # their names
    programs: Mapping[str, tuple[str, ...]]  # program -> ops of its kernels
    # kind of node -> what counts in programs that training lacks; other kinds keep the base there
    unseen: Mapping[str, Shares] = field(default_factory=dict)

    def unseen_weights(self, kind: np.ndarray) -> np.ndarray:
        """[num_nodes] `trust_kinds` -> [2, num_nodes] usual and scheduled weights in a program that training lacks."""
        shares = [self.unseen.get(one, NONE) for one in kind]
        return np.array([(one.usual, one.scheduled) for one in shares]).reshape(-1, 2).T

    def has_program(self, nodes: pd.DataFrame) -> bool:
        """Whether a program of training has KNOWN_SHARE of the known kernel ops; a step without kernels counts so."""
        kernels = (nodes["node_type"] == NodeType.COMPUTE).to_numpy()
        programs = [set(ops) for ops in self.programs.values()]
        known = set(texts_of(nodes["op_name"][kernels]).tolist()) & set().union(*programs)
        return not kernels.any() or any(known and len(known & ops) / len(known) >= KNOWN_SHARE for ops in programs)

    def of(
        self, nodes: pd.DataFrame, device: str, known_op: np.ndarray, base_us: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """[2, num_nodes] weights of the network, usual and scheduled, 0 to 1, and [num_nodes] why they are not more.

        `known_op`: [num_nodes] bool, whether training has the op; `base_us`: [num_nodes] what the network corrects.
        """
        if device not in self.devices:
            return np.zeros((2, len(nodes))), np.full(len(nodes), "device not in training", dtype=object)
        is_known = self.has_program(nodes)
        weight = np.where(known_op & is_known, 1.0, self.unseen_weights(trust_kinds(nodes, base_us)))
        reason = np.full(len(nodes), REASONS[Source.GNN] if is_known else UNSEEN, dtype=object)
        reason[~known_op] = "op not in the vocabulary"
        return weight, reason


def fit_trust(steps: Iterable[Step], unseen: Mapping[str, Shares] | None = None) -> Trust:
    """From training steps, and the shares that held in left-out programs."""
    devices, programs = set[str](), dict[str, set[str]]()
    for step in steps:
        devices.add(step.cluster.device.name)
        kernels = step.nodes["op_name"][(step.nodes["node_type"] == NodeType.COMPUTE).to_numpy()]
        programs.setdefault(program_of(step), set()).update(texts_of(kernels).tolist())
    ops_of = {name: tuple(sorted(ops)) for name, ops in sorted(programs.items())}
    return Trust(tuple(sorted(devices)), ops_of, dict(unseen or {}))
