"""Pages of figures in a headless Chromium: drawn under their own policy, obeying no text of strangers."""

from __future__ import annotations

from pathlib import Path

import pytest
from plotly.graph_objects import Bar, Figure

from gnnperf.core.documents import plotly_page
from research.benchmarks._chromium import Page, chromium

PROGRAM = chromium()
HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\u2028<!--"
DRAWN = "document.querySelectorAll('#figure1 .bars path').length > 0"


@pytest.mark.skipif(PROGRAM is None, reason="no Chromium on the PATH (Debian: apt install chromium)")
def test_figures_are_drawn_and_nothing_else_runs(tmp_path: Path) -> None:
    assert PROGRAM is not None
    path = tmp_path / "page.html"
    figures = [Figure(Bar(x=[1.0], y=[HOSTILE], text=[HOSTILE]), {"title": {"text": HOSTILE}}) for _ in range(2)]
    path.write_text(plotly_page("title", figures, before="<p>text</p>"), encoding="utf-8")
    with Page(PROGRAM) as page:
        page.open(path, DRAWN)
        assert page.complaints() == []
        assert page.ask("document.title") == "title"
