"""An op runs several times in a row, or once again; and which calls of an op another program repeats.

before     [T1|op]-[T1|next]
after      [T1|op]-[T1|op]-[T1|op]-[T1|next]      times = 3

Repeated calls follow from the order of ops, never from times:

once       linear | gelu | linear            runs of equal calls: 1  1  1
repeated   linear | gelu | linear linear linear                  1  1  3      the second one, three times
"""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gnnperf.core import InputError, Segment, require
from gnnperf.graph import ExecutionGraph
from gnnperf.schedule import common_subsequence
from gnnperf.whatif import Edited
from gnnperf.whatif.units import host_units, remove
from research.evaluation.op_copies import OpSelector, insert_copies, units
from research.evaluation.reference_run import LatenciesOf

WARM = "whether copies run faster, on data that the run before has just touched"
LEFT = "what else copies leave behind: a warm cache, memory to be freed, work of a backward"


@dataclass(frozen=True)
class RepeatOp:
    """Every selected call runs `times` times; the copies stand before the original."""

    calls: OpSelector  # which op
    times: int  # 1 changes nothing
    # a recording of the program that repeats them: the copies take their latency from it. None: they take as long as
    # the original.
    reference_run: ExecutionGraph | None = None

    def __call__(self, graph: ExecutionGraph) -> Edited:
        require(self.times >= 1, "times", self.times, "1 or more")
        edited, came_from, is_copy = insert_copies(graph, units(graph, self.calls), self.times - 1)
        if self.reference_run is None or not is_copy.any():
            return Edited(edited, is_copy, came_from, (WARM, LEFT) if is_copy.any() else ())
        filled = LatenciesOf(self.reference_run, lambda pair: is_copy[pair.ids])(edited)
        return Edited(filled.graph, is_copy, came_from, (*filled.unknown, LEFT))


@dataclass(frozen=True)
class RunOnce:
    """Of every `times` selected calls in a row the last one stays."""

    calls: OpSelector  # which op
    times: int  # 1 changes nothing

    def __call__(self, graph: ExecutionGraph) -> Edited:
        require(self.times >= 1, "times", self.times, "1 or more")
        unit = units(graph, self.calls)
        gone = np.isin(unit, self._surplus(graph, unit)) & (unit >= 0)
        edited, came_from = remove(graph, gone)
        return Edited(edited, np.zeros(len(came_from), dtype=bool), came_from, (LEFT,) if gone.any() else ())

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


def repeated_calls(
    once: ExecutionGraph, repeated: ExecutionGraph, calls: OpSelector, times: int
) -> list[tuple[OpSelector, OpSelector]]:
    """For every rank with such calls: which calls of `once` are repeated, and which calls of `repeated` they become.

    The last whole step of each recording is read. Raises InputError where no run of equal calls is `times` times as
    long in `repeated`.
    """
    result = []
    for rank in once.ranks if calls.ranks is None else calls.ranks:
        of_rank = replace(calls, ranks=(rank,))
        here, there = (_runs(graph, rank, of_rank) for graph in (once, repeated))
        pairs = common_subsequence(here["key"].to_numpy(), there["key"].to_numpy())
        a, b = here.iloc[pairs[0]].reset_index(drop=True), there.iloc[pairs[1]].reset_index(drop=True)
        both = pd.concat([a, b.add_suffix("_b")], axis=1)
        both = both[both["selected"] & (both["length_b"] == times * both["length"]) & (times > 1)]
        if len(both):
            result.append((
                replace(of_rank, ordinals=_ordinals(both["first"], both["length"])),
                replace(of_rank, ordinals=_ordinals(both["first_b"], both["length_b"])),
            ))  # fmt: skip
    if not result:
        raise InputError(f"no call of {calls} that runs {times} times as often in graph {repeated.name!r}",
                         where=f"graph {once.name!r}", allowed="an op that the other program repeats")  # fmt: skip
    return result


def _runs(graph: ExecutionGraph, rank: int, calls: OpSelector) -> pd.DataFrame:
    """Runs of equal op calls in a rank's last step, thread by thread in order of execution.

    Columns: key, length, selected (whether `calls` names them), first (ordinal of its first call among those it names).
    """
    nodes = graph.nodes
    inside = (nodes["rank"] == rank) & (nodes["step"] == graph.steps[-1].step)
    inside &= (nodes["thread"] >= 0) & (nodes["segment"] != Segment.T1)
    own = nodes[inside].assign(unit=host_units(graph)[inside.to_numpy()])
    own = own.drop_duplicates("unit").sort_values(["thread", "node_id"])
    text = own["thread"].astype(str) + own["op_name"].astype("str") + own["input_dims"].astype("str").fillna("")
    key = pd.util.hash_array(text.to_numpy(dtype=object))
    run = np.cumsum(np.r_[True, key[1:] != key[:-1]][: len(key)])
    selected = calls.names(own)
    ordinal = np.cumsum(selected) - 1
    table = pd.DataFrame({"run": run, "key": key.view(np.int64), "selected": selected, "first": ordinal})
    runs = table.groupby("run").agg(key=("key", "first"), selected=("selected", "first"), first=("first", "first"))
    return runs.assign(length=table.groupby("run").size()).reset_index(drop=True)


def _ordinals(first: pd.Series, length: pd.Series) -> tuple[int, ...]:
    spans = zip(first.tolist(), length.tolist(), strict=True)
    return tuple(ordinal for begin, count in spans for ordinal in range(begin, begin + count))
