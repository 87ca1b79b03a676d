"""report.html is one safe file that needs nothing else."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np

from gnnperf.predict.step_prediction import StepPrediction
from gnnperf.report.page.markup import SCRIPTS, asset
from tests.predict.answers import GEMM_1, toy_answer
from tests.report.page.pages import page_of

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
    answer = toy_answer({GEMM_1: np.nan})
    graph, prediction = answer.prediction.graph, answer.prediction
    names = ("op_name", "event_name", "input_dims", "dtype")
    nodes = graph.nodes.assign(**{name: graph.nodes[name].astype(object).mask(graph.nodes["node_type"] != "x", HOSTILE)
                                  .astype("category") for name in names})  # fmt: skip
    hostile = replace(prediction, graph=replace(graph, nodes=nodes, name=HOSTILE))
    return replace(
        answer, prediction=hostile, warnings=(HOSTILE,), uncovered_ops={HOSTILE: 1}, provenance={HOSTILE: HOSTILE}
    )


def test_page_is_balanced_and_loads_nothing() -> None:
    page = page_of(toy_answer())
    parser = _parsed(page)
    assert not set(parser.seen) & {"link", "img", "iframe", "object", "base"}
    markup = re.sub(r"<script>.*?</script>|<style>.*?</style>", "", page, flags=re.DOTALL)
    assert not re.search(r"https?://|src=|url\(|@import|href=(?!\"#)", markup)
    assert "default-src 'none'" in page
    for name in SCRIPTS:
        assert not re.search(r"https?://|import\(|XMLHttpRequest|fetch\(|eval\(|innerHTML", asset(name)), name


def test_page_states_answer_units_and_comparison() -> None:
    page = page_of(toy_answer({GEMM_1: 305.0}))
    assert "step makespan: 370 us" in page
    assert '<dd id="predicted">370&nbsp;us</dd>' in page
    assert '<dd id="measured">185&nbsp;us</dd>' in page
    assert '<dd id="error">+100.0&nbsp;%</dd>' in page
    assert "aten::mm" in page


def test_interval_is_reported_with_its_level() -> None:
    answer = replace(toy_answer(), step_time_interval_us=(170.0, 1850.0), interval_level=0.9)
    page = page_of(answer)
    assert '<dd id="interval">170&nbsp;us to 1.85&nbsp;ms</dd>' in page
    assert "90 % of steps" in page


def test_warnings_come_before_every_figure() -> None:
    page = page_of(toy_answer({GEMM_1: np.nan}))
    assert "at least 165 us" in page
    assert 0 < page.index("are not covered") < page.index('class="cards"') < page.index("<table")


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
    answer = toy_answer(same_hardware=False)
    page = page_of(answer)
    assert '<dd id="error">none</dd>' in page
    assert "No errors: traced on" in page
    assert "interval of latency." in page  # unknown for all, and no column
    assert '<th scope="col">interval of latency</th>' not in page
    assert '<th scope="col">measured latency</th>' in page  # the trace's own


def test_same_answer_gives_the_same_page() -> None:
    assert page_of(toy_answer()) == page_of(toy_answer())


def test_a_step_that_takes_no_time_has_a_page() -> None:
    page = page_of(toy_answer(dict.fromkeys(range(15), 0.0)))
    _parsed(page)
    assert '<dd id="predicted">0&nbsp;us</dd>' in page
    assert "All rows add up to 0 us" in page
