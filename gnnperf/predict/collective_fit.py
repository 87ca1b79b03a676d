"""Laws of a platform's collectives, and what they are worth: errors on held-out rows, next to the specification."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gnnperf import __version__
from gnnperf.analytic import CollectiveConstants, collective_us, default_constants, fit_collectives
from gnnperf.core import InputError, each
from gnnperf.gnn import ErrorSummary, summarize
from gnnperf.hardware import KINDS, ClusterSpec, touched_bytes

SIZES, GROUP = "unseen sizes", "unseen group"


@dataclass(frozen=True)
class HeldOut:
    """Errors on rows that a fit has not seen.

    Attributes:
        name: what was held out.
        collective_models: errors of the laws fitted on the other rows.
        specified: errors of the cluster's specification on the same rows.
    """

    name: str
    collective_models: ErrorSummary
    specified: ErrorSummary

    def __str__(self) -> str:
        """One line, errors as means."""
        errors = self.collective_models
        return (
            f"{self.name}: {errors.mean_ape:.1%} mean error ({errors.num_nodes} rows; specification "
            f"{self.specified.mean_ape:.1%})"
        )


@dataclass(frozen=True)
class Judged:
    """Laws fitted on all rows, and what fits on a part of them are off by on the rest."""

    constants: CollectiveConstants
    num_rows: int
    held_out: tuple[HeldOut, ...]


def fit_and_judge(rows: pd.DataFrame, cluster: ClusterSpec, origin: str) -> Judged:
    """Laws of one platform."""
    odd = sorted(set(rows["kind"]) - set(KINDS))
    if odd:
        raise InputError(f"unknown kind {odd[0]!r}", where="collective table", allowed=", ".join(KINDS))
    result = tuple(
        HeldOut(name, summarize(fitted_us(train, test, cluster), test["latency_us"].to_numpy()),
                summarize(specified_us(test, cluster), test["latency_us"].to_numpy()))
        for name, train, test in each(list(splits(rows)), "fitting without a part", "parts")
    )  # fmt: skip
    groups = "; ".join(f"{n} ranks on {m}" for n, m in sorted(set(zip(rows["group_size"], rows["nodes"], strict=True))))
    provenance = (f"{origin}; {len(rows)} rows, groups: {groups}; fitted with gnnperf {__version__} on all rows"
                  f"{''.join(f'; {each}' for each in result)}")  # fmt: skip
    return Judged(fit_collectives(rows, cluster, provenance), len(rows), result)


def splits(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
    """(what is held out, rows to fit on, held-out rows): odd octaves of sizes; the largest group inside, and between.

    An octave is that of the larger of a rank's input and output, as nccl-tests count.
    """
    odd = in_odd_octave(rows)
    if odd.any() and not odd.all():
        yield SIZES, rows[~odd], rows[odd]
    for place, here in (("inside", rows[rows["nodes"] == 1]), ("between machines", rows[rows["nodes"] > 1])):
        largest = here["group_size"] == here["group_size"].max()
        if len(set(here.loc[~largest, "group_size"])) > 1:  # one smaller group tells no growth
            yield f"{GROUP} of {here['group_size'].max()} {place}", here[~largest], here[largest]


def in_odd_octave(rows: pd.DataFrame) -> np.ndarray:
    """[n] bool."""
    kinds, ranks = rows["kind"].to_numpy(object), rows["group_size"].to_numpy()
    size = touched_bytes(kinds, rows["message_bytes"].to_numpy(float), ranks)
    odd: np.ndarray = np.floor(np.log2(size)).astype(int) % 2 == 1
    return odd


def fitted_us(train: pd.DataFrame, test: pd.DataFrame, cluster: ClusterSpec) -> np.ndarray:
    """[n] us of `test` by laws fitted on `train`, as a prediction takes them."""
    return fit_collectives(train, cluster).latency_us(*arrays(test), specified_us(test, cluster))


def specified_us(rows: pd.DataFrame, cluster: ClusterSpec) -> np.ndarray:
    """[n] us by specification, with as many ranks per node as each row's group has."""
    result = np.full(len(rows), np.nan)
    where = rows.reset_index(drop=True)
    for _, own in where.groupby(["group_size", "nodes"]):
        kinds, size, group, machines = arrays(own)
        ranks, nodes = int(group[0]), int(machines[0])
        per_node = ranks // nodes if nodes > 1 else max(ranks, cluster.ranks_per_node)
        there = replace(cluster, ranks_per_node=per_node)
        result[own.index] = collective_us(kinds, size, group, there, default_constants(cluster.device.kind))
    return result


def arrays(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(kind, message bytes, ranks, machines) of each row, [n] each."""
    return (rows["kind"].to_numpy(object), rows["message_bytes"].to_numpy(float), rows["group_size"].to_numpy(),
            rows["nodes"].to_numpy())  # fmt: skip
