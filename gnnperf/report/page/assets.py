"""The style sheet and the scripts of report.html, and how they and data are put into one page."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from typing import Any

import msgspec

from gnnperf.core import content_security_policy, strict

STYLE = "report.css"
SCRIPTS = (
    "theme.js",
    "tables.js",
    "timeline_data.js",
    "timeline_draw.js",
    "timeline_view.js",
    "timeline_facts.js",
    "timeline_input.js",
)


def asset(name: str) -> str:
    """The text of a file next to this module."""
    return files("gnnperf.report.page").joinpath(name).read_text(encoding="utf-8")


def style() -> str:
    """The style sheet as an element."""
    return f"<style>\n{asset(STYLE)}</style>"


def scripts() -> str:
    """The scripts as elements, in order."""
    return "\n".join(f"<script>{_script(name)}</script>" for name in SCRIPTS)


def policy() -> str:
    """What the page may do: run these scripts, and nothing else; load nothing from anywhere."""
    return content_security_policy(map(_script, SCRIPTS))


def json_block(name: str, value: Any) -> str:
    """A value as an element that scripts read and no one runs: no text in it can end it."""
    text = msgspec.json.encode(strict(value)).decode("utf-8")
    return f'<script type="application/json" id="{name}">{_harmless(text)}</script>'


def _harmless(text: str) -> str:
    escapes: Iterable[tuple[str, str]] = (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"))
    for sign, escaped in escapes:
        text = text.replace(sign, escaped)
    return text


def _script(name: str) -> str:
    return f"\n{asset(name)}"
