"""Words of the training set, by node type and field. Code 0 is a word that was never seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.schema import WORK_TYPES

FIELDS = ("op_name", "family", "phase", "segment", "dtype", "collective", "lane")
NOTHING = ""  # the word for null: "has none", not "never seen"
UNKNOWN = 0


@dataclass(frozen=True)
class Vocabulary:
    """Words seen in training.

    Attributes:
        words: node type -> field -> words in code order, starting at code 1.
    """

    words: Mapping[str, Mapping[str, tuple[str, ...]]]

    def encode(self, node_type: str, nodes: pd.DataFrame) -> np.ndarray:
        """Codes of nodes of one type: [num_nodes, len(FIELDS)] int64, 0 where the word is unknown."""
        known = self.words[node_type]
        columns = [
            pd.Index(known[f], dtype=object).get_indexer(pd.Index(field_words(nodes, f))) + 1 for f in FIELDS
        ]  # -1 -> 0
        return np.stack(columns, axis=1).astype(np.int64)

    def num_codes(self, node_type: str, field: str) -> int:
        """Words of the field plus the unknown one."""
        return len(self.words[node_type][field]) + 1


def fit_vocabulary(tables: Iterable[pd.DataFrame]) -> Vocabulary:
    """Words of the measured nodes of these tables (training runs only), sorted: the order of runs is irrelevant.

    A word that only nodes without a label have would get an embedding that nothing trains; it stays unknown.
    """
    seen: dict[str, dict[str, set[str]]] = {str(t): {f: set() for f in FIELDS} for t in WORK_TYPES}
    for table in tables:
        nodes = table[table["latency_us"].notna()]
        for node_type, rows in nodes.groupby("node_type", observed=True):
            for field in FIELDS if str(node_type) in seen else ():
                seen[str(node_type)][field].update(field_words(rows, field).unique())
    return Vocabulary({t: {f: tuple(sorted(words)) for f, words in fields.items()} for t, fields in seen.items()})


def field_words(nodes: pd.DataFrame, field: str) -> pd.Series:
    """One field as words; null becomes NOTHING."""
    if field == "lane":
        return _lane(nodes)
    return nodes[field].astype(object).where(nodes[field].notna(), NOTHING)


def _lane(nodes: pd.DataFrame) -> pd.Series:
    """Thread and stream by role, not by number: main thread, another one, first to third stream, a later one."""
    thread = nodes["thread"].to_numpy()
    stream = nodes["stream"].to_numpy()
    words = np.where(stream >= 0, np.char.add("s", np.minimum(stream, 3).astype(str)), NOTHING)
    threads = np.where(thread == 0, "main", np.where(thread > 0, "thread", words))
    return pd.Series(threads.astype(object), index=nodes.index)
