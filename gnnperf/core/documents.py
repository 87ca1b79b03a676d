"""Files that other programs read: CSV without formulas, strict JSON, HTML pages that work offline and load nothing."""

import base64
import hashlib
import math
import re
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any

import msgspec

from gnnperf.core.terminal import visible

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure


FORMULA = ("=", "+", "-", "@", "\t", "\n")  # what a spreadsheet takes for the beginning of a formula


def csv_text(table: "pd.DataFrame") -> str:
    """A table as CSV that no spreadsheet computes: texts that look like formulas begin with a quote (OWASP).

    Numbers are as they were.
    """
    import pandas as pd  # commands that only write JSON start without it

    columns = {
        name: column if column.dtype.kind in "biufc" else column.astype(object).map(_record)
        for name, column in table.items()
    }
    return pd.DataFrame(columns, index=table.index).set_axis(list(map(_record, columns)), axis=1).to_csv(index=False)


def _record(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = visible(value)  # a bare return would begin a row
    try:
        float(text)
    except ValueError:
        return f"'{text}" if text.startswith(FORMULA) else text
    return text


def to_json(value: Any, indent: int = 2) -> bytes:
    """Indented strict JSON with a newline at the end: null for NaN and infinity, an escape for half a character."""
    return msgspec.json.format(msgspec.json.encode(strict(value)), indent=indent) + b"\n"


def strict(value: Any) -> Any:
    """The same value as JSON can hold it."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode() if not value.isascii() else value
    if isinstance(value, dict):
        return {strict(key): strict(item) for key, item in value.items()}
    return [strict(item) for item in value] if isinstance(value, list | tuple) else value


SCRIPT = re.compile(r"<script[^>]*>(.*?)</script>", re.DOTALL)
PLOTLY_IMAGES = "img-src data: blob:"  # what its camera button makes


def content_security_policy(scripts: Iterable[str], more: str = "") -> str:
    """The policy of a page as an element, first in its head: of all scripts only these texts run, no handler does."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
    allowed = f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes}; base-uri 'none'; form-action 'none'"
    content = "; ".join(part for part in (allowed, more) if part)
    return f'<meta http-equiv="Content-Security-Policy" content="{content}">'


def html_page(title: str, style: str, body: str, rules: str | None = None) -> str:
    """A whole page; `body` is HTML in which every text is escaped. Without `rules` (the policy) no script runs."""
    rules = rules or content_security_policy(())
    head = f'<meta charset="utf-8">{rules}<title>{escape(title)}</title><style>{style}</style>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def plotly_page(title: str, figures: "Iterable[Figure]") -> str:
    """One or more figures below each other, with the program that draws them."""
    drawn = [
        figure.to_html(full_html=False, include_plotlyjs=number == 0, div_id=f"figure{number}")
        for number, figure in enumerate(figures)
    ]
    scripts = [script for fragment in drawn for script in SCRIPT.findall(fragment)]  # plotly escapes texts in them
    return html_page(title, "", "\n".join(drawn), content_security_policy(scripts, PLOTLY_IMAGES))
