"""Answers about collectives, from a training table for a test table: fitted laws, and the trivial ones next to them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.analytic.collective.model import calls_of, rings_of
from gnnperf.analytic.least_squares import robust_least_squares
from gnnperf.hardware import ClusterSpec, load_cluster
from gnnperf.predict.collective_fit import arrays, fitted_us, specified_us

# (first part of a platform's name, link) -> cluster of the catalog. What the catalog lacks has no specification.
CLUSTERS = {
    ("a100_sxm", "nvlink"): "dgx_a100", ("a100", "nvlink"): "dgx_a100", ("a100_dgx", "nvlink"): "dgx_a100",
    ("a100_dgx", "network"): "dgx_a100", ("a100_pairwise_nvlink", "pcie"): "pcie_gen4_8",
    ("a100_pairwise_nvlink", "network"): "pcie_gen4_8", ("gb200", "nvlink"): "gb200_nvl72",
    ("h100_sxm", "nvlink"): "hgx_h100", ("h200_sxm", "nvlink"): "hgx_h100",
    ("h100_pairwise_nvlink", "pcie"): "pcie_gen5_8", ("l40s", "pcie"): "pcie_gen4_8",
    ("perlmutter", "nvlink"): "perlmutter_a100", ("perlmutter", "network"): "perlmutter_a100",
    ("v100", "nvlink_mesh"): "dgx1_v100",
}  # fmt: skip
LIKE_THE_REST = "pcie_gen4_8"  # A40 pairs
GROUP = ["kind", "link", "group_size", "nodes"]


def cluster_of(rows: pd.DataFrame) -> ClusterSpec:
    """The catalog's cluster of the rows' platform; of one that the catalog lacks, a server with the same bus."""
    names = (CLUSTERS.get((str(platform).partition(" ")[0], str(link)))
             for platform, link in rows[["platform", "link"]].drop_duplicates().itertuples(index=False))  # fmt: skip
    return load_cluster(next((name for name in names if name is not None), LIKE_THE_REST))


def collective_models_us(train: pd.DataFrame, test: pd.DataFrame) -> np.ndarray:
    """[n] us by laws fitted on `train`."""
    return fitted_us(train, test, cluster_of(train))


def nearest_us(train: pd.DataFrame, test: pd.DataFrame) -> np.ndarray:
    """[n] us of the nearest measured size, in the group itself or the nearest measured one on the same link."""
    points = train.groupby([*GROUP, "message_bytes"])["latency_us"].median().reset_index()
    result = np.full(len(test), np.nan)
    where = test.reset_index(drop=True)
    for (kind, link, _, _), rows in where.groupby(GROUP):
        known = points[(points["kind"] == kind) & (points["link"] == link)]
        if known.empty:
            continue
        ranks, nodes = rows["group_size"].iloc[0], rows["nodes"].iloc[0]
        away = (np.log2(known["group_size"] / ranks)).abs() + (np.log2(known["nodes"] / nodes)).abs()
        group = known[away == away.min()].sort_values("message_bytes")
        sizes = np.log(group["message_bytes"].to_numpy())
        gap = np.abs(np.log(rows["message_bytes"].to_numpy())[:, None] - sizes[None, :])  # [m, k]
        result[rows.index] = group["latency_us"].to_numpy()[gap.argmin(axis=1)]
    return result


def two_parameters_us(train: pd.DataFrame, test: pd.DataFrame) -> np.ndarray:
    """[n] us = start + bytes on the wire / bandwidth; fitted per kind and group, or over the link's groups together."""
    result = np.full(len(test), np.nan)
    where = test.reset_index(drop=True)
    for (kind, link, ranks, nodes), rows in where.groupby(GROUP):
        same = train[(train["kind"] == kind) & (train["link"] == link)]
        own = same[(same["group_size"] == ranks) & (same["nodes"] == nodes)]
        if len(same):
            result[rows.index] = _line(own if len(own) else same, rows)
    return result


def catalog_us(test: pd.DataFrame) -> np.ndarray:
    """[n] us by specification; NaN where the catalog has no such cluster."""
    result = np.full(len(test), np.nan)
    where = test.reset_index(drop=True)
    for (platform, link), rows in where.groupby(["platform", "link"]):
        name = CLUSTERS.get((str(platform).partition(" ")[0], str(link)))
        if name is not None:
            result[rows.index] = specified_us(rows, load_cluster(name))
    return result


def _line(train: pd.DataFrame, test: pd.DataFrame) -> np.ndarray:
    kinds, size, ranks, nodes = arrays(train)
    log_us = np.log(train["latency_us"].to_numpy())
    wire = calls_of(kinds, size, ranks, nodes, rings_of(cluster_of(train)) or {})
    load = wire.wire_bytes / wire.lanes

    def misses(parameters: np.ndarray) -> np.ndarray:
        return np.log(np.exp(parameters[0]) + np.exp(parameters[1]) * load) - log_us

    start = np.array([log_us.min(), log_us.max() - np.log(load.max())])
    best, _ = robust_least_squares(misses, start, 0.1, 60)
    requested = calls_of(*arrays(test), rings_of(cluster_of(test)) or {})
    return np.exp(best[0]) + np.exp(best[1]) * requested.wire_bytes / requested.lanes
