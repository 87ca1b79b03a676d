"""Every other kind of pair of recorded runs as edits of the first: what a user would say, no recording of the second.

What is stated of repeated ops is what the programs of `research.recording.workloads` say of themselves: the interaction
of a DLRM, the up-projection of a transformer, the first convolution of a block, the first product of experts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from gnnperf.graph import ExecutionGraph
from gnnperf.hardware.placement import BYTES_PER_GBIT
from gnnperf.whatif import (
    Block,
    ChangeCluster,
    ChangeLink,
    DeclarePause,
    Edit,
    RepeatCalls,
    ResizeTables,
    ScaleBatch,
    ScaleSequence,
    WaitLater,
)
from research.benchmarks._recorded_graphs import DATASET
from research.evaluation.pairs import PAIRS, Change

LINK = re.compile(r"_(lo|[\d.]+g)$")
ROWS = re.compile(r"_r(\d+)k(?=_)")
TRANSFORMER = re.compile(r"_w(\d+)_s(\d+)_b(\d+)")
FIRST_CONVOLUTIONS = {"resnet_n1": (1, 3, 6)}  # of each block; the stem is 0, the wider blocks have a third one
Graphs = Mapping[str, ExecutionGraph]  # run -> graph of its first recording


@dataclass(frozen=True)
class DeclaredPair:
    """B is A with one known change.

    Attributes:
        kind: of the change.
        a, b: names of the runs.
        edits: what makes A's graph B's.
        trivial_us: the change without any model: the sleep, bytes over the wire, more tokens; 0 where none is at hand.
        trivial: B's step / A's step likewise; 1 where there is `trivial_us`.
    """

    kind: str
    a: str
    b: str
    edits: tuple[Edit, ...]
    trivial_us: float = 0.0
    trivial: float = 1.0


def declared_pairs(graphs: Graphs) -> list[DeclaredPair]:
    """Every pair whose runs are there."""
    listed = [
        pair for pair in json.loads((DATASET / PAIRS).read_text())["pairs"] if {pair["a"], pair["b"]} <= set(graphs)
    ]
    result = [one for pair in listed for one in _intervention(pair)]
    return [*result, *_links(graphs), *_tables(set(graphs)), *_sequences(set(graphs))]


def _intervention(pair: Mapping[str, object]) -> Iterator[DeclaredPair]:
    a, b, edit = str(pair["a"]), str(pair["b"]), pair["edit"]
    assert isinstance(edit, dict)
    if pair["kind"] == Change.SLEEP:
        us = float(edit["sleep_us"])
        yield DeclaredPair("sleep", a, b, (DeclarePause(us, edit["rank"], edit["place"]),), us)
    elif pair["kind"] in (Change.REPEAT, Change.SLOW_RANK) and "times" in edit:
        kind = "repeat" if pair["kind"] == Change.REPEAT else "slow rank"
        yield DeclaredPair(kind, a, b, (_repeat(a, edit["op"], edit["times"], edit["rank"]),))
    elif pair["kind"] == Change.BLOCKING:
        which = ("all_to_all", None) if a.startswith("dlrm") else ("all_reduce", "backward")
        yield DeclaredPair("blocking", a, b, (Block(*which),))
        yield DeclaredPair("overlap", b, a, (WaitLater(*which),))


def _repeat(run: str, op: str, times: int, rank: int | None) -> RepeatCalls:
    sizes = TRANSFORMER.search(run)
    if sizes and op == "aten::linear":
        width, length, batch = map(int, sizes.groups())
        dims = f"[[{batch * length},{width}],[{4 * width},{width}],[{4 * width}]]"
        return RepeatCalls(op, times, "forward", rank, dims)
    first = next((calls for name, calls in FIRST_CONVOLUTIONS.items() if run.startswith(name)), (0,))
    return RepeatCalls(op, times, "forward", rank, calls=first)


def _links(graphs: Graphs) -> Iterator[DeclaredPair]:
    """Names that differ in the link by itself, between hosts in both directions, and from one host to two."""
    alike: dict[str, dict[str, str]] = {}
    for run in sorted(graphs):
        if match := LINK.search(run):
            alike.setdefault(LINK.sub("", run), {})[match[1]] = run
    for rates in alike.values():
        for one, a in rates.items():
            for other, b in rates.items():
                if one == other or other == "lo":
                    continue
                rate = float(other.removesuffix("g"))
                edits = (ChangeLink(rate_gbit_per_s=rate, link="inter"),)
                wire_us = _bytes_per_step(graphs[a]) / BYTES_PER_GBIT * 1e6
                if one == "lo":
                    yield DeclaredPair("two hosts", a, b, (ChangeCluster(nodes=2), *edits), wire_us / rate)
                else:
                    more_us = wire_us * (1.0 / rate - 1.0 / float(one.removesuffix("g")))
                    yield DeclaredPair("link", a, b, edits, more_us)


def _bytes_per_step(graph: ExecutionGraph) -> float:
    """Bytes of all messages, each once."""
    transfers = (graph.nodes["node_type"] == "collective") & graph.nodes["step"].ge(0)
    return float(np.nansum(graph.nodes["message_bytes"][transfers])) / len(graph.steps)


def _tables(runs: set[str]) -> Iterator[DeclaredPair]:
    """Names that differ in the rows of tables only, in both directions."""
    alike: dict[str, dict[int, str]] = {}
    for run in sorted(runs):
        if match := ROWS.search(run):
            alike.setdefault(ROWS.sub("_r", run), {})[int(match[1])] = run
    for sizes in alike.values():
        for old, a in sizes.items():
            for new, b in sizes.items():
                if old != new:
                    yield DeclaredPair("table rows", a, b, (ResizeTables(new / old),))


def _sequences(runs: set[str]) -> Iterator[DeclaredPair]:
    """Names that differ in the length of sequences, and perhaps in the batch, in both directions."""
    alike: dict[str, list[tuple[int, int, str]]] = {}
    for run in sorted(runs):
        if match := TRANSFORMER.search(run):
            alike.setdefault(TRANSFORMER.sub(f"_w{match[1]}_", run), []).append((int(match[2]), int(match[3]), run))
    for sizes in alike.values():
        for length, batch, a in sizes:
            for new_length, new_batch, b in sizes:
                if length != new_length:
                    ratio = new_length * new_batch / (length * batch)
                    larger = (ScaleBatch(new_batch / batch),) if batch != new_batch else ()
                    edits = (*larger, ScaleSequence(to=new_length))
                    yield DeclaredPair("sequence", a, b, edits, trivial=ratio)
