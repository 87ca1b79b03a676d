"""How far corrections of kernels carry to a program that training lacks: measured among the programs of training.

    share(base) = of those that fall with length the one with the least |log(measured / base) - share x others|
                  over ops, programs and lengths; others: the mean of it in the other programs, of kernels about as
                  long, the same op most and all ops a little

What learning adds to a short kernel is overhead, which every program pays alike. A long one is as long as its work,
which the analytical model has; what it still misses there differs from program to program.

The teller is a mean, no network, which costs seconds. What counts as the same program, and how far lengths and other
ops tell, was set by hand on training programs (BENCHMARKS.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core import LogRatio, Share

# The best sequence that never rises: one choice per row, by dynamic programming over rows.


def falling(errors: np.ndarray) -> list[int]:
    """Columns, none larger than the one before, with the least sum over rows; of equals the largest.

    Args:
        errors: [num_rows, num_columns].
    """
    total, came_from = errors[0], []
    for row in errors[1:]:
        best = len(total) - 1 - _running_argmin(total[::-1])[::-1]  # [num_columns] of this column and larger ones
        came_from.append(best)
        total = row + total[best]
    result = [len(total) - 1 - int(total[::-1].argmin())]
    for best in reversed(came_from):
        result.append(int(best[result[-1]]))
    return result[::-1]


def _running_argmin(values: np.ndarray) -> np.ndarray:
    """[n] -> [n] place of the least value so far, the first of equals."""
    least = np.minimum.accumulate(values)
    new = np.concatenate([[True], values[1:] < least[:-1]])
    result: np.ndarray = np.maximum.accumulate(np.where(new, np.arange(len(values)), 0))
    return result


LENGTH = 0.5  # of a bin of log(base): nodes of one op and program within it tell of one length
REACH = 0.7  # in log(base): how far lengths tell of each other
BINS, LEAST_GROUPS = 8, 8  # of the curve, as many groups in each; groups that a bin takes
LEAST_LIKE, PRIOR = 0.01, 10.0  # one node three reaches away; what all ops together weigh, in the same unit
SHARES = np.linspace(0.0, 1.0, 21)
UNTOLD = 0.5  # where training has no two programs with an op in common
STRANGE, ALIKE = 0.85, 0.95  # share of a program's known ops that one of training has: of another, of the same


@dataclass(frozen=True)
class Work:
    """Measured kernels of one step.

    Attributes:
        program: what is run; "" unknown.
        op: [n] object, names.
        base_us: [n] what corrections start from.
        log: [n] log(measured / base), of isolated ops; NaN where nothing was measured.
    """

    program: str
    op: np.ndarray
    base_us: np.ndarray
    log: np.ndarray


@dataclass(frozen=True)
class Transferability:
    """What training tells of another program.

    Attributes:
        programs: of training -> the ops of their kernels.
        log_base: [num_bins] lengths of the curve.
        share: [num_bins] of the corrections; it falls with length. Empty: not given.
    """

    programs: Mapping[str, tuple[str, ...]]
    log_base: tuple[LogRatio, ...] = ()
    share: tuple[Share, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what is no curve."""
        if len(self.log_base) != len(self.share) or list(self.log_base) != sorted(self.log_base):
            raise ValueError("a share per length, shortest first")

    def weight(self, op: np.ndarray, base_us: np.ndarray) -> np.ndarray:
        """[n] names of a program's kernels, [n] their bases -> [n] share of their corrections that is believed."""
        alike = float(np.clip((self.known(op) - STRANGE) / (ALIKE - STRANGE), 0.0, 1.0))
        result: np.ndarray = alike + (1.0 - alike) * self._share(base_us)
        return result

    def known(self, op: np.ndarray) -> float:
        """Largest share of these ops that one program of training has, of those that any has.

        An op that is new has its own weight, and makes no program another one, unless most kernels are such: at most
        twice the share of kernels whose op training has.
        """
        programs = [set(ops) for ops in self.programs.values()]
        anywhere = set().union(*programs)
        requested = set(op.tolist()) & anywhere
        held = max((_held(requested, ops) for ops in programs), default=0.0)
        return min(held, 2.0 * float(np.mean([name in anywhere for name in op]))) if requested else 0.0

    def _share(self, base_us: np.ndarray) -> np.ndarray:
        if not self.share:
            return np.full(len(base_us), UNTOLD)
        with np.errstate(divide="ignore"):
            at = np.log(base_us)  # [n]
        return np.interp(at, self.log_base, self.share)


def fit_transferability(steps: Sequence[Work]) -> Transferability:
    """Of training steps."""
    named = list(_named(steps))
    ops: dict[str, set[str]] = {}
    for program, step in named:
        ops.setdefault(program, set()).update(step.op.tolist())
    programs = {program: tuple(sorted(held)) for program, held in ops.items()}
    groups = _groups(named)
    given = _given_by_others(groups) if len(set(groups["program"])) > 1 else groups[:0]
    return Transferability(programs, *_curve(given)) if len(given) >= LEAST_GROUPS else Transferability(programs)


def _named(steps: Sequence[Work]) -> Iterator[tuple[str, Work]]:
    """Steps with their programs; one without a name is of the program that has its ops, else one of its own."""
    known: dict[str, set[str]] = {}
    for step in (one for one in steps if one.program):
        known.setdefault(step.program, set()).update(step.op.tolist())
        yield step.program, step
    for step in sorted((one for one in steps if not one.program), key=lambda one: -len(set(one.op.tolist()))):
        held = set(step.op.tolist())
        program = next((name for name, ops in known.items() if _held(held, ops) >= ALIKE), f"#{len(known)}")
        known.setdefault(program, set()).update(held)
        yield program, step


def _held(requested: set[str], ops: set[str]) -> float:
    return len(requested & ops) / len(requested) if requested else 1.0


def _groups(steps: Sequence[tuple[str, Work]]) -> pd.DataFrame:
    """Columns op, program, bin (int), log, log_base, weight: nodes of an op, a program and a length."""
    parts = []
    for program, step in steps:
        known = np.isfinite(step.log) & (step.base_us > 0)
        base = np.log(step.base_us[known])
        parts.append(pd.DataFrame({"op": step.op[known].astype(str), "program": program,
                                   "bin": np.round(base / LENGTH).astype(np.int64),
                                   "log": step.log[known], "log_base": base}))  # fmt: skip
    every = pd.concat(parts, ignore_index=True).groupby(["op", "program", "bin"], sort=True)
    groups = every.agg(log=("log", "mean"), log_base=("log_base", "mean"), weight=("log", "size")).reset_index()
    return groups.assign(weight=np.sqrt(groups["weight"].to_numpy(float)))  # the more nodes, the less each adds


def _given_by_others(groups: pd.DataFrame) -> pd.DataFrame:
    """Groups whose op other programs have, with a column `others`: the mean log there, of like lengths.

    The same op tells most, and all ops a little: what an op takes to start is much alike, and learned from all.
    """
    of_op = np.zeros((2, len(groups)))
    for rows in groups.groupby("op", sort=True).indices.values():
        of_op[:, rows] = _others(groups.iloc[rows])
    of_all = _others(groups)
    near = of_op[0] > LEAST_LIKE  # [num_groups]
    (weight, log), (all_weight, all_log) = of_op[:, near], of_all[:, near]
    return groups[near].assign(others=(log + PRIOR * all_log / all_weight) / (weight + PRIOR))


def _others(groups: pd.DataFrame) -> np.ndarray:
    """[2, n] weight, and log times weight, of the other programs' groups; by how alike lengths are."""
    program, names = pd.factorize(groups["program"])
    length = groups["bin"].to_numpy() - groups["bin"].min()  # [n]
    weight = groups["weight"].to_numpy()
    sums = np.zeros((2, len(names), length.max() + 1))  # [2, num_programs, num_lengths]
    np.add.at(sums[0], (program, length), weight)
    np.add.at(sums[1], (program, length), weight * groups["log"].to_numpy())
    apart = LENGTH * (np.arange(sums.shape[2])[:, None] - np.arange(sums.shape[2])[None, :])
    like = np.exp(-0.5 * (apart / REACH) ** 2)  # [num_lengths, num_lengths]
    result: np.ndarray = ((sums.sum(axis=1, keepdims=True) - sums) @ like)[:, program, length]
    return result


def _curve(groups: pd.DataFrame) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Lengths, shortest first, and shares: of all that fall, or stay, with length those that err least together."""
    length = groups["bin"].to_numpy()
    before = np.searchsorted(np.sort(length), length)  # [n] groups that are shorter: one length is in one part
    parts = [part for _, part in groups.groupby(before * min(BINS, len(groups) // LEAST_GROUPS) // len(groups))]
    shares = falling(np.stack([_errors(part) for part in parts]))
    return tuple(float(part["log_base"].mean()) for part in parts), tuple(float(SHARES[place]) for place in shares)


def _errors(groups: pd.DataFrame) -> np.ndarray:
    """[num_shares] what each share misses, summed by weight."""
    off = groups["log"].to_numpy()[:, None] - SHARES[None, :] * groups["others"].to_numpy()[:, None]  # [n, num_shares]
    missed: np.ndarray = groups["weight"].to_numpy() @ np.abs(off)
    return missed
