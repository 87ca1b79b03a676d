"""Calls of an op run several times in a row, the further times without effect on anything else.

before   [T1|op]-[T1|next]
after    [T1|op]-[T1|op]-[T1|op]-[T1|next]      times = 3
"""

from __future__ import annotations

from dataclasses import dataclass

from gnnperf.core import require
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.edit import Edited
from gnnperf.whatif.graph_rewrite import insert_copies
from gnnperf.whatif.units import OpSelector, units

WARM = "whether copies run faster, on data that the run before has just touched"
LEFT = "what else copies leave behind: a warm cache, memory to be freed, work of a backward"
LAUNCHES = "how full a launch queue gets with {} times as many launches of it"


@dataclass(frozen=True)
class RepeatCalls:
    """Every selected call runs `times` times; the copies stand before the original, and take as long as it does.

    Attributes:
        op: name of the outermost op, e.g. aten::linear.
        times: 1 changes nothing.
        phase: forward, backward, optimizer; None any.
        rank: None all.
        input_dims: its input shapes as the graph has them (JSON); None any.
        calls: which of the calls that all else selects, counted from 0 on each rank in each step; None all.
    """

    op: str
    times: int
    phase: str | None = None
    rank: int | None = None
    input_dims: str | None = None
    calls: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        require(self.times >= 1, "times of a repeated op", self.times, "1 or more")

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Apply the edit."""
        ranks = None if self.rank is None else (self.rank,)
        dims = None if self.input_dims is None else self.input_dims.replace(" ", "")
        selector = OpSelector(self.op, dims, self.phase, ranks, self.calls)
        edited, came_from, is_copy = insert_copies(graph, units(graph, selector), self.times - 1)
        queue = (LAUNCHES.format(self.times),) if graph.runs_on_gpu else ()
        return Edited(edited, is_copy, came_from, (WARM, LEFT, *queue) if self.times > 1 else ())
