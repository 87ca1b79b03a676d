"""One rank holds the embedding tables that are requested most, and the others wait for it at the exchange.

rank 0   |= lookups =|arrives ···········|== all_to_all ==|
rank 1   |======== lookups =======|arrives|== all_to_all ==|
"""

from __future__ import annotations

import numpy as np

from gnnperf.core import InputError, OpFamily
from gnnperf.generate import Placed, Placement, Split, Table
from gnnperf.whatif.findings.communication import lateness
from gnnperf.whatif.findings.finding import SUSPICIOUS, Observed, Suspect, Way, scaling
from gnnperf.whatif.reshard import Model, PlaceTables
from gnnperf.whatif.reshard.infer import infer

REMEDY = "place the tables by their lookups, not by their sizes or in turn (gnnperf shard), or divide the largest ones"


def skewed_tables(step: Observed) -> list[Suspect]:
    """The rank that works for its tables for longest, for more bytes, if the others wait for it."""
    ranks = step.graph.ranks
    if len(ranks) < 2:
        return []
    works = step.on_device & (step.graph.nodes["family"] == OpFamily.EMBEDDING).to_numpy()
    sums_us = np.array([step.latency_us[works & (step.rank == rank)].sum() for rank in ranks])
    most = int(sums_us.argmax())
    others_us = float(np.median(np.delete(sums_us, most)))
    megabytes = [_megabytes(step, works, rank) for rank in ranks]
    others_mb = float(np.median(np.delete(megabytes, most)))
    for_more_us = sums_us[most] * (1.0 - others_mb / max(megabytes[most], 1e-9))
    late_us = lateness(step)[0].get(ranks[most], 0.0)
    if min(sums_us[most] - others_us, for_more_us, late_us) < SUSPICIOUS * step.step_time_us:
        return []
    requested, ways = _from_tables(step, most) or ((), (_even(works, step, sums_us),))
    evidence = (
        f"rank {ranks[most]} works {sums_us[most]:,.0f} us for embedding tables, the others {others_us:,.0f} us in the "
        f"median; it comes {late_us:,.0f} us later to collectives than the others, in sum",
        f"it reads and writes {megabytes[most]:.3g} MB for them, the others {others_mb:.3g} MB in the median",
        *requested,
    )
    cause = f"rank {ranks[most]} holds the embedding tables with most work, and the others wait for it"
    return [Suspect("skewed_tables", cause, evidence, REMEDY, ways)] if ways else []


def _megabytes(step: Observed, works: np.ndarray, rank: int) -> float:
    return float(np.nansum(step.graph.nodes["bytes"].to_numpy()[works & (step.rank == rank)])) / 1e6


def _even(works: np.ndarray, step: Observed, sums_us: np.ndarray) -> Way:
    """No placement can be read off the graph: what an even one would gain, at most."""
    factor = np.divide(sums_us.mean(), sums_us, out=np.ones_like(sums_us), where=sums_us > 0)  # [num_ranks]
    nodes = np.flatnonzero(works)
    factors = factor[np.searchsorted(step.graph.ranks, step.rank[nodes])]
    return scaling(nodes, factors, "the work for tables divided evenly over the ranks", at_most=True)


def _from_tables(step: Observed, most: int) -> tuple[tuple[str, ...], tuple[Way, ...]] | None:
    """(what is requested of whom, placements by lookups); None: the graph does not show its tables one by one."""
    try:
        model, before = infer(step.graph)
    except InputError:
        return None
    loads = [_elements(model, before, rank) for rank in range(model.ranks)]
    others = float(np.median(np.delete(loads, most)))
    lookups = sum(part.lookups for part in model.parts(before, most))
    requested = (
        f"it is asked for {lookups:,.0f} vectors of {loads[most] / max(lookups, 1.0):.0f} numbers per step, "
        f"{loads[most] / max(others, 1.0):.2g} times the numbers of the others in the median",
    )
    return requested, tuple(_ways(model, before, most))


def _ways(model: Model, before: Placement, most: int) -> list[Way]:
    """Tables dealt anew; else the one with most work there divided."""
    whole = [t for t, placed in enumerate(before) if placed == Placed(Split.TABLE, (most,))]
    result = [by_lookups(model, before)]
    if whole:
        heaviest, everybody = max(whole, key=lambda t: _weight(model.tables[t])), tuple(range(model.ranks))
        for split in (Split.COLUMN, Split.ROW):
            result.append((*before[:heaviest], Placed(split, everybody), *before[heaviest + 1 :]))
    return [
        Way((PlaceTables(model.tables, before, after, model.batch),), _sentences(model, before, after))
        for after in result
        if after != before
    ]


def by_lookups(model: Model, before: Placement) -> Placement:
    """Whole tables dealt to the ranks, most lookups first, each to the emptiest rank (Graham 1969); others stay."""
    held = np.zeros(model.ranks)
    for table, placed in zip(model.tables, before, strict=True):
        if placed.split is not Split.TABLE:
            held[list(placed.ranks)] += _weight(table) / len(placed.ranks)
    after = list(before)
    whole = [t for t, placed in enumerate(before) if placed.split is Split.TABLE]
    for t in sorted(whole, key=lambda t: (-_weight(model.tables[t]), t)):
        own = before[t].ranks[0]
        rank = own if held[own] <= held.min() else int(held.argmin())
        held[rank] += _weight(model.tables[t])
        after[t] = Placed(Split.TABLE, (rank,))
    return tuple(after)


def _weight(table: Table) -> float:
    """Numbers that are looked up per sample."""
    return table.pooling * table.dim


def _elements(model: Model, placement: Placement, rank: int) -> float:
    return float(sum(part.lookups * part.columns for part in model.parts(placement, rank)))


def _sentences(model: Model, before: Placement, after: Placement) -> str:
    """What moves, as an entry of `whatif` where it is one table."""
    moved = [t for t in range(len(after)) if after[t] != before[t]]
    if len(moved) == 1:
        placed = after[moved[0]]
        where = f"rank:{placed.ranks[0]}" if placed.split is Split.TABLE else f"split:{placed.split}"
        return f"{{place:{{table:{moved[0]},{where}}}}}"
    places = (f"{t} ({model.tables[t].rows} x {model.tables[t].dim}) on rank {after[t].ranks[0]}" for t in moved)
    return f"PlaceTables: tables {', '.join(places)}"
