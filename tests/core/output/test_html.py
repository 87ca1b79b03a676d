"""Pages run their own scripts and load nothing."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest
from plotly.graph_objects import Bar, Figure

from gnnperf.core.documents import html_page, plotly_page

EVIL = "</script><script>alert(1)</script><!--\u2028<img src=x onerror=alert(1)>"


def _hashes(html: str) -> set[str]:
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", html, re.DOTALL)
    return {base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts}


def _policy(html: str) -> str:
    (content,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', html)
    return str(content)


def test_a_page_without_scripts_allows_none() -> None:
    html = html_page(EVIL, "p { color: red }", "<p>text</p>")
    assert "script-src 'none'" in _policy(html) and "default-src 'none'" in _policy(html)
    assert "<script" not in html and "<img" not in html
    assert html.index("Content-Security-Policy") < html.index("<title>")


@pytest.fixture(scope="module")
def drawn() -> str:
    figures = [Figure(Bar(x=[1.0], y=[EVIL], text=[EVIL]), {"title": {"text": EVIL}}) for _ in range(2)]
    return plotly_page(EVIL, figures, "", "<h1>title</h1>")


def test_scripts_of_figures_are_allowed_by_their_hash_isolated(drawn: str) -> None:
    allowed = set(re.findall(r"'sha256-([^']*)'", _policy(drawn)))
    assert allowed == _hashes(drawn)
    assert len(re.findall(r"<script", drawn)) >= 4
    assert "unsafe-eval" not in _policy(drawn) and "http" not in _policy(drawn)


def test_texts_of_figures_end_no_script(drawn: str) -> None:
    assert "alert(1)" not in re.sub(r"<script[^>]*>.*?</script>", "", drawn, flags=re.DOTALL).replace(
        "&lt;script&gt;alert(1)&lt;/script&gt;", "").replace("onerror=alert(1)&gt;", "")  # fmt: skip
    assert "<img src=x" not in drawn and "<!--\u2028" not in drawn
