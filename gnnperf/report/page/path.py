"""The critical path: where it runs when, and for how long at what."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from gnnperf.core import NodeType
from gnnperf.report.page import markup
from gnnperf.report.page.ops import OF_TYPE, OTHER
from gnnperf.report.summary import UNNAMED, as_text
from gnnperf.report.text import time_text

OPS = ("rank", "node_type", "op_name", "phase", "source")  # what is the same in a stretch of ops


def path_nodes(nodes: pd.DataFrame, document: Mapping[str, Any]) -> pd.DataFrame:
    """The nodes that hold the step back, in the order of time: `nodes_table` rows with `begin_us` and `op_name`.

    `begin_us` counts from where the step time begins: a period's is where the step before completed.
    """
    path = as_text(nodes[(nodes["critical_us"] > 0).to_numpy()]).sort_values("start_us", kind="stable")
    opens_us = float(document["step_makespan_us"]) - float(document["step_time_us"])
    names = path["op_name"].fillna(path["event_name"]).fillna(UNNAMED)
    begin_us = np.maximum(path["start_us"] - opens_us, 0.0)
    return path.assign(begin_us=begin_us, op_name=names).reset_index(drop=True)


def op_stretches(path: pd.DataFrame) -> pd.DataFrame:
    """Columns OPS, begin_us, critical_us, num_nodes: neighbors on the path that are the same op."""
    words = path[list(OPS)].astype(object)
    words = words.where(words.notna(), "")
    groups = path.groupby((words != words.shift()).any(axis=1).cumsum().to_numpy(), sort=True)
    result = groups[[*OPS, "begin_us"]].first()
    result["critical_us"], result["num_nodes"] = groups["critical_us"].sum(), groups.size()
    return result.reset_index(drop=True)


def longest_in_order(result: pd.DataFrame, num_long: int) -> pd.DataFrame:
    """The longest stretches, in the order of time; what lies between them as one row each.

    `num_stretches` states how many a row holds, `is_long` whether it is one of the longest.
    """
    long = result["critical_us"].rank(method="first", ascending=False) <= num_long
    number = (long | long.shift(fill_value=True)).cumsum().to_numpy()
    groups = result.assign(is_long=long).groupby(number, sort=True)
    given = groups.first()
    given["critical_us"], given["num_nodes"] = groups["critical_us"].sum(), groups["num_nodes"].sum()
    given["num_stretches"] = groups.size()
    return given.reset_index(drop=True)


NUM_LISTED = 60  # stretches by themselves; what is between them is added up
MOST_ROWS = 24  # of the picture; with more, a rank is one row, or all are
MOST_JUMPS = 600  # between rows; more of them hide what they connect
ROW_PX, WIDTH = 20, 10_000  # height of a row; units across the picture
SIDES = {NodeType.HOST: "host", NodeType.COLLECTIVE: "network", NodeType.COMM: "network"}


def picture(path: pd.DataFrame, step_time_us: float) -> markup.Markup:
    """The path as it moves between hosts, devices and the network: one row each, time from left to right."""
    rows = _rows_of(path)
    names = sorted(set(rows), key=_order)
    place = np.array([names.index(row) for row in rows])
    left = np.rint(path["begin_us"].to_numpy() / (step_time_us or 1.0) * WIDTH).astype(int)
    right = np.rint((path["begin_us"] + path["critical_us"]).to_numpy() / (step_time_us or 1.0) * WIDTH).astype(int)
    drawn = _bars(place, path["node_type"].to_numpy(dtype=object), left, right) + _jumps(place, left)
    label = f"The critical path over {time_text(step_time_us)}; the table below lists it."
    return markup.over_time(label, names, (WIDTH, ROW_PX * len(names)), drawn, step_time_us)


def _rows_of(path: pd.DataFrame) -> list[str]:
    sides = [SIDES.get(NodeType(kind), "device") for kind in path["node_type"]]
    on = list(zip(path["rank"], sides, strict=True))
    by_side = ["network" if side == "network" else f"rank {rank}, {side}" for rank, side in on]
    by_rank = ["network" if side == "network" else f"rank {rank}" for rank, side in on]
    together = ["network" if side == "network" else f"{side}s, all ranks" for side in sides]
    return next((rows for rows in (by_side, by_rank) if len(set(rows)) <= MOST_ROWS), together)


def _order(name: str) -> tuple[int, str]:
    words = name.replace(",", "").split()
    return (int(words[1]) if words[0] == "rank" else 1 << 30, name)


def _bars(place: np.ndarray, kind: np.ndarray, left: np.ndarray, right: np.ndarray) -> str:
    """One SVG path per row and node type; pieces narrower than a unit are as wide as one, neighbors one piece."""
    result: dict[tuple[int, str], list[list[int]]] = {}
    colors = [OF_TYPE.get(word, OTHER) for word in kind]
    for row, color, begin, end in zip(place.tolist(), colors, left.tolist(), right.tolist(), strict=True):
        pieces = result.setdefault((row, color), [])
        if pieces and begin <= pieces[-1][1]:
            pieces[-1][1] = max(end, pieces[-1][1])
        else:
            pieces.append([begin, max(end, begin + 1)])
    drawn, high = "", ROW_PX - 6
    for (row, color), pieces in result.items():
        boxes = (f"M{begin} {row * ROW_PX + 3}h{end - begin}v{high}h{begin - end}z" for begin, end in pieces)
        drawn += f'<path fill="var(--{color})" d="{"".join(boxes)}"/>'
    return drawn


def _jumps(place: np.ndarray, left: np.ndarray) -> str:
    """Where the path goes on in another row: a line down or up; none where they are too many to see anything."""
    at = np.flatnonzero(np.diff(place)) + 1
    lines = sorted({(int(left[n]), *sorted((int(place[n - 1]), int(place[n])))) for n in at})
    if len(lines) > MOST_JUMPS:
        return ""
    drawn = "".join(f"M{x} {a * ROW_PX + ROW_PX // 2}V{b * ROW_PX + ROW_PX // 2}" for x, a, b in lines)
    return f'<path class="jump" d="{drawn}"/>'


def listing(path: pd.DataFrame, step_time_us: float) -> markup.Markup:
    """The longest stretches of ops in the order of time, with what lies between them: they add up to the step."""
    result = longest_in_order(op_stretches(path), NUM_LISTED)
    heads = ("begins at", "op", "lasts", "share of step", "", "rank", "type", "phase", "source", "nodes")
    colors = [OTHER if _is_mixed(row) else OF_TYPE.get(row.node_type, OTHER) for row in markup.rows_of(result)]
    rows: list[markup.Row] = []
    for row, drawn in zip(markup.rows_of(result), markup.bars(result["critical_us"], colors), strict=True):
        words = (markup.Td(str(row.node_type)), markup.Td(str(row.phase or "")), markup.Td(str(row.source)))
        op, where = markup.text_td(str(row.op_name)), [markup.rank_td(row.rank), *words]
        if _is_mixed(row):
            op, where = markup.Td(f"{row.num_stretches:,} shorter stretches"), [markup.Td("")] * 4
        lasts = (markup.time_td(row.critical_us), markup.share_td(row.critical_us / (step_time_us or 1.0)))
        rows.append((markup.time_td(row.begin_us), op, *lasts, drawn, *where, markup.count_td(row.num_nodes)))
    total = time_text(float(path["critical_us"].sum()))
    sentences = f"In the order of time. All rows add up to {total}; a stretch lasts until the path goes on."
    return markup.Markup(
        f"{markup.subtitle('Op by op')}{markup.note(sentences)}{markup.table('Critical path, op by op', heads, rows)}"
    )


def _is_mixed(row: Any) -> bool:
    return not row.is_long and row.num_stretches > 1
