"""Every figure of report.html comes from prediction.json and nodes.parquet: here they are computed again from these.

The reader below knows the files only: no column or number of the prediction itself.
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gnnperf.core import WORK_TYPES
from gnnperf.predict import Mode, Request, predict
from gnnperf.report import write_report

RUN = Path("datasets/cpu-gloo/dlrm_t4_r100k_d16_b1024_x2_lo/1")


class Written:
    """A folder that predict.py wrote, and the page in it as text."""

    def __init__(self, folder: Path) -> None:
        self.given: dict[str, Any] = json.loads((folder / "prediction.json").read_text())
        self.nodes = pd.read_parquet(folder / "nodes.parquet")
        self.work = self.nodes[self.nodes["node_type"].isin([str(t) for t in WORK_TYPES])]
        self.page = (folder / "report.html").read_text()
        self.text = _text(self.page)
        self.tables = dict(map(_table, re.findall(r"<table.*?</table>", self.page, re.DOTALL)))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A recorded run on CPUs, by the analytical model; its interval is made up, as there is no checkpoint."""
    out = tmp_path_factory.mktemp("figures") / "out"
    prediction = predict(Request(trace=RUN, mode=Mode.analytic, findings=True))
    write_report(replace(prediction, step_time_interval_us=(5000.0, 9000.0), interval_level=0.9), out)
    return Written(out)


def _text(markup: str) -> str:
    plain = re.sub(r"<[^>]*>", " ", re.sub(r"<(script|style).*?</\1>", "", markup, flags=re.DOTALL))
    return re.sub(r"\s+", " ", unescape(plain))


def _table(markup: str) -> tuple[str, pd.DataFrame]:
    def cells(row: str, tag: str) -> list[str]:
        return [_text(td).strip() for td in re.findall(rf"<{tag}\b[^>]*>(.*?)</{tag}>", row, re.DOTALL)]

    rows = re.findall(r"<tr>(.*?)</tr>", markup, re.DOTALL)
    heads = [head or f"bar {place}" for place, head in enumerate(cells(rows[0], "th"))]
    caption = re.search(r"<caption>(.*?)</caption>", markup)
    assert caption is not None
    return unescape(caption.group(1)), pd.DataFrame([cells(row, "td") for row in rows[1:]], columns=heads)


def shown(us: float) -> str:
    """Four digits and a unit, written down here a second time."""
    if math.isnan(us):
        return "unknown"
    scale, unit = (1.0, "us") if abs(us) < 1e3 else (1e3, "ms") if abs(us) < 1e6 else (1e6, "s")
    return f"{us / scale:.4g} {unit}"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _card(page: str, name: str) -> str:
    result = re.search(rf'<dd id="{name}">(.*?)</dd>', page)
    assert result is not None
    return unescape(result.group(1)).replace("\xa0", " ")


def test_the_prediction(written: Written) -> None:
    given = written.given
    assert given["step_time_kind"] == "period"
    bound = "at least " if given["step_time_is_lower_bound"] else ""
    assert _card(written.page, "predicted") == bound + shown(given["step_time_us"])
    assert _card(written.page, "measured") == shown(given["measured_step_time_us"])
    assert (
        _card(written.page, "error") == f"{100 * (given['step_time_us'] / given['measured_step_time_us'] - 1):+.1f} %"
    )
    low, high = given["step_time_interval_us"]
    assert _card(written.page, "interval") == f"{shown(low)} to {shown(high)}"
    assert _card(written.page, "coverage") == percent(1 - given["uncovered_measured_share"])
    assert f"step period: {bound}{shown(given['step_time_us'])}" in written.text
    for warning in given["warnings"]:
        assert warning in written.text


def test_sources(written: Written) -> None:
    for source, share in written.given["source_share"].items():
        assert f"{source} {percent(share)}" in written.text
    counts = written.work["source"].value_counts()
    assert {name: int(counts[name]) for name in counts.index} == written.given["num_nodes_by_source"]
    for source, count in counts.items():
        assert f"{count:,} {source}" in written.text


def _check_sums(table: pd.DataFrame, column: str, groups: dict[str, pd.DataFrame], step_us: float) -> None:
    """Every row of a breakdown: nodes, critical path and its share, sums."""
    assert set(table[column]) == set(groups)
    for row in table.to_dict("records"):
        nodes = groups[row[column]]
        assert row["nodes"] == f"{len(nodes):,}"
        assert row["not covered"] == f"{int(nodes['latency_us'].isna().sum()):,}"
        assert row["on critical path"] == shown(nodes["critical_us"].sum())
        assert row["share of step"] == percent(nodes["critical_us"].sum() / step_us)
        assert row["predicted, summed"] == shown(nodes["latency_us"].sum())
        assert row["measured, summed"] == shown(nodes["measured_latency_us"].sum())


@pytest.mark.parametrize(
    ("caption", "head", "key"),
    [
        ("Node types", "node type", lambda nodes: nodes["node_type"]),
        ("Phases", "phase", lambda nodes: nodes["phase"]),
        (
            "Ranks",
            "rank",
            lambda nodes: nodes["rank"].map(lambda rank: f"rank {rank}" if rank >= 0 else "several ranks"),
        ),
    ],
)
def test_breakdowns(written: Written, caption: str, head: str, key: Callable[[pd.DataFrame], pd.Series]) -> None:
    groups = {str(name): nodes for name, nodes in written.work.groupby(key(written.work))}
    _check_sums(written.tables[caption], head, groups, written.given["step_time_us"])


def test_op_families(written: Written) -> None:
    work = written.work
    names = work["family"].mask(work["node_type"] == "host", "host, all families")
    names = names.mask(work["node_type"] == "comm", "arrival and exit")
    groups = {str(name): nodes for name, nodes in work.groupby(names)}
    _check_sums(written.tables["Op families"], "op family", groups, written.given["step_time_us"])


def test_ranks_complete_when_the_schedule_states(written: Written) -> None:
    table = written.tables["Ranks"].set_index("rank")
    for rank, us in written.given["rank_step_time_us"].items():
        assert table.loc[f"rank {rank}", "completes after"] == shown(us)


def _covered(spans: Sequence[tuple[float, float]], opens: float, closes: float) -> float:
    """How much of opens..closes the spans cover, by cutting time at every end of a span."""
    cuts = np.unique(np.clip([opens, closes, *(end for span in spans for end in span)], opens, closes))
    middles, lengths = (cuts[1:] + cuts[:-1]) / 2, np.diff(cuts)
    inside = np.array([any(begin <= at < end for begin, end in spans) for at in middles], dtype=bool)
    return float(lengths[inside].sum())


def test_active_and_exposed(written: Written) -> None:
    """One rank, by brute force."""
    given, nodes = written.given, written.nodes
    closes, step = given["step_makespan_us"], given["step_time_us"]
    ends = nodes.assign(end_us=nodes["start_us"] + nodes["mean_latency_us"].fillna(0.0))

    def spans(rows: pd.DataFrame) -> list[tuple[float, float]]:
        both = [tuple(row) for row in rows[["start_us", "end_us"]].to_numpy().tolist()]
        return [*both, *((begin + step, end + step) for begin, end in both)]  # the next step, where it begins earlier

    rank = ends[ends["rank"] == 1]
    active = spans(rank[rank["node_type"].isin(["compute", "memory"])])
    arrivals = rank[(rank["transfer"] >= 0) & (rank["segment"] != "exit")]
    transfers = spans(ends.iloc[arrivals["transfer"]]) + spans(rank[rank["segment"] == "exit"])
    opens = closes - step
    row = written.tables["What each rank does with the step"].set_index("rank").loc["rank 1"]
    assert row["active"] == shown(_covered(active, opens, closes))
    exposed = _covered(active + transfers, opens, closes) - _covered(active, opens, closes)
    assert row["exposed transfer"] == shown(round(exposed, 9))


def test_critical_path(written: Written) -> None:
    table, given = written.tables["Critical path, op by op"], written.given
    path = written.nodes[written.nodes["critical_us"] > 0].sort_values("start_us")
    assert f"All rows add up to {shown(path['critical_us'].sum())}" in written.text
    assert path["critical_us"].sum() == pytest.approx(given["step_time_us"])
    assert sum(int(count.replace(",", "")) for count in table["nodes"]) == len(path)
    first = path.iloc[0]
    assert table.loc[0, "begins at"] == shown(
        max(0.0, first["start_us"] - (given["step_makespan_us"] - given["step_time_us"]))
    )
    assert (
        f"delays between its nodes (launch latencies, gaps on streams): {shown(given['critical_path_delay_us'])}"
        in written.text
    )


@pytest.mark.parametrize("caption", ["Top ops", "Ops on devices and links"])
def test_top_ops(written: Written, caption: str) -> None:
    table = written.tables[caption]
    assert (table["type"] == "compute").any()
    for row in table[table["type"] == "compute"].to_dict("records"):
        nodes = written.work[(written.work["op_name"] == row["op"]) & (written.work["node_type"] == "compute")]
        dims = nodes["input_dims"].map(lambda text: ", ".join("×".join(map(str, d)) for d in json.loads(text) if d))
        nodes = nodes[(dims == row["shapes"]) & (nodes["bound"].fillna("unknown") == row["bound by"])]
        assert row["nodes"] == f"{len(nodes):,}", row
        assert row["latency"] == shown(nodes["latency_us"].median())
        assert row["measured latency"] == shown(nodes["measured_latency_us"].median())
        assert row["on critical path"] == shown(nodes["critical_us"].sum())
        assert row["source"] == nodes["source"].iloc[0]


def test_errors_by_family(written: Written) -> None:
    table = written.tables["Errors by op family"].set_index("op family")
    gemm = written.work[(written.work["family"] == "gemm") & (written.work["node_type"] == "compute")]
    gemm = gemm[(gemm["measured_latency_us"] > 0) & gemm["latency_us"].notna()]
    off = (gemm["latency_us"] / gemm["measured_latency_us"] - 1).abs()
    row = table.loc["gemm"]
    assert row["nodes"] == f"{len(gemm):,}"
    total = gemm["latency_us"].sum() / gemm["measured_latency_us"].sum() - 1
    assert row["error of the sum"] == f"{100 * total:+.1f} %"
    assert row["median error of a node"] == percent(float(off.median()))
    assert row["90th percentile"] == percent(float(off.quantile(0.9)))


def test_uncovered_ops(written: Written) -> None:
    rows = written.tables["Ops without a latency"].to_numpy().tolist()
    assert rows == [[name, f"{count:,}"] for name, count in written.given["uncovered_ops"].items()]
    assert sum(written.given["uncovered_ops"].values()) == int(written.work["latency_us"].isna().sum())


def test_no_number_stands_without_a_unit(written: Written) -> None:
    """Numbers in tables have one, or their head states what is counted."""
    for caption, table in written.tables.items():
        counted = {"nodes", "not covered", "op", "value", "shapes"}
        for head in set(table.columns) - counted:
            bare = [td for td in table[head] if re.fullmatch(r"[-+]?[\d.,]+", td)]
            assert not bare, (caption, head, bare)
