"""Pairs of runs that differ by one known change (`interventions.json`), and the edit that each change is.

{"pairs": [{"kind": "sleep", "a": "run A", "b": "run B", "edit": {"rank": 1, "place": "backward", "sleep_us": 5000}}]}

| kind      | edit                                               | touched nodes                | their latency |
|-----------|----------------------------------------------------|------------------------------|---------------|
| sleep     | rank, place (start, backward, optimizer), sleep_us | the gap at the place         | declared      |
| link      |                                                    | transfers, exits             | of B          |
| repeat    | op, times; optional: rank                          | copies of the op's nodes     | of B          |
| size      |                                                    | other shapes or messages     | of B          |
| slow_rank | as repeat, or as size                              | likewise                     | likewise      |
| blocking  |                                                    | transfers, exits, what waits | of B          |

Which calls of the op are repeated is read off the order of ops in B; which op waits for a collective likewise. Other
keys say how the programs differ and are not needed here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from gnnperf.core import InputError
from gnnperf.gnn.data.recordings import read_json
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif import Edit, Edited, Place
from gnnperf.whatif.declared import gap_at
from gnnperf.whatif.edit import rewritten, unedited
from research.evaluation.op_copies import OpSelector
from research.evaluation.reference_run import LatenciesOf, WaitAs, changed_inputs, transfers
from research.evaluation.repeats import RepeatOp, RunOnce, repeated_calls

PAIRS = "interventions.json"


class Change(StrEnum):
    """The one known change between the runs of a pair."""

    SLEEP = "sleep"  # one rank sleeps
    LINK = "link"  # another link
    REPEAT = "repeat"  # an op runs several times, on every rank
    SIZE = "size"  # a larger table or batch
    SLOW_RANK = "slow_rank"  # one rank has more to do
    BLOCKING = "blocking"  # a collective is waited for where it is issued


@dataclass(frozen=True)
class Pair:
    """B is A with one known change."""

    change: Change  # which
    # a, b: names of the runs
    a: str
    b: str
    edit: Mapping[str, Any]  # what is declared about it


@dataclass(frozen=True)
class Way:
    """One direction of a pair."""

    graph: ExecutionGraph  # a recording of the program that is edited
    # a recording of the program that is predicted; latencies of touched nodes may come from it
    reference_run: ExecutionGraph
    forward: bool  # from A to B, else from B to A


def read_pairs(root: Path) -> tuple[Pair, ...]:
    path = root / PAIRS
    listed = read_json(path).get("pairs")
    if not isinstance(listed, list) or not listed:
        raise InputError("lists no pairs", where=str(path), allowed='{"pairs": [{"kind", "a", "b", "edit"}, ...]}')
    return tuple(_pair(entry, f"{path}, pair {number}") for number, entry in enumerate(listed))


def _pair(entry: object, where: str) -> Pair:
    if not isinstance(entry, dict) or not {"kind", "a", "b"} <= entry.keys():
        raise InputError("is no pair", where=where, allowed='{"kind", "a", "b", "edit"}')
    if entry["kind"] not in list(Change):
        raise InputError(f"unknown kind {entry['kind']!r}", where=where, allowed=", ".join(Change))
    edit = entry.get("edit") or {}
    if not isinstance(edit, dict):
        raise InputError("its edit is no JSON object", where=where)
    return Pair(Change(entry["kind"]), str(entry["a"]), str(entry["b"]), edit)


def edits(pair: Pair, way: Way) -> list[Edit]:
    """What makes the graph of one program of the pair that of the other."""
    try:
        return _EDITS[pair.change](pair.edit, way)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(f"the edit of a {pair.change} is malformed: {reason}", where=f"pair {pair.a} -> {pair.b}",
                         allowed=__doc__ or "") from error  # fmt: skip


@dataclass(frozen=True)
class Pause:
    """One rank waits once per step.

    | forward |T1| backward |  ->  | forward |T1 + sleep| backward |
    """

    rank: int  # which
    place: Place  # where in the step
    sleep_us: float  # how long; negative takes a sleep out again

    def __call__(self, graph: ExecutionGraph) -> Edited:
        if self.sleep_us == 0:
            return unedited(graph)
        at = gap_at(graph, self.rank, self.place)
        latency = graph.nodes["latency_us"].to_numpy(copy=True)
        wanted = latency[at] + self.sleep_us
        latency[at] = np.maximum(wanted, 0.0)
        touched = np.zeros(graph.num_nodes, dtype=bool)
        touched[at] = True
        return rewritten(graph, touched, self._unknown(wanted), latency_us=latency)

    def _unknown(self, wanted_us: np.ndarray) -> tuple[str, ...]:
        short = wanted_us < 0
        if not short.any():
            return ()
        return (
            f"{short.sum()} of {len(short)} gaps are shorter than the sleep of {-self.sleep_us:g} us that is taken out "
            f"(by {-wanted_us[short].min():.1f} us at most): they become 0",
        )


def _sleep(edit: Mapping[str, Any], way: Way) -> list[Edit]:
    rank, place = int(edit["rank"]), Place(edit["place"])
    sleep_us = float(edit["sleep_us"])
    return [Pause(rank, place, sleep_us if way.forward else -sleep_us)]


def _size(edit: Mapping[str, Any], way: Way) -> list[Edit]:
    return [LatenciesOf(way.reference_run, changed_inputs)]


def _repeat(edit: Mapping[str, Any], way: Way) -> list[Edit]:
    rank, times = edit.get("rank"), int(edit["times"])
    calls = OpSelector(str(edit["op"]), ranks=None if rank is None else (int(rank),))
    once, repeated = (way.graph, way.reference_run) if way.forward else (way.reference_run, way.graph)
    result = repeated_calls(once, repeated, calls, times)
    return [RepeatOp(a, times, way.reference_run) if way.forward else RunOnce(b, times) for a, b in result]


_EDITS: dict[Change, Callable[[Mapping[str, Any], Way], list[Edit]]] = {
    Change.SLEEP: _sleep,
    Change.LINK: lambda edit, way: [LatenciesOf(way.reference_run, transfers)],
    Change.REPEAT: _repeat,
    Change.SIZE: _size,
    Change.SLOW_RANK: lambda edit, way: (_repeat if "times" in edit else _size)(edit, way),
    Change.BLOCKING: lambda edit, way: [WaitAs(way.reference_run), LatenciesOf(way.reference_run, transfers)],
}
