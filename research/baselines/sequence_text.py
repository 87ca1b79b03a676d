"""A step as text: per node a group of words in program order, lane by lane.

Das & Mannarswamy, "ML-driven hardware cost model for MLIR" (LLVM Developers' Meeting 2022, arXiv 2302.11405), read a
program as a sequence of words, ops with the types of their operands: "aten::mm"(tensor<128x192xf32>, ...) gives
aten::mm, 128x192, f32. Here likewise, and each size also as a word of its own and by its logarithm, so that a size
never seen is not only "unknown".
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from gnnperf.gnn.data.floors import texts_of
from gnnperf.gnn.data.vocabulary import FIELDS, field_column
from gnnperf.graph import ExecutionGraph, lane_keys
from gnnperf.schedule import timed_edges

UNKNOWN_WORD = 0
MIN_STEPS = 2  # a word of a single training step is read as unknown, so that the unknown word is trained
MAX_ARGUMENTS, MAX_DIMS = 6, 5  # beyond them arguments and dimensions go unread


@dataclass(frozen=True)
class Words:
    """Words of training steps -> codes from 1; 0 is unknown."""

    code: dict[str, int]

    def __len__(self) -> int:
        return len(self.code) + 1


@dataclass(frozen=True)
class Text:
    """Groups of words of n nodes.

    Attributes:
        codes: [num_words] int64, the groups one after the other.
        first: [n] int64 where each group begins.
    """

    codes: np.ndarray
    first: np.ndarray


def fit_words(steps: Sequence[pd.DataFrame]) -> Words:
    """Words of node tables of training steps, in alphabetical order."""
    seen = Counter(word for nodes in steps for word in {w for group in _groups(nodes)[0] for w in group})
    return Words({word: i + 1 for i, word in enumerate(sorted(w for w, n in seen.items() if n >= MIN_STEPS))})


def text_of(nodes: pd.DataFrame, words: Words) -> Text:
    """Text of the rows of a node table, in their order."""
    distinct, rows = _groups(nodes)
    coded = [np.array([words.code.get(w, UNKNOWN_WORD) for w in group], dtype=np.int64) for group in distinct]
    groups = [coded[row] for row in rows]
    first = np.cumsum([0, *(len(g) for g in groups)])[:-1]
    return Text(np.concatenate([np.zeros(0, dtype=np.int64), *groups]), first)


def program_order(graph: ExecutionGraph, rows: np.ndarray, gap: int) -> np.ndarray:
    """[len(rows)] positions in one sequence: lane after lane, `gap` free positions between lanes.

    Within a lane as its edges order them. Nodes without a lane (collectives) are a lane of their own.

    Args:
        graph: one step.
        rows: [n] rows of the node table.
        gap: free positions, so that a convolution does not see over them.
    """
    rank = np.empty(graph.num_nodes, dtype=np.int64)
    rank[timed_edges(graph).order] = np.arange(graph.num_nodes)
    _, lane = np.unique(lane_keys(graph.nodes)[rows], return_inverse=True)  # [n] from 0
    order = np.lexsort((rank[rows], lane))
    position = np.empty(len(rows), dtype=np.int64)
    position[order] = np.arange(len(rows)) + gap * lane[order]
    return position


def _groups(nodes: pd.DataFrame) -> tuple[list[tuple[str, ...]], np.ndarray]:
    """Distinct groups of words, and [num_nodes] which of them each node has."""
    columns = {name: texts_of(field_column(nodes, name)) for name in FIELDS}
    columns |= {
        name: nodes[name].astype(object).fillna("").astype(str).to_numpy() for name in ("node_type", "input_dims")
    }
    table = pd.DataFrame(columns)
    codes = table.groupby(list(table.columns), sort=False).ngroup().to_numpy()  # [num_nodes]
    firsts = table[~pd.Series(codes).duplicated().to_numpy()]
    return [_words({str(k): str(v) for k, v in row.items()}) for row in firsts.to_dict("records")], codes


def _words(row: dict[str, str]) -> tuple[str, ...]:
    """One node's words: what it is, then the types of its arguments."""
    sentences = tuple(f"{name}={row[name]}" for name in ("node_type", *FIELDS) if row[name])
    return (*sentences, f"{row['node_type']} {row['op_name']}", *_size_words(row["input_dims"]))


@cache
def _size_words(text: str) -> tuple[str, ...]:
    """[[128,192],[]] -> 0:128x192, 0.0:128, 0.0~7, 0.1:192, 0.1~7.6: whole type, each size, its log2 to a fifth."""
    try:
        arguments = json.loads(text) if text else []
    except ValueError:
        return ("unreadable",)
    shapes = list(_shapes(arguments))[:MAX_ARGUMENTS]
    return tuple(word for i, shape in enumerate(shapes) for word in _shape_words(i, shape))


def _shape_words(argument: int, shape: Sequence[int]) -> Iterator[str]:
    yield f"{argument}:{'x'.join(map(str, shape))}"
    for dim, size in enumerate(shape[:MAX_DIMS]):
        yield f"{argument}.{dim}:{size}"
        yield f"{argument}.{dim}~{round(5 * math.log2(max(size, 1))) / 5:g}"


def _shapes(arguments: object) -> Iterator[list[int]]:
    """Tensor shapes; lists of tensors are opened, scalars ([]) left out."""
    if isinstance(arguments, list) and arguments and all(isinstance(a, int) for a in arguments):
        yield arguments
    elif isinstance(arguments, list):
        for one in arguments:
            yield from _shapes(one)
