"""Where the time goes: by source, node type, phase, op family and rank; what each rank does with the step."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, Segment, StepTimeKind
from gnnperf.predict import StepPrediction
from gnnperf.report import summary
from gnnperf.report.page.markup import (
    Markup,
    Td,
    bar,
    bars,
    count_td,
    note,
    rank_td,
    rows_of,
    share_td,
    stack,
    subtitle,
    table,
    text_td,
    time_td,
)
from gnnperf.report.page.ops import OF_PHASE, OF_SOURCE, OF_TYPE, OTHER
from gnnperf.report.text import coverage, path_delays
from gnnperf.whatif import length_us, union

PARTS = ("active_us", "transfer_us", "wait_us", "host_us", "idle_us")


def occupancy(nodes: pd.DataFrame, document: Mapping[str, Any]) -> pd.DataFrame:
    """One row per rank; PARTS add up to the step time.

    Returns:
        Columns rank; active_us (a kernel, copy or op runs); transfer_us and wait_us (exposed communication: next to
        which nothing of that runs); host_us (only the host works); idle_us (nothing runs); hidden_us (transfers next to
        which work runs, a part of active_us).
    """
    length = float(document["step_time_us"])
    closes = float(document["step_makespan_us"])
    repeats = document["step_time_kind"] == StepTimeKind.PERIOD
    window = (closes - length, closes, length if repeats else None)
    start = nodes["start_us"].to_numpy()  # what has no latency takes no time, as in the schedule
    ends = np.column_stack([start, start + np.nan_to_num(nodes["mean_latency_us"].to_numpy())])  # [num_nodes, 2]
    read = nodes[["node_type", "segment", "transfer"]]
    rows, of_rank = [], nodes.groupby("rank").indices  # `get_group` looks for all groups again
    for rank in document["traced_ranks"]:
        spans = _spans(read.iloc[of_rank[rank]], ends) if rank in of_rank else {}
        rows.append({"rank": rank, **_parts({name: _seen(s, *window) for name, s in spans.items()}, length)})
    return pd.DataFrame(rows, columns=["rank", *PARTS, "hidden_us"])


def _seen(spans: np.ndarray, opens: float, closes: float, period: float | None) -> np.ndarray:
    """[m, 2] stretches of time between `opens` and `closes`, without overlaps; repeated where the step has a period."""
    spans = union(spans)
    if period and len(spans):
        times = max(0, math.ceil((opens - float(spans[0, 0])) / period))
        spans = np.concatenate([spans + repeat * period for repeat in range(times + 1)])
    return union(np.clip(spans, opens, closes))


def _spans(own: pd.DataFrame, ends: np.ndarray) -> dict[str, np.ndarray]:
    """Kind of time -> [n, 2] when a rank, whose nodes `own` are, spends it, overlaps and all."""
    kind, segment = own["node_type"], own["segment"]  # categories: compared by their codes
    node, transfer = own.index.to_numpy(), own["transfer"].to_numpy()
    exits = (segment == Segment.EXIT).to_numpy()
    joins = (transfer >= 0) & ~exits
    arrives, begins = ends[node[joins], 0], ends[transfer[joins], 0]
    return {
        "work": ends[node[kind.isin([NodeType.COMPUTE, NodeType.MEMORY]).to_numpy()]],
        "transfer": np.concatenate([ends[transfer[joins]], ends[node[exits]]]),
        "wait": np.column_stack([arrives, begins]),
        "host": ends[node[((kind == NodeType.HOST) & (segment != Segment.PEER_WAIT)).to_numpy()]],
    }


def _parts(spans: Mapping[str, np.ndarray], step_us: float) -> dict[str, float]:
    """PARTS: each kind's time outside all that come before it; of a rank without work everything is idle."""
    kinds = [spans.get(kind, np.zeros((0, 2))) for kind in ("work", "transfer", "wait", "host")]
    covered = [length_us(np.concatenate(kinds[: count + 1])) for count in range(len(kinds))]
    isolated = np.diff([0.0, *covered, step_us])
    hidden = covered[0] + length_us(kinds[1]) - covered[1]
    return {**dict(zip(PARTS, isolated.tolist(), strict=True)), "hidden_us": hidden}


MEASURED = "measured, summed"
HEADS = ("nodes", "not covered", "on critical path", "share of step", "", "predicted, summed", MEASURED)
SUMS_NOTE = (
    "The critical path passes every moment of the step once, so times on it add up to the step. Summed: latencies of "
    "all nodes, on all ranks, whatever runs at the same time."
)
PART_NAMES = {
    "active_us": ("active", "compute"),
    "transfer_us": ("exposed transfer", "transfer"),
    "wait_us": ("exposed wait for peers", "wait"),
    "host_us": ("only the host works", "host"),
    "idle_us": ("nothing runs", "idle"),
}
OCCUPANCY_NOTE = (
    "Mean over ranks. Active: a kernel or copy runs (on a CPU: an op). Exposed communication: a transfer, or waiting "
    "for peers to come to it, while nothing of that runs. Where only the host works, a GPU is idle. The five "
    "parts add up to the step; hidden transfers, during which the rank is active, are part of active."
)


def sources(prediction: StepPrediction) -> Markup:
    """Share of the step time by where latencies come from, and how many nodes each source predicts."""
    parts = [(name, share, OF_SOURCE.get(name, OTHER)) for name, share in prediction.source_share.items()]
    return Markup(f"{stack(parts)}{note(f'Shares of the step time, along the critical path; {coverage(prediction)}.')}")


def groups(prediction: StepPrediction, work: pd.DataFrame) -> Markup:
    """By node type, phase, op family and rank; with shares of the critical path as bars, and when each rank completes.

    Transfers belong to several ranks.
    """
    by_phase, by_rank = summary.by_phase(work), summary.by_rank(work)
    shares = by_phase["critical_us"] / (by_phase["critical_us"].sum() or 1.0)
    phases = [(str(n), float(s), OF_PHASE.get(str(n), OTHER)) for n, s in zip(by_phase["phase"], shares, strict=True)]
    types = [(name, share, OF_TYPE.get(name, OTHER)) for name, share in prediction.critical_path_share.items()]
    done_us = [prediction.rank_step_time_us.get(int(rank), math.nan) for rank in by_rank["rank"]]
    done = [Td("-", 0.0) if math.isnan(us) else time_td(us) for us in done_us]
    ranks = [rank_td(int(rank)) for rank in by_rank["rank"]]
    path = f"{stack(types)}{note('Shares of the critical path; ' + path_delays(prediction) + '.')}"
    tables = (
        ("Node types", "node type", summary.by_node_type(work), "node_type", path),
        ("Phases", "phase", by_phase, "phase", stack(phases)),
        ("Op families", "op family", summary.by_family(work), "family", ""),
    )
    parts = [f"{subtitle(f'By {head}')}{drawn}"
             f"{_totals(caption, head, result, [text_td(str(n)) for n in result[column]], prediction)}"
             for caption, head, result, column, drawn in tables]  # fmt: skip
    of_ranks = _totals("Ranks", "rank", by_rank, ranks, prediction, ("completes after", done))
    return Markup("\n".join([*parts, f"{subtitle('By rank')}{note('Transfers belong to several ranks.')}{of_ranks}"]))


def _totals(
    caption: str,
    head: str,
    result: pd.DataFrame,
    names: Sequence[Td],
    prediction: StepPrediction,
    more: tuple[str, Sequence[Td]] | None = None,
) -> Markup:
    """One row per group: nodes, time on the critical path, sums over ranks."""
    step_us = prediction.step_time_us or 1.0
    rows = []
    colors = [{**OF_TYPE, **OF_PHASE}.get(name.text, "compute") for name in names]
    drawn_bars = bars(result["critical_us"], colors)
    for number, (name, row, drawn) in enumerate(zip(names, rows_of(result), drawn_bars, strict=True)):
        extra = () if more is None else (more[1][number],)
        rows.append((
            name, *extra, count_td(row.num_nodes), count_td(row.num_uncovered), time_td(row.critical_us),
            share_td(row.critical_us / step_us), drawn, time_td(row.predicted_us), time_td(row.measured_us),
        ))  # fmt: skip
    unknown = (MEASURED,) if result["measured_us"].isna().all() else ()
    return table(caption, (head, *(() if more is None else (more[0],)), *HEADS), rows, unknown)


def rank_time(result: pd.DataFrame, step_time_us: float) -> Markup:
    """Active, exposed, idle per rank: `occupancy.occupancy` as bars and as a table."""
    step = step_time_us or 1.0
    mean = result[list(PARTS)].mean() / step
    parts = [(PART_NAMES[part][0], float(mean[part]), PART_NAMES[part][1]) for part in PARTS]
    heads = ("rank", "", *(PART_NAMES[part][0] for part in PARTS), "exposed communication", "hidden transfers")
    rows: list[tuple[Td | Markup, ...]] = [
        (
            rank_td(row.rank),
            Markup("".join(bar(getattr(row, part) / step, PART_NAMES[part][1]) for part in PARTS)),
            *(time_td(getattr(row, part)) for part in PARTS),
            share_td((row.transfer_us + row.wait_us) / step),
            time_td(row.hidden_us),
        )
        for row in rows_of(result)
    ]
    return Markup(f"{stack(parts)}{note(OCCUPANCY_NOTE)}{table('What each rank does with the step', heads, rows)}")
