"""Pages that work offline, and say to the browser that they run their own scripts and load nothing."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SCRIPT = re.compile(r"<script[^>]*>(.*?)</script>", re.DOTALL)
PLOTLY_IMAGES = "img-src data: blob:"  # what its camera button makes


def content_security_policy(scripts: Iterable[str], more: str = "") -> str:
    """A content security policy as an element, for the head of a page, before anything else.

    Args:
        scripts: text of those that may run, each between its tags; handlers in attributes may not.
        more: directives.
    """
    hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts) or "'none'"
    allowed = f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes}; base-uri 'none'; form-action 'none'"
    content = "; ".join(part for part in (allowed, more) if part)
    return f'<meta http-equiv="Content-Security-Policy" content="{content}">'


def html_page(title: str, style: str, body: str, rules: str | None = None) -> str:
    """A whole page.

    Args:
        title: text.
        style: a style sheet.
        body: HTML, in which every text is escaped.
        rules: the policy; None: no script runs.
    """
    rules = rules or content_security_policy(())
    head = f'<meta charset="utf-8">{rules}<title>{escape(title)}</title><style>{style}</style>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def plotly_page(title: str, figures: Iterable[Figure], style: str = "", before: str = "") -> str:
    """Figures with the program that draws them, one below the other.

    Args:
        title: text.
        figures: at least one.
        style: a style sheet.
        before: HTML above them, in which every text is escaped.
    """
    drawn = [
        figure.to_html(full_html=False, include_plotlyjs=number == 0, div_id=f"figure{number}")
        for number, figure in enumerate(figures)
    ]
    scripts = [script for fragment in drawn for script in SCRIPT.findall(fragment)]  # plotly escapes texts in them
    return html_page(title, style, "\n".join([before, *drawn]), content_security_policy(scripts, PLOTLY_IMAGES))


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
