"""Fit the models of a platform's collectives to its table: robust, in log space, with a weak prior on every parameter.

Two stages. First a model per kind and link over all groups; it covers groups that were not measured. Then, per measured
group, the same model with parameters of its own, drawn to the first: a library's choices differ between groups in ways
that no smooth model follows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np
import pandas as pd

from gnnperf import __version__
from gnnperf.analytic import CollectiveConstants, collective_us, default_constants
from gnnperf.analytic.collective.constants import Group, MeasuredLink
from gnnperf.analytic.collective.model import CollectiveCalls, CollectiveModel, ProtocolSwitch, calls_of, rings_of
from gnnperf.core import each
from gnnperf.gnn import ErrorSummary, summarize
from gnnperf.hardware import ClusterSpec, touched_bytes
from research.fitting.logs import robust_least_squares

BINS_PER_OCTAVE = 6  # tables in steps of 1 MiB have half of their rows in the last octave: every bin counts once
ROBUST_SCALE = 0.05  # of a log latency: larger misses count linearly
LAW_STEPS, GROUP_STEPS = 80, 40
# Where to start looking: the change to LL128 and to Simple (bytes), and how much ranks take from each other.
FIRST_SWITCH, SECOND_SWITCH = (2.0**13.5, 2.0**16), (2.0**20.5, 2.0**22)
NOT_SHARED, SHARED = (0.01,), (0.01, 1.0)
SHARED_LINKS = ("pcie", "network", "loopback")  # buses, adapters, memory; NVLink ends in a switch, or its rings count
RATES, SHARED_RATES = (0.3, 0.5), (0.01, 1.0)  # memory and wire: memory is many times faster than a bus or adapter
HELD = 1e3  # prior weight of what is not fitted

# Parameters, all logarithms but `growth`; priors are weights on the distance from the start (log latency per unit).
PRIOR = {"start_us": 0.02, "hop_us": 0.02, "pass_us": 0.05, "wire_us": 0.05, "sharing_power": 0.02}
SWITCH_PRIOR = {"extra_us": 0.02, "extra_hop_us": 0.02, "at_bytes": 0.0, "growth": 0.3, "sharpness": 0.03}
GROUP_PRIOR = 0.05  # of every parameter of a group's own model, around the common one
NUM_SWITCHES = 2
SHARPNESS_LIMITS, GROWTH_LIMITS = (-1.0, 2.5), (-1.0, 2.0)  # of the logarithm; of the power


@dataclass(frozen=True)
class _Points:
    calls: CollectiveCalls
    log_us: np.ndarray  # [m]


def fit_collectives(table: pd.DataFrame, cluster: ClusterSpec, provenance: str = "") -> CollectiveConstants:
    """The models of one platform, from its rows (research.tables.collective_tables.COLUMNS).

    `cluster` is where they were measured: its links, and its rings where there is no switch.
    """
    lanes, thin = dict(rings_of(cluster) or {}), thinned(table)
    collective_models, groups = {}, {}
    for (kind, link), rows in thin.groupby(["kind", "link"]):
        common = _common_collective_model(_points(rows, lanes), str(link))
        collective_models[str(kind), str(link)] = _measured_from(collective_model_of(common), _points(rows, lanes))
        groups.update(_own_collective_models(common, rows, lanes))
    between = table.loc[table["nodes"] > 1, "link"]
    return CollectiveConstants(
        measured_inside=MeasuredLink.of(cluster.intra),
        measured_between=MeasuredLink.of(cluster.inter),
        collective_models=collective_models,
        groups=groups,
        inside=links_inside(table),
        between=str(between.iloc[0]) if len(between) else "",
        rings=lanes,
        provenance=provenance,
    )


def links_inside(table: pd.DataFrame) -> tuple[tuple[int, str], ...]:
    """(largest group, link) of each link inside a machine, by size of the group."""
    largest = table[table["nodes"] == 1].groupby("link")["group_size"].max()
    return tuple(sorted((int(size), str(link)) for link, size in largest.items()))


def thinned(table: pd.DataFrame) -> pd.DataFrame:
    """One row per group and bin of sizes: the medians of size and latency."""
    bins = np.round(np.log2(table["message_bytes"]) * BINS_PER_OCTAVE).rename("bin")
    keys = [table[name] for name in ("kind", "link", "group_size", "nodes")]
    return table.groupby([*keys, bins])[["message_bytes", "latency_us"]].median().reset_index()


def collective_model_of(parameters: np.ndarray) -> CollectiveModel:
    """The model of a vector of parameters, as PRIOR and SWITCH_PRIOR name them."""
    start, hop, per_pass, per_wire, sharing = np.exp(parameters[: len(PRIOR)]).tolist()
    switches = []
    for extra, extra_hop, at, growth, sharpness in parameters[len(PRIOR) :].reshape(NUM_SWITCHES, -1):
        power, steep = np.clip(growth, *GROWTH_LIMITS), np.exp(np.clip(sharpness, *SHARPNESS_LIMITS))
        switches.append(ProtocolSwitch(*map(float, (np.exp(extra), np.exp(extra_hop), np.exp(at), power, steep))))
    return CollectiveModel(start, hop, 1e6 / per_pass, 1e6 / per_wire, sharing, tuple(switches))


def _points(rows: pd.DataFrame, rings: Mapping[int, int]) -> _Points:
    kinds, size = rows["kind"].to_numpy(object), rows["message_bytes"].to_numpy(float)
    calls = calls_of(kinds, size, rows["group_size"].to_numpy(), rows["nodes"].to_numpy(), rings)
    return _Points(calls, np.log(rows["latency_us"].to_numpy()))


def _measured_from(collective_model: CollectiveModel, points: _Points) -> CollectiveModel:
    return replace(collective_model, from_bytes=float(points.calls.touched_bytes.min()))


def _misses(points: _Points, center: np.ndarray, weight: np.ndarray, parameters: np.ndarray) -> np.ndarray:
    predicted = collective_model_of(parameters).latency_us(points.calls)
    return np.concatenate([np.log(predicted) - points.log_us, weight * (parameters - center)])


def _common_collective_model(points: _Points, link: str) -> np.ndarray:
    shared = link in SHARED_LINKS
    prior = PRIOR if shared else {**PRIOR, "sharing_power": HELD}
    weight = np.array([*prior.values(), *list(SWITCH_PRIOR.values()) * NUM_SWITCHES])
    result = []
    for sharing, first, second in product(SHARED if shared else NOT_SHARED, FIRST_SWITCH, SECOND_SWITCH):
        start = _start(points, sharing, SHARED_RATES if shared else RATES, (first, second))
        result.append(robust_least_squares(partial(_misses, points, start, weight), start, ROBUST_SCALE, LAW_STEPS))
    return min(result, key=lambda each: each[1])[0]


def _start(points: _Points, sharing: float, rates: tuple[float, float], switches: tuple[float, float]) -> np.ndarray:
    """Shares of the shortest latency, and of the time that a byte of the largest message takes."""
    size, shortest = points.calls.touched_bytes, np.exp(points.log_us.min())
    slowest = float(np.exp(points.log_us[size == size.max()]).mean() / size.max())  # us per byte
    first, second = (np.log(each) for each in switches)
    return np.array([np.log(0.7 * shortest), np.log(0.1 * shortest), *np.log(np.multiply(rates, slowest)),
                     np.log(sharing), np.log(1.0), np.log(0.3), first, 0.5, 0.5, np.log(5.0), np.log(1.0), second, 0.3,
                     0.5])  # fmt: skip


def _own_collective_models(
    common: np.ndarray, rows: pd.DataFrame, rings: Mapping[int, int]
) -> dict[Group, CollectiveModel]:
    weight, result = np.full(len(common), GROUP_PRIOR), {}
    for group, own in rows.groupby(["kind", "group_size", "nodes"]):
        kind, ranks, nodes = (str(each) for each in group)
        points = _points(own, rings)
        misses = partial(_misses, points, common, weight)
        best, _ = robust_least_squares(misses, common, ROBUST_SCALE, GROUP_STEPS)
        result[kind, int(ranks), int(nodes)] = _measured_from(collective_model_of(best), points)
    return result


# What the models are worth: errors on held-out rows, compared with the specification.

SIZES, GROUP = "unseen sizes", "unseen group"


@dataclass(frozen=True)
class HeldOut:
    """Errors on rows that a fit has not seen."""

    name: str  # what was held out
    collective_models: ErrorSummary  # errors of the models fitted on the other rows
    specified: ErrorSummary  # errors of the cluster's specification on the same rows

    def __str__(self) -> str:
        """One line, errors as means."""
        errors = self.collective_models
        return (
            f"{self.name}: {errors.mean_ape:.1%} mean error ({errors.num_nodes} rows; specification "
            f"{self.specified.mean_ape:.1%})"
        )


@dataclass(frozen=True)
class Judged:
    """Models fitted on all rows, and what fits on a part of them are off by on the rest."""

    constants: CollectiveConstants
    num_rows: int
    held_out: tuple[HeldOut, ...]


def fit_and_judge(rows: pd.DataFrame, cluster: ClusterSpec, origin: str) -> Judged:
    """Models of one platform."""
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
    kinds, ranks = rows["kind"].to_numpy(object), rows["group_size"].to_numpy()
    size = touched_bytes(kinds, rows["message_bytes"].to_numpy(float), ranks)
    odd = np.floor(np.log2(size)).astype(int) % 2 == 1  # [n]
    if odd.any() and not odd.all():
        yield SIZES, rows[~odd], rows[odd]
    for place, here in (("inside", rows[rows["nodes"] == 1]), ("between machines", rows[rows["nodes"] > 1])):
        largest = here["group_size"] == here["group_size"].max()
        if len(set(here.loc[~largest, "group_size"])) > 1:  # one smaller group has no growth
            yield f"{GROUP} of {here['group_size'].max()} {place}", here[~largest], here[largest]


def fitted_us(train: pd.DataFrame, test: pd.DataFrame, cluster: ClusterSpec) -> np.ndarray:
    """[n] us of `test` by models fitted on `train`, as a prediction takes them."""
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
