"""What gradient-boosted trees are given of a node: what the network's encoders are given of it, as one row of numbers.

Words of different node types are different words, as they are for the network, which has an embedding per type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch_geometric.data import HeteroData

from gnnperf.core import WORK_TYPES
from gnnperf.gnn.data.numbers import WORK_NAMES
from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.data.vocabulary import FIELDS, Vocabulary

WORK = tuple(map(str, WORK_TYPES))


class NodeColumns(Protocol):
    """Which columns describe a node."""

    @property
    def categorical(self) -> tuple[int, ...]:
        """Positions of the columns that hold codes of words."""
        ...

    def matrix(self, data: HeteroData) -> np.ndarray:
        """[num_work, num_columns] float32, the work nodes of one step, type by type in WORK order."""
        ...


@dataclass(frozen=True)
class OwnColumns:
    """A node's own features: WORK_NAMES (normalized), its type, its words.

    Attributes:
        vocabulary: words of the training runs.
    """

    vocabulary: Vocabulary

    @property
    def categorical(self) -> tuple[int, ...]:
        """The node type and every field of the vocabulary."""
        return tuple(range(len(WORK_NAMES), len(WORK_NAMES) + 1 + len(FIELDS)))

    def matrix(self, data: HeteroData) -> np.ndarray:
        """[num_work, WORK_NAMES + 1 + FIELDS] float32."""
        numbers = np.concatenate([data[t].x.numpy() for t in WORK])  # [num_work, num_features]
        types = np.repeat(np.arange(len(WORK)), [len(data[t].x) for t in WORK])  # [num_work]
        words = joint_codes(data, self.vocabulary)  # [num_work, num_fields]
        return np.concatenate([numbers, types[:, None], words], axis=1).astype(np.float32)


class Choice(Protocol):
    """How columns are chosen. Its repr names it: results are kept under the repr of what made them."""

    def columns(self, data: PreparedData) -> NodeColumns:
        """From training runs only."""
        ...


@dataclass(frozen=True)
class Own:
    """A node's own features."""

    def columns(self, data: PreparedData) -> OwnColumns:
        """Of the training runs' words."""
        return OwnColumns(data.vocabulary)


def joint_codes(data: HeteroData, vocabulary: Vocabulary) -> np.ndarray:
    """[num_work, num_fields] int64 codes of words, those of each node type after those of the type before."""
    first = np.zeros(len(FIELDS), dtype=np.int64)
    result = []
    for node_type in WORK:
        result.append(data[node_type].codes.numpy() + first)  # [n, num_fields]
        first = first + np.array([vocabulary.num_codes(node_type, field) for field in FIELDS])
    return np.concatenate(result)


def work_values(data: HeteroData, name: str) -> np.ndarray:
    """[num_work] one attribute of the work nodes (base_us, target, ...), type by type in WORK order."""
    return np.concatenate([data[t][name].numpy() for t in WORK])
