"""report.html is one safe file that needs nothing else."""

import base64
import gzip
import json
import re
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnperf.predict.step_prediction import StepPrediction, WhatIfPrediction
from gnnperf.report.page.markup import SCRIPTS, asset
from gnnperf.report.page.page import PERFETTO
from gnnperf.report.page.timeline_data import MAX_TEXT, timeline_data
from gnnperf.report.summary import nodes_table
from gnnperf.report.timeline import tracks
from gnnperf.whatif import Basis, Finding
from tests.chromium import Page, chromium
from tests.predict.predictions import GEMM_1, toy_prediction
from tests.report.page.pages import DRAWN, as_if_recorded, dlrm, page_of, planned

VOID = {"meta", "br", "hr", "link", "img"}
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)><!--\u2028"


class _Balanced(HTMLParser):
    """Collects tags and the texts of scripts; fails on a tag that closes what is not open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _parsed(page: str) -> _Balanced:
    parser = _Balanced()
    parser.feed(page)
    assert parser.open == []
    return parser


def _hostile() -> StepPrediction:
    """The toy with a hostile name wherever a trace has names."""
    estimate = toy_prediction({GEMM_1: np.nan})
    graph, prediction = estimate.prediction.graph, estimate.prediction
    names = ("op_name", "event_name", "input_dims", "dtype")
    nodes = graph.nodes.assign(**{name: graph.nodes[name].astype(object).mask(graph.nodes["node_type"] != "x", HOSTILE)
                                  .astype("category") for name in names})  # fmt: skip
    hostile = replace(prediction, graph=replace(graph, nodes=nodes, name=HOSTILE))
    return replace(
        estimate, prediction=hostile, warnings=(HOSTILE,), uncovered_ops={HOSTILE: 1}, provenance={HOSTILE: HOSTILE}
    )


def test_page_is_balanced_and_loads_nothing() -> None:
    page = page_of(toy_prediction())
    parser = _parsed(page)
    assert not set(parser.seen) & {"link", "img", "iframe", "object", "base"}
    assert 'target="_blank" rel="noopener noreferrer"' in PERFETTO and page.count(PERFETTO) == 1  # followed by a click
    markup = re.sub(r"<script>.*?</script>|<style>.*?</style>", "", page.replace(PERFETTO, ""), flags=re.DOTALL)
    assert not re.search(r"https?://|src=|url\(|@import|href=(?!\"#)", markup)
    assert "default-src 'none'" in page
    for name in SCRIPTS:
        assert not re.search(r"https?://|import\(|XMLHttpRequest|fetch\(|eval\(|innerHTML", asset(name)), name


def test_the_prediction_comes_first_with_its_interval_then_warnings_then_tables() -> None:
    estimate = toy_prediction({GEMM_1: np.nan})
    page = page_of(replace(estimate, step_time_interval_us=(170.0, 1850.0), interval_level=0.9))
    assert '<dd id="interval">170&nbsp;us to 1.85&nbsp;ms</dd>' in page and "90 % of steps" in page
    assert "at least 165 us" in page
    assert 0 < page.index('class="cards"') < page.index('class="warnings"') < page.index("<table")


def test_a_what_if_has_both_steps_as_bars_and_the_change_by_node_type() -> None:
    edited = WhatIfPrediction(("latency",), toy_prediction({GEMM_1: 305.0}), 1, ())
    page = page_of(replace(toy_prediction(), whatif=edited))
    part = page[page.index('id="what-if"') : page.index("<nav")]
    assert re.findall(r'<div class="stack"(?: style="width:([\d.]+)%")?', part) == ["50.0", ""]  # 185 and 370 us
    assert '<td data-order="185" class="num">+185 us</td>' in part
    assert "what if: 370 us, unedited 185 us" in part


def test_what_is_unknown_has_no_card() -> None:
    page = page_of(toy_prediction(same_hardware=False))
    assert ">none<" not in page
    assert 'id="measured"' not in page and 'id="exposed"' in page
    stalled = Finding("stalls", "one stall", (), "look", Basis.MEASURED, "", 20.0, 0.1, False, ())
    assert '<dd id="stalls">20&nbsp;us</dd>' in page_of(replace(toy_prediction(), findings=(stalled,)))


def test_names_from_a_trace_are_escaped_everywhere() -> None:
    page = page_of(_hostile())
    parser = _parsed(page)
    assert "img" not in parser.seen
    assert len(parser.scripts) == len(SCRIPTS) + 1  # and the data
    assert "alert(1)" not in re.sub(r"&lt;script&gt;alert\(1\)|onerror=alert\(1\)&gt;", "", page.split("<script")[0])
    data = json.loads(parser.scripts[0])
    assert HOSTILE in data["words"]["shapes"]
    assert any(HOSTILE in name for name in data["words"]["name"])


def test_without_anything_measured_it_is_stated_and_columns_are_left_out() -> None:
    estimate = toy_prediction(same_hardware=False)
    page = page_of(estimate)
    assert '<dd id="error">' not in page
    assert "No errors: measured on" in page
    assert "interval of latency." in page  # unknown for all, and no column
    assert '<th scope="col">interval of latency</th>' not in page
    assert '<th scope="col">measured latency</th>' in page  # the trace's own


def test_same_prediction_gives_the_same_page_and_a_step_that_takes_no_time_has_one() -> None:
    assert page_of(toy_prediction()) == page_of(toy_prediction())
    page = page_of(toy_prediction(dict.fromkeys(range(15), 0.0)))
    _parsed(page)
    assert '<dd id="predicted">0&nbsp;us</dd>' in page
    assert "All rows add up to 0 us" in page


OPENS_S = 3.0


def _check(estimate: StepPrediction, path: Path, most_s: float, most_bytes: float) -> None:
    begin = time.process_time()  # the processor's: a busy machine makes no page slower
    path.write_text(page_of(estimate), encoding="utf-8")
    assert time.process_time() - begin < most_s
    assert path.stat().st_size < most_bytes
    program = chromium()
    if program is not None:
        with Page(program) as page:
            page.open(path, DRAWN)
            assert page.complaints() == []
            assert page.opened_s < OPENS_S


@pytest.mark.mirror
def test_eight_recorded_ranks(mirror: Path, tmp_path: Path) -> None:
    _check(dlrm(mirror), tmp_path / "report.html", 10.0, 6e6)


@pytest.mark.slow
def test_two_hundred_thousand_nodes(tmp_path: Path) -> None:
    """As if recorded: a plan's numbers repeat and compress far better than a recording's."""
    estimate = as_if_recorded(planned())
    assert estimate.prediction.graph.num_nodes >= 200_000
    _check(estimate, tmp_path / "report.html", 30.0, 15e6)


def _columns(data: dict[str, Any]) -> dict[str, np.ndarray]:
    packed, at, result = gzip.decompress(base64.b64decode(data["packed"])), 0, {}
    for column in data["columns"]:
        kind = np.dtype(column["type"])
        by_place = np.frombuffer(packed, np.uint8, column["length"] * kind.itemsize, at)  # lowest bytes first
        values = by_place.reshape(kind.itemsize, -1).T.copy().view(kind)[:, 0]
        at += column["length"] * kind.itemsize
        result[f"{column['of']} {column['name']}"] = np.cumsum(values, dtype=kind) if column["gaps"] else values
    assert at == len(packed)
    return result


def _data(estimate: StepPrediction) -> dict[str, Any]:
    return timeline_data(estimate, nodes_table(estimate), tracks(estimate))


def test_slices_are_those_of_the_tracks() -> None:
    estimate = toy_prediction({GEMM_1: 305.0})
    data, slices = _data(estimate), tracks(estimate)
    columns = _columns(data)
    start_us = columns["slices start"] * data["tick_us"] + data["opens_us"]
    assert start_us.tolist() == (slices["start_ns"] / 1000).tolist()
    assert (columns["slices length"] * data["tick_us"]).tolist() == (
        (slices["end_ns"] - slices["start_ns"]) / 1000
    ).tolist()
    assert [data["words"]["name"][code] for code in columns["slices name"]] == slices["name"].tolist()
    lanes = [(lane["rank"], lane["name"], lane["end"] - lane["first"]) for lane in data["lanes"]]
    counted = slices.groupby("tid").agg(rank=("rank", "first"), track=("track", "first"), num=("rank", "size"))
    assert lanes == list(counted.itertuples(index=False, name=None))


def test_slices_say_what_is_known_of_their_nodes() -> None:
    estimate = toy_prediction({GEMM_1: 305.0})
    data = _data(estimate)
    columns, words = _columns(data), data["words"]
    gemm = tracks(estimate).query(f"node_id == {GEMM_1} and kind == 'predicted'").index[0]
    node = columns["slices node"][gemm]
    assert columns["nodes latency_us"][node] == 305.0
    assert columns["nodes measured_us"][node] == 120.0
    assert words["shapes"][columns["nodes shapes"][node]] == "512×512, 512×512"
    assert words["look"][columns["nodes look"][node]] == "compute"
    assert "nodes low_us" not in columns  # nothing knows it


def test_waits_and_transfers_look_so() -> None:
    estimate = toy_prediction()
    data, slices = _data(estimate), tracks(estimate)
    columns = _columns(data)
    looks = {
        data["words"]["look"][columns["nodes look"][node]]
        for node in columns["slices node"][slices["name"] == "c10d::allreduce_"]
    }
    assert looks == {"transfer"}
    waits = columns["slices node"][slices["name"].str.startswith("wait for peers")]
    assert {data["words"]["look"][columns["nodes look"][node]] for node in waits} == {"wait"}


def test_steps_too_long_for_nanoseconds_have_longer_ticks() -> None:
    data = _data(toy_prediction({GEMM_1: 5e9}))  # an hour and more
    columns = _columns(data)
    ends = (columns["slices start"].astype(float) + columns["slices length"]) * data["tick_us"]
    assert data["tick_us"] > 1.0
    assert abs(ends.max() / (5e9 + 65.0) - 1.0) < 1e-6


def test_long_texts_are_cut() -> None:
    estimate = toy_prediction()
    graph = estimate.prediction.graph
    shapes = (
        graph.nodes["input_dims"].astype(object).where(graph.nodes["input_dims"].isna(), "9" * 1000).astype("category")
    )
    longer = replace(graph, nodes=graph.nodes.assign(input_dims=shapes))
    data = _data(replace(estimate, prediction=replace(estimate.prediction, graph=longer)))
    assert max(map(len, data["words"]["shapes"])) == MAX_TEXT
