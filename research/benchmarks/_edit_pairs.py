"""Pairs of recorded runs that differ by their batch, dtype or one slower rank only, and the edit that says so."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from gnnperf.whatif import ChangeDtype, Edit, OpSelector, ScaleBatch
from research.benchmarks._folds import Graphs
from research.benchmarks._recorded_graphs import DATASET
from research.evaluation.pairs import PAIRS
from research.evaluation.repeats import RepeatOp, repeated_calls

BATCH = re.compile(r"_b(\d+)(?=_)")
RANKS_ALIKE = "_b2_fsdp"  # as many sequences as ranks: what the first run of the benchmark brought to light
LOW = "_bfloat16"
HALVED = 0.5


@dataclass(frozen=True)
class EditPair:
    """B is A with one known change.

    Attributes:
        kind: batch, dtype, slow rank.
        a, b: names of the runs.
        edits: what makes A's graph B's.
        trivial: B's step / A's step without any model: as the batch, as the bytes of an element; slow rank: unknown, 1.
        seen: whether the rules of the edit were written with this pair at hand.
    """

    kind: str
    a: str
    b: str
    edits: tuple[Edit, ...]
    trivial: float
    seen: bool


def edit_pairs(runs: set[str], graphs: Graphs) -> list[EditPair]:
    """Every pair, batch in both directions; `graphs` by name of recording."""
    listed = _listed()
    return [*shape_pairs(runs), *_slow_rank(listed, graphs)]


def shape_pairs(runs: set[str]) -> list[EditPair]:
    """Those of batch and dtype."""
    return [*_batch(runs, {(str(p["a"]), str(p["b"])) for p in _listed()}), *_dtype(runs)]


def _listed() -> list[dict[str, object]]:
    result: list[dict[str, object]] = json.loads((DATASET / PAIRS).read_text())["pairs"]
    return result


def _batch(runs: set[str], seen: set[tuple[str, str]]) -> Iterator[EditPair]:
    """Names that differ in `_b<batch>` by itself."""
    alike: dict[str, dict[int, str]] = {}
    for run in sorted(runs):
        if match := BATCH.search(run):
            alike.setdefault(BATCH.sub("_b", run), {})[int(match[1])] = run
    for sizes in alike.values():
        for small, a in sizes.items():
            for large, b in sizes.items():
                if small != large:
                    factor = large / small
                    known = (a, b) in seen or (b, a) in seen or any(RANKS_ALIKE in run for run in (a, b))
                    yield EditPair("batch", a, b, (ScaleBatch(factor),), factor, known)


def _dtype(runs: set[str]) -> Iterator[EditPair]:
    for run in sorted(runs):
        if LOW in run and run.replace(LOW, "") in runs:
            edit = ChangeDtype("float32", "bfloat16")
            yield EditPair("dtype", run.replace(LOW, ""), run, (edit,), HALVED, True)


def _slow_rank(listed: list[dict[str, object]], graphs: Graphs) -> Iterator[EditPair]:
    """Which calls of the op are repeated is read off the order of ops in B (no times); all else is declared."""
    for pair in listed:
        edit = pair["edit"]
        if pair["kind"] != "slow_rank" or not isinstance(edit, dict) or "times" not in edit:
            continue
        a, b = str(pair["a"]), str(pair["b"])
        calls = OpSelector(edit["op"], ranks=(edit["rank"],))
        result = repeated_calls(graphs[f"{a}/1"], graphs[f"{b}/1"], calls, edit["times"])
        yield EditPair("slow rank", a, b, tuple(RepeatOp(which, edit["times"]) for which, _ in result), 1.0, False)
