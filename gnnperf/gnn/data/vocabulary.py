"""Words of the training set, by node type and field. Code 0 is a word that was never seen."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from gnnperf.core import WORK_TYPES, schema
from gnnperf.gnn.data.floors import NOTHING, words_of

FIELDS = ("op_name", "family", "phase", "segment", "dtype", "collective", "lane")
UNKNOWN = 0
LANES = ("main", "thread", NOTHING, "s0", "s1", "s2", "s3")


@dataclass(frozen=True)
class Vocabulary:
    """Words seen in training."""

    words: Mapping[str, Mapping[str, tuple[str, ...]]]  # node type -> field -> words in code order, starting at code 1

    def encode(self, node_type: str, nodes: pd.DataFrame) -> np.ndarray:
        """Codes of nodes of one type: [num_nodes, len(FIELDS)] int64, 0 where the word is unknown."""
        known = self.words[node_type]
        return np.stack([_codes(known[f], *words_of(field_column(nodes, f))) for f in FIELDS], axis=1)

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
                words, place = words_of(field_column(rows, field))
                seen[str(node_type)][field].update(words[np.unique(place)])
    return _sorted(seen)


def united(vocabularies: Sequence[Vocabulary]) -> Vocabulary:
    """That of all tables from that of each, at least one."""
    return _sorted({
        node_type: {f: set().union(*(one.words[node_type][f] for one in vocabularies)) for f in fields}
        for node_type, fields in vocabularies[0].words.items()
    })  # fmt: skip


def _sorted(words: Mapping[str, Mapping[str, set[str]]]) -> Vocabulary:
    return Vocabulary({t: {f: tuple(sorted(ones)) for f, ones in fields.items()} for t, fields in words.items()})


def joined(earlier: Vocabulary, later: Vocabulary) -> Vocabulary:
    """The earlier words with the codes that they have, and behind them the later ones that are new."""
    return Vocabulary(
        {
            node_type: {f: tuple(dict.fromkeys((*words, *later.words[node_type][f]))) for f, words in fields.items()}
            for node_type, fields in earlier.words.items()
        }
    )


def field_column(nodes: pd.DataFrame, field: str) -> pd.Series:
    """One field's column, for words_of."""
    return _lane(nodes) if field == "lane" else nodes[field]


def _codes(known: tuple[str, ...], words: np.ndarray, place: np.ndarray) -> np.ndarray:
    """[num_words] words and [num_nodes] which one a node has -> [num_nodes] codes."""
    code_of = _code_of(known)
    return np.array([code_of.get(word, UNKNOWN) for word in words], dtype=np.int64)[place]


@lru_cache
def _code_of(known: tuple[str, ...]) -> Mapping[str, int]:
    return {word: code for code, word in enumerate(known, start=1)}


def _lane(nodes: pd.DataFrame) -> pd.Series:
    """Thread and stream by role, not by number: main thread, another one, first to third stream, a later one."""
    thread, stream = nodes["thread"].to_numpy(), nodes["stream"].to_numpy()  # [num_nodes] each, -1 none
    device = np.where(stream >= 0, LANES.index("s0") + np.minimum(stream, 3), LANES.index(NOTHING))
    role = np.where(thread == 0, LANES.index("main"), np.where(thread > 0, LANES.index("thread"), device))
    return pd.Series(schema.categorical(role, LANES), index=nodes.index)
