"""Trust: the share of the network's answer that a node takes, in log space, and why it is not all of it.

    weight = of the op's name x of dtype and device x of numbers beyond training x of states unlike training
             x of kernels of a program that training lacks

Each is 1 where training has the like and falls as evidence thins; what is left goes to the corrected analytical answer.
How fast they fall was chosen on programs of op families that training lacked (BENCHMARKS.md), never on test runs; the
last is measured in training itself (trust.carry).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.data.storage import NodeStorage

from gnnperf.core import LogRatio, NodeType, Source
from gnnperf.gnn.data.floors import NOTHING, texts_of, words_of
from gnnperf.gnn.data.normalizer import ROUNDING, Normalizer
from gnnperf.gnn.data.numbers import WORK_NAMES
from gnnperf.gnn.data.prepare import PreparedData, Step
from gnnperf.gnn.data.runs import node_kinds
from gnnperf.gnn.data.vocabulary import FIELDS, UNKNOWN
from gnnperf.gnn.models.gnn import WORK, TypedGNN
from gnnperf.gnn.models.segmented import states_of
from gnnperf.gnn.trust.ood_distance import KEPT, OodDistance, fit_ood_distance
from gnnperf.gnn.trust.transferability import Transferability, Work, fit_transferability
from gnnperf.graph import REASONS

# What the analytical answer missed in training, by device, kind of node and family: it is put right by that.
#
#     correction = n / (n + PRIOR_OPS) x mean over the n ops of the group of (median of log(measured / analytical))
#
# An op that training lacks is one more op of its family. So ops are what is counted, however many nodes each has, and a
# family of few ops is hardly believed. A family that training lacks has no correction, nor has a kind of node whose
# corrections did not help on the validation runs.

PRIOR_OPS = 3.0
SEPARATOR = " | "


@dataclass(frozen=True)
class Corrections:
    """Attributes: log: device, kind and family -> log of what the analytical answer is multiplied by."""

    log: Mapping[str, LogRatio]

    def of(self, nodes: pd.DataFrame, device: str) -> np.ndarray:
        """[num_nodes] logs; 0 where training tells nothing."""
        return self._at(_groups(nodes, device))

    def _at(self, groups: np.ndarray) -> np.ndarray:
        names, place = np.unique(groups.astype(str), return_inverse=True)
        values = np.array([self.log.get(str(name), 0.0) for name in names])  # [num_groups]
        result: np.ndarray = values[place]
        return result


@dataclass(frozen=True)
class Missed:
    """Nodes of one step.

    Attributes:
        device: that it ran on.
        nodes: node table.
        log: [num_nodes] log(measured / analytical), of isolated ops; NaN where one of the two is not there.
    """

    device: str
    nodes: pd.DataFrame
    log: np.ndarray


def fit_corrections(train: Sequence[Missed], val: Sequence[Missed]) -> Corrections:
    """From training steps; validation steps say which kinds of node they help."""
    every = _table(train)
    by_op = every.groupby(["group", "op"], sort=True)["log"].median()
    groups = by_op.groupby(level="group", sort=True)
    count, mean = groups.size(), groups.mean()
    result = Corrections(
        {str(g): float(n / (n + PRIOR_OPS) * m) for g, n, m in zip(count.index, count, mean, strict=True)}
    )
    judged = _table(val)
    better = judged["log"].abs() - (judged["log"] - result._at(judged["group"].to_numpy())).abs()
    helps = better.groupby(judged["kind"]).mean()
    retained = {str(kind) for kind, gain in helps.items() if gain > 0}
    return Corrections({group: log for group, log in result.log.items() if group.split(SEPARATOR)[1] in retained})


def _table(steps: Sequence[Missed]) -> pd.DataFrame:
    """Columns group, kind, op, log of all nodes that have both latencies."""
    tables = []
    for step in steps:
        known = np.isfinite(step.log)
        rows = step.nodes[known]
        tables.append(pd.DataFrame({"group": _groups(rows, step.device), "kind": node_kinds(rows),
                                    "op": texts_of(rows["op_name"]), "log": step.log[known]}))  # fmt: skip
    return pd.concat(tables, ignore_index=True)


def _groups(nodes: pd.DataFrame, device: str) -> np.ndarray:
    """[num_nodes] object."""
    family = texts_of(nodes["family"])
    return np.asarray(device + SEPARATOR + node_kinds(nodes) + SEPARATOR + family, dtype=object)


# Which dtypes training saw on which device. A number says nothing of a pair that was never there.
#
# Of a device that training lacks no pair was there, unless training had several: then it had to learn what devices have
# in common, and a dtype of any of them counts.


@dataclass(frozen=True)
class Seen:
    """Attributes: dtypes: device -> node type -> dtypes of its measured nodes."""

    dtypes: Mapping[str, Mapping[str, tuple[str, ...]]]

    def unseen(self, node_type: str, nodes: pd.DataFrame, device: str) -> np.ndarray:
        """[n] bool: nodes of this type with a dtype that training did not have on the device."""
        words, place = words_of(nodes["dtype"])
        known = self._known(node_type, device)
        new = np.array([word != NOTHING and str(word) not in known for word in words], dtype=bool)  # [num_words]
        result: np.ndarray = new[place]
        return result

    def knows(self, device: str) -> bool:
        """Whether training had the device, or several others to learn from."""
        return device in self.dtypes or len(self.dtypes) > 1

    def _known(self, node_type: str, device: str) -> set[str]:
        if device in self.dtypes or not self.knows(device):
            return set(self.dtypes.get(device, {}).get(node_type, ()))
        return {dtype for types in self.dtypes.values() for dtype in types.get(node_type, ())}


def fit_seen(steps: Iterable[tuple[str, pd.DataFrame]]) -> Seen:
    """Of the measured nodes of training steps, each with the device it ran on."""
    result: dict[str, dict[str, set[str]]] = {}
    for device, table in steps:
        nodes = table[table["latency_us"].notna()]
        for node_type, rows in nodes.groupby("node_type", observed=True):
            words, place = words_of(rows["dtype"])
            known = result.setdefault(device, {}).setdefault(str(node_type), set())
            known.update(str(words[i]) for i in np.unique(place) if words[i] != NOTHING)
    return Seen({device: {t: tuple(sorted(words)) for t, words in types.items()} for device, types in result.items()})


# How far beyond the training range a node's numbers are, in units of what they varied by in training.
#
#     low          high                      distance of the node: of its farthest number
#      |============|......x                 (x - high) / spread
#
# The network sees such a number as its nearest end (data.normalizer), so it is the correction that is in doubt.

NAMES = (  # of the op's own work. A longer step, more ranks or another order around it make no other op of it.
    "log_flops", "log_bytes", "log_message_bytes", "log_intensity", "log_num_inputs", "log_elements", "log_largest",
    "log_second", "log_first_dim", "log_last_dim", "log_batch", "log_m", "log_n", "log_k", "log_waves",
    "log_compute_us", "log_memory_us", "log_bytes_per_cache", "log_analytic_us", "log_base_us",
    "flops_unknown", "bytes_unknown", "message_bytes_unknown", "dims_unknown", "analytic_unknown",
)  # fmt: skip
COUNTED = [WORK_NAMES.index(name) for name in NAMES]
LEAST_SPREAD = 0.1  # of a number that hardly varied in training: ten percent of what a log is of


def out_of_range(normalizer: Normalizer, node_type: str, x: Tensor) -> tuple[Tensor, Tensor]:
    """Distance and place in NAMES of the number that is farthest out.

    Args:
        normalizer: of the checkpoint.
        node_type: of the nodes.
        x: [n, num_features] raw features.

    Returns:
        [n] distance, 0 within the range; [n] int64 place.
    """
    values = x[:, COUNTED]  # [n, num_counted]
    low, high, scale = (part[node_type][COUNTED] for part in (normalizer.low, normalizer.high, normalizer.scale))
    out = torch.maximum(values - high, low - values)
    spread = torch.where(torch.isfinite(scale), scale, LEAST_SPREAD).clamp(min=LEAST_SPREAD)
    distance: Tensor = torch.where(out > ROUNDING, out / spread, 0.0)
    if not len(x):
        return x.new_zeros(0), torch.zeros(0, dtype=torch.int64)
    farthest = distance.max(dim=1)
    return farthest.values, farthest.indices


OP = FIELDS.index("op_name")
KERNELS = NodeType.COMPUTE
UNKNOWN_OP = 0.9  # weight of an op that training lacks
UNSEEN_DTYPE = 0.75  # weight of a dtype that training lacks on the device
BEYOND_DECAY = 3.0  # spreads beyond the training range over which the weight falls by e
UNLIKE_DECAY = 6.0  # usual distances beyond the usual one over which it does
LEAST = 0.05  # a smaller weight is none
ALIKE = REASONS[Source.GNN]


@dataclass(frozen=True)
class States:
    """Attributes: own, around: work type -> [n, hidden_channels], of nodes by themselves and among their neighbors."""

    own: Mapping[str, Tensor]
    around: Mapping[str, Tensor]


def distance_weights(out_of_range: np.ndarray, unlike: np.ndarray) -> np.ndarray:
    """[2, n] weights of numbers beyond training and of states unlike training, from [n] distances of each."""
    return np.stack([np.exp(-out_of_range / BEYOND_DECAY), np.exp(-np.maximum(unlike - 1.0, 0.0) / UNLIKE_DECAY)])


@torch.no_grad()
def read_states(network: TypedGNN, data: HeteroData) -> States:
    """Of a normalized graph."""
    return States(network.own_states(data), states_of(network, data))


@dataclass(frozen=True)
class Trusted:
    """All [num_nodes].

    Attributes:
        weight: 0 to 1.
        reason: object, why it is not more.
        unknown_op, unseen_dtype: bool, whether training lacks the op, the dtype on the device.
        out_of_range: distance beyond the training range (trust.beyond).
        unlike: distance to training states (trust.likeness).
        cross_step: weight of a kernel of this length in this program (trust.carry).
    """

    weight: np.ndarray
    reason: np.ndarray
    unknown_op: np.ndarray
    unseen_dtype: np.ndarray
    out_of_range: np.ndarray
    unlike: np.ndarray
    cross_step: np.ndarray


@dataclass(frozen=True)
class Trust:
    """What training had.

    Attributes:
        seen: dtypes by device.
        corrections: of the analytical answer.
        transferability: how far corrections of kernels carry to another program.
        own, around: likeness of states, of nodes by themselves and among their neighbors.
    """

    seen: Seen
    corrections: Corrections
    transferability: Transferability
    own: OodDistance
    around: OodDistance

    def of(self, nodes: pd.DataFrame, device: str, data: HeteroData, normalizer: Normalizer, states: States) -> Trusted:
        """Of every node; hardware has weight 1.

        Args:
            nodes: node table of the graph.
            device: predicted for.
            data: the graph's features, raw.
            normalizer: of the checkpoint.
            states: the network's.
        """
        zero, no = np.zeros(len(nodes)), np.zeros(len(nodes), dtype=bool)
        reason = np.full(len(nodes), ALIKE, dtype=object)
        result = Trusted(zero + 1.0, reason, no, no.copy(), zero, zero.copy(), zero + 1.0)
        for node_type in WORK:
            store, rows = data[node_type], data[node_type].node_id.numpy()
            if not len(rows):
                continue
            distance, place = out_of_range(normalizer, node_type, store.x)
            result.unknown_op[rows] = (store.codes[:, OP] == UNKNOWN).numpy()
            result.unseen_dtype[rows] = self.seen.unseen(node_type, nodes.iloc[rows], device)
            result.out_of_range[rows] = distance.double().numpy()
            result.unlike[rows] = self._unlike(node_type, states).double().numpy()
            if node_type == KERNELS:
                result.cross_step[rows] = self.transferability.weight(
                    texts_of(nodes["op_name"].iloc[rows]), _base_us(store)
                )
            result.weight[rows], result.reason[rows] = self._together(
                result, rows, nodes["dtype"], place.numpy(), device
            )
        return result

    def _unlike(self, node_type: str, states: States) -> Tensor:
        own = self.own.unlike(node_type, states.own[node_type])
        return torch.maximum(own, self.around.unlike(node_type, states.around[node_type]))

    def _together(
        self, result: Trusted, rows: np.ndarray, dtype: pd.Series, place: np.ndarray, device: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """[n] product of the weights of all tests, and what took most; a word that is new says more than a distance."""
        of_pair = UNSEEN_DTYPE if self.seen.knows(device) else 0.0  # of another device nothing was learned
        weights = np.stack([
            np.where(result.unknown_op[rows], UNKNOWN_OP, 1.0),
            np.where(result.unseen_dtype[rows], of_pair, 1.0),
            *distance_weights(result.out_of_range[rows], result.unlike[rows]),
            result.cross_step[rows],
        ])  # fmt: skip
        words, of_node = words_of(dtype)
        same = np.full(len(rows), "op not in the vocabulary", dtype=object)
        reasons = np.stack([
            same,
            np.array([f"dtype {word} not seen on this device" for word in words], dtype=object)[of_node[rows]],
            np.array([f"{name} outside the range of training" for name in NAMES], dtype=object)[place],
            np.full(len(rows), "unlike training", dtype=object),
            np.full(len(rows), "kernel of a program that training lacks", dtype=object),
        ])  # fmt: skip
        new_word = np.where(weights[0] < 1, 0, 1)  # [n]
        which = np.where(weights[:2].min(axis=0) < 1, new_word, 2 + weights[2:].argmin(axis=0))  # [n]
        why: np.ndarray = reasons[which, np.arange(len(rows))]
        product: np.ndarray = weights.prod(axis=0)
        return np.where(product < LEAST, 0.0, product), np.where(product < 1.0, why, ALIKE)

    def to_plain(self) -> dict[str, Any]:
        """Plain tensors, numbers and text; `plain_trust` gives them the names of the fields again."""
        plain = asdict(self)
        for name, ood_distance in (("own", self.own), ("around", self.around)):
            plain[name]["states"] = dict(ood_distance.states)
        plain["carry"] = plain.pop("transferability")  # the key of the file
        return plain


def plain_trust(plain: Any) -> Any:
    """What `Trust.to_plain` wrote, with the names of the fields: a file calls the transferability "carry"."""
    if not isinstance(plain, dict) or "carry" not in plain:
        return plain
    return {**{key: plain[key] for key in plain if key != "carry"}, "transferability": plain["carry"]}


def fit_trust(network: TypedGNN, data: PreparedData) -> Trust:
    """From training steps; how far states of seen ops usually are, from validation steps."""
    train, val = data.steps["train"], data.steps["val"]
    seen = fit_seen((step.cluster.device.name, step.nodes) for step in train)
    corrections = fit_corrections([_missed(step) for step in train], [_missed(step) for step in val])
    (own, around), (val_own, val_around) = _states(network, train), _states(network, val)
    transferability = fit_transferability([_work(step) for step in train])
    return Trust(
        seen, corrections, transferability, fit_ood_distance(own, val_own), fit_ood_distance(around, val_around)
    )


def _work(step: Step) -> Work:
    """Kernels that the analytical model has a price for: of a typed floor nothing is given."""
    store = step.data[KERNELS]
    op = texts_of(step.nodes["op_name"].iloc[store.node_id.numpy()])
    priced = torch.isfinite(store.analytic_us) & (store.analytic_us > 0)
    return Work(step.workload, op, _base_us(store), torch.where(priced, store.target, torch.nan).double().numpy())


def _base_us(store: NodeStorage) -> np.ndarray:
    base_us: np.ndarray = store.base_us.double().numpy()  # [n]
    return base_us


def _missed(step: Step) -> Missed:
    missed = np.full(len(step.nodes), np.nan)
    for node_type in WORK:
        store = step.data[node_type]
        ratio = torch.log(store.base_us / store.analytic_us).nan_to_num(nan=torch.nan, posinf=torch.nan)
        missed[store.node_id.numpy()] = (store.target + ratio).numpy()
    return Missed(step.cluster.device.name, step.nodes, missed)


def _states(network: TypedGNN, steps: Sequence[Step]) -> tuple[list[dict[str, Tensor]], list[dict[str, Tensor]]]:
    """Per step both states of nodes whose op training has; of many, one in so many."""
    own: list[dict[str, Tensor]] = []
    around: list[dict[str, Tensor]] = []
    for step in steps:
        states = read_states(network, step.data)
        rows = {t: _some(step.data[t].codes[:, OP] != UNKNOWN) for t in WORK}
        own.append({t: states.own[t][rows[t]] for t in WORK})
        around.append({t: states.around[t][rows[t]] for t in WORK})
    return own, around


def _some(known: Tensor) -> Tensor:
    """[n] bool -> [at most 2 KEPT] rows that are true, evenly apart."""
    rows = known.nonzero()[:, 0]
    return rows[:: max(len(rows) // KEPT, 1)]
