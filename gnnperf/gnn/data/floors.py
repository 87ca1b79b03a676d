"""The base of the residual: the analytical prediction, or where it has none a typed floor fitted on training runs."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core import WORK_TYPES, InputError, NotNegative
from gnnperf.gnn.evaluation.metrics import is_measured

# Columns of words, handled per word and not per row: a graph has tens of thousands of nodes and some dozen words.

NOTHING = ""  # the word for null: "has none", not "never seen"


def words_of(column: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """[num_words] words as text, NOTHING for null the last of them, and [n] which one each row has."""
    result = column.array if isinstance(column.dtype, pd.CategoricalDtype) else pd.Categorical(column.astype(object))
    assert isinstance(result, pd.Categorical)
    words = np.array([*map(str, result.categories.to_numpy(dtype=object)), NOTHING], dtype=object)
    return words, np.where(result.codes < 0, len(words) - 1, result.codes.astype(np.int64))


def texts_of(column: pd.Series) -> np.ndarray:
    """[n] object, the words; NOTHING for null."""
    words, place = words_of(column)
    return words[place]


def of_each(column: pd.Series, value: Callable[[str], float]) -> np.ndarray:
    """[n] float64 value of each row's word, requested once per word."""
    words, place = words_of(column)
    return np.array([value(word) for word in words], dtype=np.float64)[place]


@dataclass(frozen=True)
class TypedFloors:
    """Median measured latencies of the training runs, zeros included (arriving at a collective takes none)."""

    by_segment_us: Mapping[str, NotNegative]  # "node_type/segment" -> median latency
    by_type_us: Mapping[str, NotNegative]  # node type -> median latency
    overall_us: NotNegative  # median latency of all work

    def floor_us(self, nodes: pd.DataFrame) -> np.ndarray:
        """[num_nodes] the narrowest median there is."""
        narrow = _segment_keys(nodes).map(self.by_segment_us).to_numpy(np.float64)
        wide = of_each(nodes["node_type"], lambda name: self.by_type_us.get(name, np.nan))
        return np.where(np.isfinite(narrow), narrow, np.where(np.isfinite(wide), wide, self.overall_us))


def fit_floors(tables: Iterable[pd.DataFrame]) -> TypedFloors:
    """Medians over these node tables (training runs only)."""
    nodes = pd.concat([t[["node_type", "segment", "latency_us"]].astype({"node_type": str}) for t in tables])
    nodes = nodes[nodes["node_type"].isin([str(t) for t in WORK_TYPES]) & (nodes["latency_us"] >= 0)]
    if nodes.empty:
        raise InputError("no node of the training runs has a measured latency", where="data.path")
    latency = nodes["latency_us"]
    latency = latency.where(is_measured(latency.to_numpy()), 0.0)
    by_segment = latency.groupby(_segment_keys(nodes)).median()
    by_type = latency.groupby(nodes["node_type"]).median()
    return TypedFloors(
        {str(k): float(v) for k, v in by_segment.items()},
        {str(k): float(v) for k, v in by_type.items()},
        float(latency.median()),
    )


def base_us(nodes: pd.DataFrame, analytic_us: np.ndarray, floors: TypedFloors) -> np.ndarray:
    """The base, [num_nodes] float64, never NaN. A base of 0 can only be predicted as 0."""
    costed = np.isfinite(analytic_us) & (np.nan_to_num(analytic_us) > 0)  # [num_nodes]
    result = np.array(analytic_us, dtype=np.float64)
    result[~costed] = floors.floor_us(nodes[~costed])
    return result


def _segment_keys(nodes: pd.DataFrame) -> pd.Series:
    return pd.Series(texts_of(nodes["node_type"]) + "/" + texts_of(nodes["segment"]), index=nodes.index)
