"""Calls of an op run several times in a row, as a user says it: by the op's name, its phase, its shapes.

before   [T1|op]-[T1|next]
after    [T1|op]-[T1|op]-[T1|op]-[T1|next]      times = 3
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnnperf.core import InputError, require
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.edit import Edited
from gnnperf.whatif.graph_rewrite import insert_copies, remove
from gnnperf.whatif.reference_run import LatenciesOf
from gnnperf.whatif.units import OpSelector, units

# An op runs several times in a row, the further times without effect on anything else.
#
# before   [T1|op]-[T1|next]
# after    [T1|op]-[T1|op]-[T1|op]-[T1|next]      times = 3

_WARM = ("whether copies run faster, on data that the run before has just touched",)
_LEFT = ("what else copies leave behind: a warm cache, memory to be freed, work of a backward",)


@dataclass(frozen=True)
class RepeatOp:
    """Every selected call runs `times` times; the copies stand before the original.

    Attributes:
        calls: which op.
        times: 1 changes nothing.
        reference_run: a recording of the program that repeats them: the copies take their latency from it. None: they
            take as long as the original.
    """

    calls: OpSelector
    times: int
    reference_run: ExecutionGraph | None = None

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Insert the copies.

        Raises:
            InputError: no such call, it is a collective, or `times` is below 1.
        """
        require(self.times >= 1, "times", self.times, "1 or more")
        edited, came_from, is_copy = insert_copies(graph, units(graph, self.calls), self.times - 1)
        if self.reference_run is None or not is_copy.any():
            return Edited(edited, is_copy, came_from, (*_WARM, *_LEFT) if is_copy.any() else ())
        filled = LatenciesOf(self.reference_run, lambda pair: is_copy[pair.ids])(edited)
        return Edited(filled.graph, is_copy, came_from, (*filled.unknown, *_LEFT))

    def inverse(self) -> RunOnce:
        """The edit that takes this one back."""
        return RunOnce(self.calls, self.times)


@dataclass(frozen=True)
class RunOnce:
    """Of every `times` selected calls in a row the last one stays.

    Attributes:
        calls: which op.
        times: 1 changes nothing.
    """

    calls: OpSelector
    times: int

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Take the others out.

        Raises:
            InputError: no such call, or a step has a number of them that `times` does not divide.
        """
        require(self.times >= 1, "times", self.times, "1 or more")
        unit = units(graph, self.calls)
        gone = np.isin(unit, self._surplus(graph, unit)) & (unit >= 0)
        edited, came_from = remove(graph, gone)
        return Edited(edited, np.zeros(len(came_from), dtype=bool), came_from, _LEFT if gone.any() else ())

    def inverse(self) -> RepeatOp:
        """The edit that takes this one back."""
        return RepeatOp(self.calls, self.times)

    def _surplus(self, graph: ExecutionGraph, unit: np.ndarray) -> np.ndarray:
        """Numbers of the units to take out."""
        number, first = np.unique(unit, return_index=True)
        number, first = number[number >= 0], first[number >= 0]
        rank, step = graph.nodes["rank"].to_numpy()[first], graph.nodes["step"].to_numpy()[first]
        result = []
        for key in sorted(set(zip(rank.tolist(), step.tolist(), strict=True))):
            mine = number[(rank == key[0]) & (step == key[1])]
            if len(mine) % self.times:
                raise InputError(
                    f"{len(mine)} calls of {self.calls} in step {key[1]} of rank {key[0]}",
                    where=f"graph {graph.name!r}", allowed=f"a multiple of {self.times}",
                    remedy="name the repeated op with its shapes",
                )  # fmt: skip
            result.append(mine[np.arange(len(mine)) % self.times != self.times - 1])
        return np.concatenate(result)


LAUNCHES = "how full a launch queue gets with {} times as many launches of it"


@dataclass(frozen=True)
class RepeatCalls:
    """Every selected call runs `times` times; each copy takes what the predictor says of such a call.

    Attributes:
        op: name of the outermost op, e.g. aten::linear.
        times: 1 changes nothing.
        phase: forward, backward, optimizer; None any.
        rank: None all.
        input_dims: its input shapes as the graph has them (JSON without spaces); None any.
        calls: which of the calls that all else selects, counted from 0 on each rank in each step; None all.
    """

    op: str
    times: int
    phase: str | None = None
    rank: int | None = None
    input_dims: str | None = None
    calls: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse fewer calls than one."""
        require(self.times >= 1, "times of a repeated op", self.times, "1 or more")

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Insert the copies.

        Raises:
            InputError: no such call, or it is a collective.
        """
        ranks = None if self.rank is None else (self.rank,)
        dims = None if self.input_dims is None else self.input_dims.replace(" ", "")
        results = RepeatOp(OpSelector(self.op, dims, self.phase, ranks, self.calls), self.times)(graph)
        unknown = (*results.unknown, LAUNCHES.format(self.times)) if graph.runs_on_gpu else results.unknown
        return replace(results, unknown=unknown)
