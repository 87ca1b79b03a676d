"""report.html is one safe file."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np

from gnnperf.report.html import html_report
from tests.predict.answers import GEMM_1, toy_answer

VOID = {"meta", "br", "hr", "link", "img"}


class _Balanced(HTMLParser):
    """Collects tags; fails on one that closes what is not open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_balanced_and_has_no_external_reference() -> None:
    page = html_report(toy_answer())
    parser = _Balanced()
    parser.feed(page)
    assert parser.open == []
    assert not parser.seen & {"script", "link", "img", "iframe", "object"}
    assert not re.search(r"https?://|//[a-z]|src=|href=|url\(|@import", page)


def test_page_states_answer_units_and_comparison() -> None:
    page = html_report(toy_answer({GEMM_1: 305.0}))
    assert "step makespan: 370 us" in page
    assert "measured makespan: 185 us; error +100.0 %" in page
    assert "aten::mm" in page


def test_warnings_come_before_the_tables() -> None:
    page = html_report(toy_answer({GEMM_1: np.nan}))
    assert "at least 165 us" in page
    assert 0 < page.index("are not covered") < page.index("<table>")


def test_names_from_a_trace_are_escaped() -> None:
    answer = toy_answer()
    hostile = "<script>alert(1)</script>"
    page = html_report(replace(answer, warnings=(hostile,), uncovered_ops={hostile: 1}))
    assert "<script>" not in page
    assert page.count("&lt;script&gt;") == 2
