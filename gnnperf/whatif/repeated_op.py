"""Calls of an op run several times in a row, as a user says it: by the op's name, its phase, its shapes.

before   [T1|op]-[T1|next]
after    [T1|op]-[T1|op]-[T1|op]-[T1|next]      times = 3
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gnnperf.core import require
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.edit import Edited
from gnnperf.whatif.repeat import RepeatOp
from gnnperf.whatif.units import OpSelector

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
        found = RepeatOp(OpSelector(self.op, dims, self.phase, ranks, self.calls), self.times)(graph)
        unknown = (*found.unknown, LAUNCHES.format(self.times)) if graph.runs_on_gpu else found.unknown
        return replace(found, unknown=unknown)
