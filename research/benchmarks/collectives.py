"""Collectives of public tables: sizes and group sizes that the fit has not seen, next to trivial answers and noise.

Unseen sizes: what nccl-tests call size (the larger of a rank's input and output) lies in an odd octave; the fit sees
even octaves only, so every other power of two, and blocks of a factor of two where a table is dense.
Unseen groups: the fit sees groups of 2 and 4 (of up to 8), and answers 8 (16), inside and between machines apart.
Unseen machines: the fit sees one platform, and answers another one with the same links (owner, library or device).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd

from gnnperf.analytic.collective.model import calls_of, rings_of
from gnnperf.analytic.collective.tables import POINT
from gnnperf.analytic.least_squares import robust_least_squares
from gnnperf.gnn import summarize
from gnnperf.hardware import load_cluster, touched_bytes
from gnnperf.predict.collective_fit import arrays, fitted_us, specified_us
from research.benchmarks._frame import print_head, print_row, run_main
from research.benchmarks._public_runs import mirror
from research.fitting.collectives import CLUSTERS, SHIPPED, cluster_of
from research.tables.collective_sources import read_collectives

GROUP = ["kind", "link", "group_size", "nodes"]


def collective_models_us(train: pd.DataFrame, test: pd.DataFrame) -> np.ndarray:
    """[n] us of models fitted on `train`."""
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


CLASSES = (0, 2**16, 2**20, 2**24, 2**28, 2**62)
CLASS_NAMES = ("< 64 KiB", "64 KiB to 1 MiB", "1 to 16 MiB", "16 to 256 MiB", "larger")
NEIGHBORS = 9  # sizes in a row, for the noise of dense tables
DENSE = 100  # sizes of a group
HEAD = ("rows", "mean", "median", "p90", "max", "bias", "nearest size", "start + bytes / bandwidth", "specification")
Split = tuple[str, pd.DataFrame, pd.DataFrame]


def main() -> None:
    """Print all tables."""
    table = read_collectives(mirror())
    rows = table.rows
    size = touched_bytes(rows["kind"].to_numpy(object), rows["message_bytes"].to_numpy(), rows["group_size"].to_numpy())
    rows = rows.assign(size=size, name=rows["source"].str.partition("/")[2] + ": " + rows["platform"])
    print(f"{len(rows)} rows. Left out: " + "; ".join(f"{count} ({reason})" for reason, count in table.dropped.items()))
    print("Mean error of the trivial answers; bias: geometric mean of predicted / measured, less 1.\n")
    sizes = _judged("unseen sizes", _size_splits(rows))
    _print_worst(sizes)
    _print_classes(sizes)
    _print_noise(rows)
    _print_worst(_judged("unseen groups", _group_splits(rows)))
    _judged("unseen machines", _machine_splits(rows))


def _size_splits(rows: pd.DataFrame) -> Iterator[Split]:
    for name, own in rows.groupby("name"):
        odd = np.floor(np.log2(own["size"])).astype(int) % 2 == 1
        yield str(name), own[~odd], own[odd]


def _group_splits(rows: pd.DataFrame) -> Iterator[Split]:
    for name, own in rows.groupby("name"):
        for place, here in (("inside", own[own["nodes"] == 1]), ("between machines", own[own["nodes"] > 1])):
            for seen, requested in (((2, 4), 8), ((2, 4, 8), 16)):
                train, test = here[here["group_size"].isin(seen)], here[here["group_size"] == requested]
                if len(test):
                    yield f"{name}, {place}, {', '.join(map(str, seen))} -> {requested}", train, test


def _machine_splits(rows: pd.DataFrame) -> Iterator[Split]:
    """Platforms whose models ship, each with the others on the same links, in the kinds and places that both have."""
    shipped = {f"{source.partition('/')[2]}: {platform}" for source, platform in SHIPPED.values()}
    platforms = {str(name): own for name, own in rows.groupby("name")}
    for one, train in platforms.items():
        for other, test in platforms.items():
            if one in shipped and one != other and cluster_of(train).name == cluster_of(test).name:
                known = set(zip(train["kind"], train["link"], strict=True))
                both = [pair in known for pair in zip(test["kind"], test["link"], strict=True)]
                if any(both):
                    yield f"{one} -> {other}", train, test[both]


def _judged(title: str, splits: Iterable[Split]) -> pd.DataFrame:
    """Print a line per split; all test rows with the models' latency and its error."""
    print(f"\n## {title}\n")
    print_head("source: platform", *HEAD)
    parts = []
    for name, train, test in splits:
        measured, ours = test["latency_us"].to_numpy(), collective_models_us(train, test)
        result = summarize(ours, measured)
        others = (nearest_us(train, test), two_parameters_us(train, test), catalog_us(test))
        compared = (summarize(other, measured).mean_ape for other in others)
        shares = (result.mean_ape, result.median_ape, result.p90_ape, result.max_ape)
        print_row(name, len(test), *map(_share, shares), f"{result.bias:+.1%}", *map(_share, compared))
        parts.append(test.assign(split=name, error=np.abs(ours / measured - 1)))
    return pd.concat(parts)


def _print_worst(judged: pd.DataFrame, count: int = 8) -> None:
    """The groups with the largest errors, next to how much their rows scatter around their neighbors."""
    print(f"\nThe {count} worst groups:\n")
    print_head("split", "kind", "ranks on machines", "mean error", "scatter of its rows")
    keys = ["split", "kind", "group_size", "nodes"]
    worst = judged.groupby(keys)["error"].mean().sort_values(ascending=False).head(count)
    grouped = judged.groupby(keys)
    for group, error in zip(worst.index.to_list(), worst, strict=True):
        split, kind, ranks, nodes = group
        rows = grouped.get_group(group)
        print_row(split, kind, f"{ranks} on {nodes}", _share(error), _share(_scatter(rows).mean()))


def _print_classes(judged: pd.DataFrame) -> None:
    print("\nBy source, link and size, mean error (median):\n")
    print_head("", *CLASS_NAMES)
    names = pd.cut(judged["size"], CLASSES, labels=CLASS_NAMES, right=False)
    for (source, link), own in judged.groupby(["source", "link"]):
        here = [own.loc[names.loc[own.index] == name, "error"] for name in CLASS_NAMES]
        records = (f"{_share(part.mean())} ({_share(part.median())})" if len(part) else "-" for part in here)
        print_row(f"{source}, {link}", *records)


def _print_noise(rows: pd.DataFrame) -> None:
    print("\n## Noise of the tables\n")
    print_head("source: platform", "repeated rows, from their median", "other dtype, same bytes",
               f"dense sizes, from {NEIGHBORS} neighbors")  # fmt: skip
    for name, own in rows.groupby("name"):
        records = (_repeats(own), _other_dtype(own), _scatter(own).mean())
        print_row(name, *map(_share, records))


def _repeats(rows: pd.DataFrame) -> float:
    points = rows.groupby(list(POINT))["latency_us"]
    several = (points.transform("size") > 1).to_numpy()
    return float((rows["latency_us"] / points.transform("median") - 1).abs()[several].mean())


def _other_dtype(rows: pd.DataFrame) -> float:
    """Mean distance of a point from the same bytes in another dtype."""
    keys = [key for key in POINT if key != "dtype"]
    medians = rows.groupby([*keys, "dtype"])["latency_us"].median().groupby(keys)
    ratio = (medians.max() / medians.min() - 1)[medians.size() > 1]
    return float(ratio.mean())


def _scatter(rows: pd.DataFrame) -> pd.Series:
    """Distance of each latency from the median of NEIGHBORS sizes in a row; of groups with many sizes only."""
    parts = [
        _distance(own.sort_values("message_bytes")["latency_us"])
        for _, own in rows.groupby(["kind", "group_size", "nodes", "dtype", "method"])
        if len(own) >= DENSE
    ]
    return pd.concat(parts) if parts else pd.Series([np.nan])


def _distance(latency_us: pd.Series) -> pd.Series:
    return (latency_us / latency_us.rolling(NEIGHBORS, center=True).median() - 1).abs().dropna()


def _share(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.1%}"


if __name__ == "__main__":
    run_main(main)
