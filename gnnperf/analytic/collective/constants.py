"""CollectiveConstants: the models of one platform's collectives, and which of them predicts a call."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.analytic.collective.model import CollectiveModel, calls_of
from gnnperf.analytic.constants_file import constants_from
from gnnperf.core import AboveZero, FromZero
from gnnperf.hardware import COLLECTIVES_GROUP, POINT_TO_POINT, ClusterSpec, LinkSpec, is_path, path_of, read_yaml

SEND_RECV = "send_recv"  # the name of every point-to-point kind here
REACH = 4.0  # a model covers sizes down to a quarter of the smallest measured one
Kind = tuple[str, str]  # kind of collective, link
Group = tuple[str, int, int]  # kind of collective, ranks, machines


@dataclass(frozen=True)
class MeasuredLink:
    """The link that a platform's models were fitted on, as its cluster describes it."""

    medium: str  # "" unknown
    bandwidth_bytes_per_s: AboveZero  # sustained, per device and direction
    latency_us: FromZero  # of a hop

    @classmethod
    def of(cls, link: LinkSpec) -> "MeasuredLink":
        """What counts of a link."""
        return cls(link.medium, link.sustained_bytes_per_s, link.latency_us)

    def ratios(self, link: LinkSpec) -> tuple[float, float] | None:
        """Latency and bandwidth of `link` over this one's; None: another medium, with other start-ups and protocols."""
        if link.medium != self.medium:
            return None
        latency_ratio = link.latency_us / self.latency_us if self.latency_us > 0 else 1.0
        return latency_ratio, link.sustained_bytes_per_s / self.bandwidth_bytes_per_s


@dataclass(frozen=True)
class CollectiveConstants:
    """What a platform's table given."""

    measured_inside: "MeasuredLink"  # what linked a machine's ranks where this was measured
    measured_between: "MeasuredLink"  # ... and machines.
    collective_models: Mapping[Kind, CollectiveModel]  # (kind, link) -> model over all groups on that link
    # (kind, ranks, machines) -> the model of a group that was measured
    groups: Mapping[Group, CollectiveModel] = field(default_factory=dict)
    # (largest group, its slowest link) inside a machine, by size; a larger group takes the last
    inside: tuple[tuple[int, str], ...] = ()
    between: str = ""  # link between machines; empty if no group spanned several
    # ranks -> rings inside a machine without a switch; empty: a switch
    rings: Mapping[int, int] = field(default_factory=dict)
    provenance: str = ""  # where the numbers come from

    def on(self, cluster: ClusterSpec) -> "CollectiveConstants":
        """The models on a cluster's links: moved to other rates and latencies, without those of another medium."""
        inside, between = self.measured_inside.ratios(cluster.intra), self.measured_between.ratios(cluster.inter)
        collective_models, groups = {}, {}
        for (kind, link), model in self.collective_models.items():
            if (ratios := between if link == self.between else inside) is not None:
                collective_models[kind, link] = model.moved(*ratios)
        for (kind, ranks, nodes), model in self.groups.items():
            if (ratios := between if nodes > 1 else inside) is not None:
                groups[kind, ranks, nodes] = model.moved(*ratios)
        return replace(self, collective_models=collective_models, groups=groups)

    def latency_us(
        self, kinds: np.ndarray, message_bytes: np.ndarray, ranks: np.ndarray, nodes: np.ndarray,
        specified_us: np.ndarray,
    ) -> np.ndarray:  # fmt: skip
        """[n] us; NaN where the table had no such kind on that link. Arguments as of `collective_us`.

        Far below the smallest measured size the shorter of model and specification rules (`specified_us`): the model's
        start-up is a guess there, and of two times that grow with bytes the shorter one does too.
        """
        names = np.where(np.isin(kinds, POINT_TO_POINT), SEND_RECV, kinds)
        result = np.full(len(kinds), np.nan)
        where = pd.DataFrame({"kind": names, "ranks": ranks, "nodes": nodes})
        for _, alike in where.groupby(["kind", "ranks", "nodes"]):
            rows, first = alike.index.to_numpy(), alike.iloc[0]
            collective_model = self.collective_model(str(first["kind"]), int(first["ranks"]), int(first["nodes"]))
            if collective_model is not None:
                calls = calls_of(names[rows], message_bytes[rows], ranks[rows], nodes[rows], self.rings)
                below = calls.touched_bytes * REACH < collective_model.from_bytes
                result[rows] = np.fmin(collective_model.latency_us(calls), np.where(below, specified_us[rows], np.inf))
        return np.where(np.isinf(result), np.nan, result)

    def collective_model(self, kind: str, ranks: int, nodes: int) -> CollectiveModel | None:
        """The group's own model, else that of the kind on the group's link; None if there is neither."""
        return self.groups.get((kind, ranks, nodes)) or self.collective_models.get((kind, self.link(ranks, nodes)))

    def link(self, ranks: int, nodes: int) -> str:
        """The slowest link of a group."""
        if nodes > 1:
            return self.between
        links = [link for largest, link in self.inside if ranks <= largest] or [link for _, link in self.inside[-1:]]
        return links[0] if links else ""


def load_collectives(path: Path) -> "CollectiveConstants":
    """Read the models of a platform.

    Raises InputError: not readable, a key is missing or unknown, a number is none or out of range.
    """
    raw = read_yaml(path)
    if isinstance(raw, dict) and "laws" in raw:  # until release 0.2: the key's former name
        raw["collective_models"] = raw.pop("laws")
    return constants_from(raw, CollectiveConstants, str(path))


@cache
def shipped_collectives(name: str) -> "CollectiveConstants":
    """Models by name, from conf/analytic/collective_models; these files do not change while a process runs."""
    return load_collectives(path_of(name, COLLECTIVES_GROUP))


def collective_models_of(cluster: ClusterSpec) -> "CollectiveConstants | None":
    """The models that the cluster names, on its own links; None: it names none.

    Raises:
        InputError: unknown name, or a file that cannot be read.
    """
    name = cluster.collective_models_name
    return None if name is None else collective_models_named(name).on(cluster)


def collective_models_named(name: str) -> "CollectiveConstants":
    """Models by name, or of a .yaml file.

    Raises:
        InputError: unknown name (with the closest ones), or a file that cannot be read.
    """
    return load_collectives(Path(name)) if is_path(name) else shipped_collectives(name)
