"""What changed between two steps, added up so that it is the whole change: a waterfall.

step A  |================================|
compute                                  |====|          + 4 ms      each part: time of the critical path there,
comm                              |===========|          - 7 ms      B less A
step B  |=========================|

The critical path passes every moment of a step once, so its parts add up to the step, and their changes to the change
of the step. A part that grew and is nowhere on the path changes the sums over all ranks, which stand next to it.
"""

from dataclasses import dataclass, fields

import numpy as np
import pandas as pd

from gnnperf.core import InputError
from gnnperf.report.compare.side import Side

BY = {"node type": "node_type", "phase": "phase", "op": "op_name"}
UNNAMED = "(unnamed)"
# Other starts of the ranks; of a measured step also what its graph does not explain.
REST = "(outside the critical path)"
OTHERS = "(all others)"
SMALLEST_REST_US = 1e-6  # a rest below is rounding


@dataclass(frozen=True)
class Change:
    """One part of the step."""

    name: str  # of the op, phase or node type
    a_critical_us: float  # a_critical_us, b_critical_us: time that the critical path spends there
    b_critical_us: float
    a_all_ranks_us: float = 0.0  # a_all_ranks_us, b_all_ranks_us: known latencies there, summed over all ranks
    b_all_ranks_us: float = 0.0
    a_num_nodes: int = 0  # a_num_nodes, b_num_nodes: how many nodes there are
    b_num_nodes: int = 0

    @property
    def change_us(self) -> float:
        """B less A."""
        return self.b_critical_us - self.a_critical_us


@dataclass(frozen=True)
class Comparison:
    """Two steps next to each other."""

    a: Side
    b: Side
    # what is added up (a key of BY) -> its parts, the largest change first; their changes add up to `change_us`
    changes: dict[str, tuple[Change, ...]]

    @property
    def change_us(self) -> float:
        """Step B less step A."""
        return self.b.step_time_us - self.a.step_time_us

    @property
    def change_share(self) -> float:
        """Of step A; NaN where that takes no time."""
        return self.change_us / self.a.step_time_us if self.a.step_time_us > 0 else float("nan")


def compare(a: Side, b: Side) -> Comparison:
    """Two steps next to each other.

    Raises InputError: their step times are of different kinds, which are different quantities.
    """
    if a.step_time_kind is not b.step_time_kind:
        raise InputError(
            f"the step of {a.where} is a {a.step_time_kind}, that of {b.where} a {b.step_time_kind}", where="A, B",
            allowed="two steps of one kind: periods, makespans or windows",
            remedy="choose other steps (predict.py step=N, gnnperf compare --step N)",
        )  # fmt: skip
    return Comparison(a, b, {by: _changes(a, b, column) for by, column in BY.items()})


def leading(changes: tuple[Change, ...], limit: int) -> tuple[Change, ...]:
    """The first `limit` parts, and all others as one."""
    if len(changes) <= limit:
        return changes
    others = changes[limit:]
    sums = [sum(getattr(one, field) for one in others) for field in _NUMBERS]
    return (*changes[:limit], Change(f"{OTHERS}: {len(others)}", *sums))


_NUMBERS = tuple(field.name for field in fields(Change)[1:])


def _changes(a: Side, b: Side, column: str) -> tuple[Change, ...]:
    both = pd.concat([_sums(a, column).add_suffix("_a"), _sums(b, column).add_suffix("_b")], axis=1).fillna(0.0)
    columns = ["us_a", "us_b", "total_a", "total_b", "n_a", "n_b"]
    rows = zip(both.index, both[columns].to_numpy().tolist(), strict=True)
    result = [Change(str(name), *numbers[:4], *map(int, numbers[4:])) for name, numbers in rows]
    of_a, of_b = (side.step_time_us - float(np.nansum(side.nodes["critical_us"])) for side in (a, b))
    rest = Change(REST, of_a, of_b)
    if max(abs(rest.a_critical_us), abs(rest.b_critical_us)) > SMALLEST_REST_US:
        result.append(rest)
    return tuple(sorted(result, key=lambda one: (-abs(one.change_us), -one.b_critical_us, one.name)))


def _sums(side: Side, column: str) -> pd.DataFrame:
    """Name -> time on the critical path, latencies summed over ranks, number of nodes."""
    names = side.nodes[column].astype(object).where(side.nodes[column].notna(), UNNAMED)
    groups = side.nodes.groupby(names.to_numpy(dtype=object), sort=True)
    return pd.DataFrame(
        {"us": groups["critical_us"].sum(), "total": groups["latency_us"].sum(), "n": groups.size().astype(np.float64)}
    )
