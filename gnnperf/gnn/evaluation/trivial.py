"""Trivial predictions, fitted on training runs only. What a learned model does not beat, it has not learned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from gnnperf.gnn.data.floors import texts_of
from gnnperf.gnn.evaluation.metrics import is_measured

OP_KEYS = ("node_type", "segment", "op_name")


@dataclass(frozen=True)
class OpMedians:
    """One constant per node type, segment and op: the median of the training runs."""

    medians_us: Mapping[tuple[str, str, str], float]  # (node type, segment, op) -> median latency

    def predict(self, nodes: pd.DataFrame) -> np.ndarray:
        """[num_nodes]; NaN where training had no such op."""
        keys = _op_keys(nodes)
        return np.asarray([self.medians_us.get(k, np.nan) for k in keys], dtype=np.float64)


def fit_op_medians(tables: Sequence[pd.DataFrame]) -> OpMedians:
    """Medians over the measured nodes of these node tables."""
    latency = pd.concat([t["latency_us"] for t in tables], ignore_index=True)
    keys = pd.Series([k for t in tables for k in _op_keys(t)], dtype=object)
    measured = is_measured(latency.to_numpy())
    medians = latency[measured].groupby(keys[measured]).median()
    return OpMedians({key: float(value) for key, value in medians.items()})  # type: ignore[misc]


@dataclass(frozen=True)
class NearestRun:
    """The measured latencies of the training run that shares most work with the requested one."""

    runs: Mapping[str, pd.Series]  # run name -> content_key -> median latency
    fallback: OpMedians  # predictions for work that the nearest run does not have

    def nearest(self, nodes: pd.DataFrame) -> str:
        """Name of the training run in which most of these nodes have a counterpart; ties go to the first name."""
        keys, count = np.unique(nodes["content_key"].to_numpy(), return_counts=True)  # [num_keys] each
        names, of_run, known = self._keys
        place = np.minimum(np.searchsorted(keys, known), len(keys) - 1)  # [num_known]
        shared = np.bincount(of_run, np.where(keys[place] == known, count[place], 0), len(names))
        return names[int(np.argmax(shared))]

    @cached_property
    def _keys(self) -> tuple[list[str], np.ndarray, np.ndarray]:
        """Sorted names of runs, and [num_known] of the content keys of all of them: number of the run, key."""
        names = sorted(self.runs)
        keys = [self.runs[name].index.to_numpy() for name in names]
        return names, np.repeat(np.arange(len(names)), list(map(len, keys))), np.concatenate(keys)

    def predict(self, nodes: pd.DataFrame) -> np.ndarray:
        """[num_nodes]; NaN where neither the nearest run nor the fallback has a prediction."""
        copied = nodes["content_key"].map(self.runs[self.nearest(nodes)]).to_numpy(np.float64)  # [num_nodes]
        return np.where(np.isfinite(copied), copied, self.fallback.predict(nodes))


def fit_nearest_run(tables: Mapping[str, pd.DataFrame]) -> NearestRun:
    """From the node table of each training run's step."""
    runs = {}
    for name, step in tables.items():
        nodes = step[is_measured(step["latency_us"].to_numpy())]
        runs[name] = nodes.groupby("content_key")["latency_us"].median()
    return NearestRun(runs, fit_op_medians(list(tables.values())))


def _op_keys(nodes: pd.DataFrame) -> list[tuple[str, str, str]]:
    return list(zip(*(texts_of(nodes[c]).tolist() for c in OP_KEYS), strict=True))
