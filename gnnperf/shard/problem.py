"""What is searched for: a place for each table of a model on a cluster's devices, within their memory."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnperf import generate
from gnnperf.analytic import LAUNCHES, LOOK_UP, UPDATE, AnalyticPredictor
from gnnperf.core import InputError, NodeType, Phase, require, write_text
from gnnperf.generate import COLUMN_MULTIPLE, FLOAT_BYTES, MOST_RANKS, Op, Part, Placed, Placement, Split, Table, Travel
from gnnperf.hardware import ClusterSpec, default_cluster, load_cluster, load_device, spread, yaml_text

RESERVE_SHARE = 0.15  # of a device's memory for activations and libraries: torchrec's storage reservation by default
US = 1e6
GRADIENT_AND_BUCKET = 2  # float32 copies next to a replicated parameter


@dataclass(frozen=True)
class Problem:
    """A model, its batch and number of ranks, and where they are."""

    plan: generate.RecommendationPlan  # with any placement; others take its place
    cluster: ClusterSpec  # devices and links; its `ranks_per_node` holds for the plan's ranks
    reserve_share: float = RESERVE_SHARE  # of a device's memory that tables do not get

    def __post_init__(self) -> None:
        require(self.cluster.device.kind == "gpu", "hardware", self.cluster.device.name,
                "a GPU: batched lookups with a fused optimizer are kernels of GPUs")  # fmt: skip
        require(0 <= self.reserve_share < 1, "reserve", self.reserve_share, "a share from 0 up, below 1")

    @property
    def tables(self) -> Sequence[Table]:
        """To be placed."""
        return self.plan.model.tables

    @property
    def ranks(self) -> int:
        """That hold them."""
        return self.plan.ranks

    @property
    def capacity_bytes(self) -> float:
        """For tables, of one device: its memory without the reserve and what is replicated of the perceptrons."""
        model = self.plan.model
        copies = 1 + GRADIENT_AND_BUCKET + generate.STATES[model.optimizer]
        perceptrons = float(generate.dense_parameters(model) * FLOAT_BYTES * copies)
        return self.cluster.device.memory_bytes * (1.0 - self.reserve_share) - perceptrons

    def placed(self, placement: Placement) -> generate.RecommendationPlan:
        """The plan with another placement."""
        return replace(self.plan, placement=placement)


def ways(problem: Problem, table: Table) -> tuple[tuple[Split, int], ...]:
    """How a table may be held, (split, ranks): whole; rows over all, or as many as a machine has; columns; copies."""
    ranks = problem.ranks
    if ranks == 1:
        return ((Split.TABLE, 1),)
    node = min(problem.cluster.ranks_per_node, ranks)
    by_row = [(Split.ROW, n) for n in sorted({node, ranks}) if 1 < n <= table.rows]
    powers = [2**k for k in range(1, 13) if 2**k <= ranks]
    by_column = [(Split.COLUMN, n) for n in powers if table.dim % n == 0 and table.dim // n % COLUMN_MULTIPLE == 0]
    copies = [] if table.host else [(Split.REPLICATED, ranks)]
    return ((Split.TABLE, 1), *by_row, *by_column, *copies)


def on_ranks(split: Split, ranks: Sequence[int]) -> Placed:
    """A place on these ranks."""
    return Placed(split, tuple(sorted(ranks)))


# What a placed table adds to the ranks that hold it, and to all: kernels' time, what they send, memory.
#
# Loads add up over tables: a batched kernel goes through its tables one after the other. Prices are the analytical
# model's, without the launches, which tables of a rank share.
#
# of each rank that holds a part: us of indices put in order, looked up, sorted and updated; per sample vector elements
# and indices; bytes of memory
ARRANGE, LOOKED_UP, UPDATED, ELEMENTS, INDICES, MEMORY = range(6)
# of all ranks: columns that are reduced on the way, bytes of replicated tables, us of their dense gradients
SUMMED, REPLICATED, DENSE = range(3)
Key = tuple[int, Split, int]  # table, how it is held, by how many ranks


@dataclass(frozen=True)
class Load:
    """Of one placed table."""

    per_rank: np.ndarray  # [6] see the module; on each of its ranks alike
    shared: np.ndarray  # [3]


@dataclass(frozen=True)
class Loads:
    """Loads of a problem's tables, by how they are held; those not requested before are priced then."""

    problem: Problem
    known: dict[Key, Load] = field(default_factory=dict)

    def of(self, table: int, placed: Placed) -> Load:
        """What one table adds."""
        key = (table, placed.split, len(placed.ranks))
        if key not in self.known:
            self.known.update(_priced(self.problem, [key]))
        return self.known[key]


def all_loads(problem: Problem) -> Loads:
    """Of all tables in all ways to hold them, priced together."""
    keys = [(i, split, n) for i, table in enumerate(problem.tables) for split, n in ways(problem, table)]
    return Loads(problem, _priced(problem, keys))


def _priced(problem: Problem, keys: Sequence[Key]) -> dict[Key, Load]:
    parts = [generate.part_of(problem.tables[i], Placed(split, tuple(range(n))), problem.ranks) for i, split, n in keys]
    launches = np.array([1, LAUNCHES[LOOK_UP], 1, LAUNCHES[UPDATE]])
    items = [item for part in parts for item in _kernels(problem, part)]
    launch_us = launches * problem.cluster.device.launch_floor_us
    us = kernels_us(problem.cluster, items).reshape(-1, 4) - launch_us  # [parts, 4]
    copied = [i for i, part in enumerate(parts) if part.travel is Travel.STAYS and problem.ranks > 1]
    dense_us = np.zeros(len(parts))
    if copied:
        dense = [generate.dense_gradient(parts[i], problem.plan) for i in copied]
        dense_us[copied] = kernels_us(problem.cluster, dense)
    return {key: _load(problem, *each) for key, each in zip(keys, zip(parts, us, dense_us, strict=True), strict=True)}


def _kernels(problem: Problem, part: Part) -> Iterable[Op]:
    """Those that a part may have: arranging, looking up, sorting, updating."""
    plan = problem.plan
    yield generate.moves("arrange", 2.0 * plan.batch * part.indices * generate.INDEX_BYTES, Phase.FORWARD)
    yield generate.batched_op(LOOK_UP, (generate.batched_table(part, plan, update=False),), Phase.FORWARD)
    yield generate.moves("sort", generate.sort_bytes(part, plan), Phase.BACKWARD)
    yield generate.batched_op(UPDATE, (generate.batched_table(part, plan, update=True),), Phase.BACKWARD)


def host_us(cluster: ClusterSpec, moved_bytes: np.ndarray) -> np.ndarray:
    """[n] us in which rows that lie with the host cross its link once."""
    return moved_bytes / cluster.host_link.sustained_bytes_per_s * US


def _load(problem: Problem, part: Part, us: np.ndarray, dense_us: float) -> Load:
    arrange_us, look_up_us, sort_us, update_us = us.tolist()
    stays, copied = part.travel is Travel.STAYS, part.travel is Travel.STAYS and problem.ranks > 1
    both = [part.host_bytes(problem.plan.batch, problem.ranks, way) for way in (None, problem.plan.model.optimizer)]
    read_us, updated_us = host_us(problem.cluster, np.array(both))
    per_rank = np.array([
        0.0 if stays else arrange_us,
        look_up_us + read_us,
        0.0 if copied else sort_us + update_us + 2.0 * updated_us,
        part.dim if part.travel is Travel.POOLED else 0.0,
        0.0 if stays else part.indices,
        part.memory_bytes(problem.plan.model.optimizer),
    ])  # fmt: skip
    table_bytes = float(part.rows * part.dim * FLOAT_BYTES)
    return Load(per_rank, np.array([part.dim if part.travel is Travel.SUMMED else 0.0,
                                    table_bytes if copied else 0.0, dense_us]))  # fmt: skip


def kernels_us(cluster: ClusterSpec, items: Sequence[Op]) -> np.ndarray:
    """[num_kernels] us of the items' kernels on a cluster's device."""
    rows = generate.item_rows(items, generate.Parallelism()).table
    kernels = rows[(rows["node_type"] == NodeType.COMPUTE).to_numpy()]
    return AnalyticPredictor().latency_us(kernels, cluster)


# From the file that `gnnperf shard` reads to a problem, and from the best placement to a plan.

PLACEMENT, RANKS, SOURCE = "placement", "ranks", "source"


def problem_from(
    raw: Mapping[str, Any], where: str, devices: int, hardware: str, cluster: str | None, reserve_share: float
) -> Problem:  # fmt: skip
    """The problem of a file's mapping."""
    require(1 <= devices <= MOST_RANKS, "--devices", devices, f"a whole number from 1 to {MOST_RANKS}")
    if not generate.is_recommendation(raw):
        raise InputError("has no model.tables", where=where, allowed="a recommendation model, as plan dlrm_criteo",
                         remedy="see gnnperf shard --help for the form")  # fmt: skip
    device = load_device(hardware)
    links = default_cluster(device) if cluster is None else load_cluster(cluster, device)
    requested = {key: value for key, value in raw.items() if key != PLACEMENT} | {RANKS: devices}
    return Problem(generate.recommendation_from(requested, where), spread(links, devices), reserve_share)


def given_placement(raw: Mapping[str, Any], where: str, devices: int) -> Placement | None:
    """The file's own placement, if it has one for as many ranks."""
    if PLACEMENT not in raw or raw.get(RANKS) != devices:
        return None
    return generate.recommendation_from(raw, where).placement


def write_plan(raw: Mapping[str, Any], placement: Placement, problem: Problem, out: Path) -> None:
    """The file's plan with the best placement, whole or not at all."""
    retained = {key: value for key, value in raw.items() if key not in (PLACEMENT, RANKS, SOURCE)}
    written = generate.placement_as_written(problem.tables, placement, problem.ranks)
    source = {SOURCE: raw[SOURCE]} if SOURCE in raw else {}
    plan = {**retained, RANKS: problem.ranks, PLACEMENT: written, **source}
    write_text(out, yaml_text(plan))
