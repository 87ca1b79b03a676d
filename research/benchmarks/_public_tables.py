"""Tables of cells whose splits are workload families."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from rich.table import Table

from gnnperf.core.schema import NodeType
from research.benchmarks._public_families import FAMILIES, ONE_PASS, PublicRuns
from research.evaluation.cells import Cell
from research.evaluation.row_errors import Figures, node_figures, rows_of, step_figures

ByFamily = Mapping[str, Mapping[str, Cell]]  # family -> row -> its cell


def pooled(cells: Sequence[Cell]) -> Cell:
    """The cells of one row over families as one."""
    starts = np.cumsum([0, *(len(cell.steps) for cell in cells)])
    nodes = [
        cell.nodes.assign(recording=cell.nodes["recording"] + start, kind=cell.nodes["kind"].astype(object))
        for cell, start in zip(cells, starts[:-1], strict=True) if cell.nodes is not None
    ]  # fmt: skip
    steps = pd.concat([cell.steps for cell in cells], ignore_index=True)
    return replace(cells[0], steps=steps, nodes=pd.concat(nodes, ignore_index=True) if nodes else None)


def only(cell: Cell, recordings: Sequence[str]) -> Cell | None:
    """The cell's answers for these recordings; None without any."""
    kept = cell.steps["recording"].isin(recordings).to_numpy()  # [num_recordings]
    if not kept.any():
        return None
    nodes = cell.nodes
    if nodes is not None:
        place = np.cumsum(kept) - 1
        own = nodes["recording"].to_numpy()
        nodes = nodes[kept[own]].assign(recording=place[own[kept[own]]])
    return replace(cell, steps=cell.steps[kept].reset_index(drop=True), nodes=nodes)


def tables(cells: Sequence[Cell], found: PublicRuns) -> list[Table]:
    """What there is; steps and nodes by family and over all; what sleeps."""
    every = {family: rows for family, rows in rows_of(cells).items() if family in FAMILIES}
    awake = _parts(every, lambda family: found.of(family))
    marked = {family: rows for family, rows in awake.items() if family not in ONE_PASS}
    asleep = _parts(every, lambda family: found.asleep)
    return [
        families(found),
        by_family("steps: mean |predicted / measured - 1| in %", awake, lambda cell: step_figures([cell]).mean),
        by_family("nodes: GMAE in %", awake, lambda cell: _gmae(cell)),
        over_all("steps between marks", marked, lambda cell: step_figures([cell])),
        over_all("steps, and passes without marks", awake, lambda cell: step_figures([cell])),
        over_all("nodes", awake, lambda cell: node_figures([cell])),
        by_family("apart: a rank sleeps; steps: mean error in %", asleep, lambda cell: step_figures([cell]).mean),
    ]


def _parts(every: Mapping[str, Mapping[str, Sequence[Cell]]], names: Callable[[str], Sequence[str]]) -> ByFamily:
    """Of each cell the recordings that `names` gives for its family; families without any are left out."""
    found = {family: {row: only(seeds[0], names(family)) for row, seeds in rows.items()}
             for family, rows in every.items()}  # fmt: skip
    kept = {family: {row: cell for row, cell in rows.items() if cell is not None} for family, rows in found.items()}
    return {family: rows for family, rows in kept.items() if rows}


def families(found: PublicRuns) -> Table:
    """What every family is."""
    table = Table("family", "recordings", "programs", "devices", "steps ms", "kernels with shapes %", "measured")
    for family in (name for name in FAMILIES if found.of(name)):
        runs = [found.graphs[name] for name in found.of(family)]
        labels = [label for run in runs for label in run.graph.steps]
        steps_ms = [(one.makespan_us if one.period_us is None else one.period_us) / 1e3 for one in labels]
        devices = sorted({run.cluster.device.name for run in runs})
        table.add_row(family, str(len(runs)), str(len({run.run.rpartition("/")[0] for run in runs})),
                      ", ".join(devices), f"{min(steps_ms):.1f} to {max(steps_ms):.1f}",
                      _percent(float(np.mean([_with_shapes(run.graph.nodes) for run in runs]))),
                      "a pass" if family in ONE_PASS else "steps")  # fmt: skip
    return table


def _with_shapes(nodes: pd.DataFrame) -> float:
    """Share of kernels whose op's shapes are known."""
    return float(nodes["input_dims"][nodes["node_type"] == NodeType.COMPUTE].notna().mean())


def by_family(title: str, found: ByFamily, figure: Callable[[Cell], float]) -> Table:
    """Rows by families, the number of recordings in the head."""
    count = {family: len(next(iter(rows.values())).steps) for family, rows in found.items()}
    ordered = [family for family in FAMILIES if family in found]
    table = Table("row", *(f"{family} ({count[family]})" for family in ordered), title=title, title_justify="left")
    for row in _rows(found):
        table.add_row(row, *(_percent(figure(found[f][row])) if row in found[f] else "-" for f in ordered))
    return table


def over_all(title: str, found: ByFamily, figures: Callable[[Cell], Figures | None]) -> Table:
    """A row per learner that has answered for every family."""
    table = Table("row", "count", "geomean %", "95 %", "mean", "median", "p90", "max", "bias", title=title,
                  title_justify="left")  # fmt: skip
    for row in _rows(found):
        cells = [rows[row] for rows in found.values() if row in rows]
        told = figures(pooled(cells)) if len(cells) == len(found) else None
        if told is not None:
            spread = (told.mean, told.median, told.p90, told.max, told.bias)
            table.add_row(row, str(told.count), _percent(told.gmae), f"{_percent(told.low)} - {_percent(told.high)}",
                          *map(_percent, spread))  # fmt: skip
    return table


def _rows(found: ByFamily) -> list[str]:
    return list(dict.fromkeys(row for rows in found.values() for row in rows))


def _gmae(cell: Cell) -> float:
    found = node_figures([cell])
    return float("nan") if found is None else found.gmae


def _percent(share: float) -> str:
    return "-" if share != share else f"{100 * share:.1f}"
