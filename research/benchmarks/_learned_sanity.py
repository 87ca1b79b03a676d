"""Does the network notice: half the bandwidth, half the FLOP rate, the links of other runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from gnnperf.core import NodeType
from gnnperf.gnn.data.prepare import PreparedData, Step
from gnnperf.gnn.evaluation.metrics import gmae, is_measured
from research.baselines.judge import Answer
from research.baselines.sanity import (
    half_bandwidth,
    half_flops,
    is_memory_bound,
    moves,
    on_device,
    over_links_of,
    with_another_link,
    with_links_shuffled,
)
from research.baselines.table import load_split
from research.baselines.trivial import Base
from research.benchmarks._learned_jobs import data_config
from research.benchmarks._learned_rows import LEARNED

SEED, DEALS = 0, 5


def print_sanity(split: str, part: str, bucket_bytes: float | None = None) -> None:
    """Fit the network on a split once and ask it otherwise about the part's steps."""
    data = load_split(data_config(split, bucket_bytes=bucket_bytes)).data
    answers: dict[str, Answer] = {"base": Base(), "gnn": LEARNED["gnn"].fit(data, SEED)}
    console, steps = Console(width=160), data.steps[part]
    console.print(_devices(split, answers, data, steps))
    console.print(_links(split, answers, data, steps))


def _devices(split: str, answers: dict[str, Answer], data: PreparedData, steps: Sequence[Step]) -> Table:
    table = Table("answer", "device", "nodes", "count", "up %", "as before %", "down %", "median ratio",
                  title=f"{split}: predictions on another device", title_justify="left")  # fmt: skip
    kinds = {name: [is_memory_bound(step)[place] for step in steps]
             for place, name in enumerate(("memory bound", "compute bound"))}  # fmt: skip
    for given, change in (("half the bandwidth", half_bandwidth), ("half the FLOP rate", half_flops)):
        pairs = [(step, on_device(step, change(step.cluster.device), data)) for step in steps]
        for name, answer in answers.items():
            for kind, chosen in kinds.items():
                result = moves(answer, pairs, chosen)
                shares = (result.up, 1 - result.up - result.down, result.down)
                table.add_row(name, given, kind, str(result.nodes), *[f"{100 * s:.1f}" for s in shares],
                              f"{result.median_ratio:.2f}")  # fmt: skip
    return table


def _links(split: str, answers: dict[str, Answer], data: PreparedData, steps: Sequence[Step]) -> Table:
    """Features of links dealt out anew, bases their own; and requested over the link of another run, bases too."""
    table = Table("answer", "links", "steps", "GMAE of collectives %", "mean |log step error|",
                  title=f"{split}: links of other runs", title_justify="left")  # fmt: skip
    pairs = with_another_link(steps)
    own, moved = [step for step, _ in pairs], [over_links_of(step, other, data) for step, other in pairs]
    for name, answer in answers.items():
        _add(table, name, "their own", [_errors(answer, steps)], len(steps))
        if name != "base":  # it knows them by its own laws, which stay
            dealt = [_errors(answer, with_links_shuffled(steps, seed)) for seed in range(DEALS)]
            _add(table, name, f"features dealt out, mean of {DEALS}", dealt, len(steps))
        _add(table, name, "their own, where another run's differs", [_errors(answer, own)], len(own))
        _add(table, name, "of that run", [_errors(answer, moved)], len(own))
    return table


def _add(table: Table, name: str, links: str, errors: Sequence[tuple[float, float]], count: int) -> None:
    nodes, step = np.mean(errors, axis=0)
    table.add_row(name, links, str(count), f"{100 * nodes:.1f}", f"{step:.3f}")


def _errors(answer: Answer, steps: Sequence[Step]) -> tuple[float, float]:
    return _collectives(answer, steps), _step_error(answer, steps)


def _collectives(answer: Answer, steps: Sequence[Step]) -> float:
    predicted, measured = [], []
    for step in steps:
        latency_us, label_us = answer.latency_us(step), step.nodes["latency_us"].to_numpy(np.float64)
        assert latency_us is not None, "the network answers for nodes"
        use = (step.nodes["node_type"].astype(str) == str(NodeType.COLLECTIVE)).to_numpy() & is_measured(label_us)
        predicted.append(latency_us[use])
        measured.append(label_us[use])
    return gmae(np.concatenate(predicted), np.concatenate(measured))


def _step_error(answer: Answer, steps: Sequence[Step]) -> float:
    return float(np.mean([abs(np.log(answer.step_us(step) / step.step_us)) for step in steps]))
